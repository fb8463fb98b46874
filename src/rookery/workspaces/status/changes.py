"""The uncommitted changes of a worktree, parsed from the output of `git status`."""

import os
from collections.abc import Sequence

import msgspec

# `normal` instead of `all`: the name of an untracked folder is enough. `matching` lists the ignored folders without
# reading them: they are not watched.
STATUS_ARGUMENTS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignored=matching")
_RENAMED = b"2"
# Screenshots are saved in this folder of a workspace. They are not the user's work; other files in it are counted.
ROOKERY_FOLDER = ".rookery"
_IMAGE_SUFFIXES = (".png", ".svg")
# The number of fields before the path, by the kind of a line.
_FIELDS = {b"1": 8, _RENAMED: 9, b"u": 10}


class WorktreeChanges(msgspec.Struct, frozen=True):
    """The state of a worktree. Paths are relative to the worktree; a folder ends with a slash."""

    head: str | None
    branch: str | None
    staged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unmerged: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def is_dirty(self) -> bool:
        return bool(self.staged or self.changed or self.unmerged or self.untracked)

    def without_pictures(self, rookery_files: Sequence[str]) -> "WorktreeChanges":
        """Return a copy without the untracked pictures in `.rookery`; `rookery_files` are all untracked files there."""
        others = [path for path in self.untracked if not path.startswith(f"{ROOKERY_FOLDER}/")]
        counted = [path for path in rookery_files if not path.lower().endswith(_IMAGE_SUFFIXES)]
        return msgspec.structs.replace(self, untracked=(*others, *counted))

    def format_short(self) -> list[str]:
        """Return the uncommitted changes in the format of `git status --short`."""
        both = set(self.staged) & set(self.changed)
        marks = [
            *((path, "MM " if path in both else "M  ") for path in self.staged),
            *((path, " M ") for path in self.changed if path not in both),
            *((path, "UU ") for path in self.unmerged),
            *((path, "?? ") for path in self.untracked),
        ]
        return [mark + path for path, mark in sorted(marks)]


def parse_status(output: bytes) -> WorktreeChanges:
    """Parse the output of `git status` with `STATUS_ARGUMENTS`."""
    changes: dict[str, list[str]] = {"staged": [], "changed": [], "unmerged": [], "untracked": [], "ignored": []}
    headers: dict[bytes, bytes] = {}
    lines = iter(output.split(b"\0"))
    for line in lines:
        kind, _, rest = line.partition(b" ")
        if kind == b"#":
            name, _, value = rest.partition(b" ")
            headers[name] = value
        elif kind in (b"?", b"!"):
            changes["untracked" if kind == b"?" else "ignored"].append(os.fsdecode(rest))
        elif kind in _FIELDS:
            if kind == _RENAMED:
                next(lines, None)  # the old path
            path = os.fsdecode(line.split(b" ", _FIELDS[kind])[-1])
            if kind == b"u":
                changes["unmerged"].append(path)
                continue
            if rest[:1] != b".":
                changes["staged"].append(path)
            if rest[1:2] != b".":
                changes["changed"].append(path)
    head = headers.get(b"branch.oid", b"")
    branch = headers.get(b"branch.head", b"")
    return WorktreeChanges(
        head=None if head in (b"", b"(initial)") else head.decode("ascii"),
        branch=None if branch in (b"", b"(detached)") else os.fsdecode(branch),
        **{name: tuple(paths) for name, paths in changes.items()},
    )
