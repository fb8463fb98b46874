"""What was changed in a workspace since it began: files and a patch, committed or not, within bounds."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from rookery.system.git import Git, failed
from rookery.workspaces.history import find_against
from rookery.workspaces.record import Workspace

# No program of a repository's config has a word in it.
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--ignore-submodules=none")
_LONGEST_PATCH = 2 * 2**20
_MOST_FILES = 10_000
# A new file that git does not know yet takes a process of its own.
_MOST_NEW = 100
_SECONDS = 120.0

Kind = Literal["added", "copied", "deleted", "modified", "renamed", "retyped", "unmerged", "untracked"]
_KINDS: dict[bytes, Kind] = {
    b"A": "added",
    b"C": "copied",
    b"D": "deleted",
    b"M": "modified",
    b"R": "renamed",
    b"T": "retyped",
    b"U": "unmerged",
}


class Changed(msgspec.Struct, frozen=True, rename={"was": "from"}):
    """Lines are not counted where a file is not text."""

    path: str
    status: Kind
    added: int | None = None
    deleted: int | None = None
    was: str | None = None


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """`since` is the commit that it was compared with; `cut` says what of it was left out, for its size."""

    base: str
    since: str | None
    files: list[Changed]
    text: str
    cut: list[str]


async def difference(git: Git, workspace: Workspace, base: str) -> Difference:
    """Against the commit where the branch left its base, else against HEAD, else against nothing."""
    path = workspace.path
    commit = await _since(git, path, base)
    since = commit or (await git.told(path, "hash-object", "-t", "tree", os.devnull)).decode("ascii")
    listed, patched, new = await asyncio.gather(
        git.run(path, "diff", *_PLAIN, "--raw", "--numstat", "-z", since, "--", timeout=_SECONDS),
        git.run(path, "diff", *_PLAIN, "--patch", since, "--", timeout=_SECONDS),
        git.run(path, "ls-files", "--others", "--exclude-standard", "-z", timeout=_SECONDS),
    )
    for name, ran in (("diff", listed), ("diff", patched), ("ls-files", new)):
        if ran.returncode != 0:
            raise failed(path, name, ran)
    untracked = sorted(filter(None, new.stdout.split(b"\0")))
    files = [*parse_changed(listed.stdout), *(Changed(_text(one), "untracked") for one in untracked)]
    added = [await _of_new_file(git, path, one) for one in untracked[:_MOST_NEW] if not one.endswith(b"/")]
    text = b"".join([patched.stdout, *added])
    shown = text[:_LONGEST_PATCH].rpartition(b"\n")[0] + b"\n" if len(text) > _LONGEST_PATCH else text
    cut = [
        *([f"{len(files) - _MOST_FILES} of {len(files)} files"] if len(files) > _MOST_FILES else []),
        *(["files beyond what git may print"] if listed.cut or new.cut else []),
        *([f"the patch after {_LONGEST_PATCH} bytes"] if len(text) > _LONGEST_PATCH or patched.cut else []),
        *([f"the text of {len(untracked) - _MOST_NEW} untracked files"] if len(untracked) > _MOST_NEW else []),
    ]
    return Difference(base, commit, files[:_MOST_FILES], _text(shown), cut)


def parse_changed(printed: bytes) -> Iterator[Changed]:
    """The answer of `git diff --raw --numstat -z`: first how each file changed, then how many lines."""
    fields = iter(printed.split(b"\0"))
    kinds: dict[bytes, Kind] = {}
    for field in fields:
        if field.startswith(b":"):
            letter = field.rpartition(b" ")[2][:1]
            path = next(fields, b"")
            kinds[next(fields, b"") if letter in (b"R", b"C") else path] = _KINDS.get(letter, "modified")
        elif field:
            added, deleted, path = field.split(b"\t", 2)
            # Of a renamed one both names follow.
            was = None if path else _text(next(fields, b""))
            path = path or next(fields, b"")
            yield Changed(_text(path), kinds.get(path, "modified"), _count(added), _count(deleted), was)


async def _since(git: Git, path: Path, base: str) -> str | None:
    head = await find_against(git, path, "HEAD")
    if head is None:
        return None
    against = await find_against(git, path, base)
    shared = await git.run(path, "merge-base", "HEAD", against.commit) if against is not None else None
    return shared.stdout.decode("ascii").strip() if shared is not None and shared.returncode == 0 else head.commit


async def _of_new_file(git: Git, path: Path, name: bytes) -> bytes:
    """A patch that adds it. Git answers 1, as they differ; one that went meanwhile has none."""
    # A lone hyphen would be what it is given to read.
    file = "./-" if name == b"-" else os.fsdecode(name)
    ran = await git.run(path, "diff", *_PLAIN, "--no-index", "--", os.devnull, file)
    return ran.stdout if ran.returncode == 1 else b""


def _count(field: bytes) -> int | None:
    return None if field == b"-" else int(field)


def _text(found: bytes) -> str:
    return found.decode("utf-8", "replace")
