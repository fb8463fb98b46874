"""What `git status` says of a worktree, read from its porcelain format."""

import os

import msgspec

# `-uall` would list each file of an untracked folder; the folder is enough. `matching` tells the ignored folders
# without looking into them: they are not watched.
STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignored=matching")
_RENAMED = b"2"
# The fields before the path, by the kind of a line.
_FIELDS = {b"1": 8, _RENAMED: 9, b"u": 10}


class Changes(msgspec.Struct, frozen=True):
    """Paths are relative to the worktree; a folder ends with a slash."""

    head: str | None
    branch: str | None
    staged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unmerged: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def dirty(self) -> bool:
        return bool(self.staged or self.changed or self.unmerged or self.untracked)

    def listed(self) -> list[str]:
        """What is not committed, as `git status --short` would say it."""
        both = set(self.staged) & set(self.changed)
        marks = [
            *((path, "MM " if path in both else "M  ") for path in self.staged),
            *((path, " M ") for path in self.changed if path not in both),
            *((path, "UU ") for path in self.unmerged),
            *((path, "?? ") for path in self.untracked),
        ]
        return [mark + path for path, mark in sorted(marks)]


def parse_status(printed: bytes) -> Changes:
    """The answer to `git status` with the arguments of `STATUS`."""
    found: dict[str, list[str]] = {"staged": [], "changed": [], "unmerged": [], "untracked": [], "ignored": []}
    headers: dict[bytes, bytes] = {}
    lines = iter(printed.split(b"\0"))
    for line in lines:
        kind, _, rest = line.partition(b" ")
        if kind == b"#":
            name, _, value = rest.partition(b" ")
            headers[name] = value
        elif kind in (b"?", b"!"):
            found["untracked" if kind == b"?" else "ignored"].append(os.fsdecode(rest))
        elif kind in _FIELDS:
            if kind == _RENAMED:
                next(lines, None)  # where it was before
            path = os.fsdecode(line.split(b" ", _FIELDS[kind])[-1])
            if kind == b"u":
                found["unmerged"].append(path)
                continue
            if rest[:1] != b".":
                found["staged"].append(path)
            if rest[1:2] != b".":
                found["changed"].append(path)
    head, branch = headers.get(b"branch.oid", b""), headers.get(b"branch.head", b"")
    return Changes(
        head=None if head in (b"", b"(initial)") else head.decode("ascii"),
        branch=None if branch in (b"", b"(detached)") else os.fsdecode(branch),
        **{name: tuple(paths) for name, paths in found.items()},
    )
