"""The diff of a workspace since its start: files and a patch, committed or not, within size limits."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from rookery.system.git import Git, git_error
from rookery.workspaces.model import Workspace
from rookery.workspaces.status.history import resolve_base

# No program of the repository's config runs.
_DIFF_OPTIONS = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--ignore-submodules=none")
_MAX_PATCH_BYTES = 2 * 2**20
_MAX_FILES = 10_000
# Git needs a process of its own for each untracked file.
_MAX_NEW_FILES = 100
_TIMEOUT_SECONDS = 120.0

ChangeKind = Literal["added", "copied", "deleted", "modified", "renamed", "retyped", "unmerged", "untracked"]
_KINDS: dict[bytes, ChangeKind] = {
    b"A": "added",
    b"C": "copied",
    b"D": "deleted",
    b"M": "modified",
    b"R": "renamed",
    b"T": "retyped",
    b"U": "unmerged",
}


class ChangedFile(msgspec.Struct, frozen=True, rename={"was": "from"}):
    """A changed file. Lines are counted only in text files."""

    path: str
    status: ChangeKind
    added: int | None = None
    deleted: int | None = None
    was: str | None = None


class WorkspaceDiff(msgspec.Struct, frozen=True, rename="camel"):
    """The diff of a workspace. `since` is the commit compared with, `cut` lists what was left out for its size."""

    base: str
    since: str | None
    files: list[ChangedFile]
    text: str
    cut: list[str]


async def compute_diff(git: Git, workspace: Workspace, base: str) -> WorkspaceDiff:
    """Compare with the commit where the branch left its base, else with HEAD, else with an empty tree."""
    path = workspace.path
    commit = await _find_start(git, path, base)
    since = commit or (await git.output(path, "hash-object", "-t", "tree", os.devnull)).decode("ascii")
    files_result, patch_result, untracked_result = await asyncio.gather(
        git.run(path, "diff", *_DIFF_OPTIONS, "--raw", "--numstat", "-z", since, "--", timeout=_TIMEOUT_SECONDS),
        git.run(path, "diff", *_DIFF_OPTIONS, "--patch", since, "--", timeout=_TIMEOUT_SECONDS),
        git.run(path, "ls-files", "--others", "--exclude-standard", "-z", timeout=_TIMEOUT_SECONDS),
    )
    for name, result in (("diff", files_result), ("diff", patch_result), ("ls-files", untracked_result)):
        if result.returncode != 0:
            raise git_error(path, name, result)
    untracked = sorted(filter(None, untracked_result.stdout.split(b"\0")))
    files = [*parse_changed_files(files_result.stdout), *(ChangedFile(_text(name), "untracked") for name in untracked)]
    added = [await _diff_new_file(git, path, name) for name in untracked[:_MAX_NEW_FILES] if not name.endswith(b"/")]
    text = b"".join([patch_result.stdout, *added])
    visible = text[:_MAX_PATCH_BYTES].rpartition(b"\n")[0] + b"\n" if len(text) > _MAX_PATCH_BYTES else text
    cut = [
        *([f"{len(files) - _MAX_FILES} of {len(files)} files"] if len(files) > _MAX_FILES else []),
        *(["files beyond what git may print"] if files_result.cut or untracked_result.cut else []),
        *([f"the patch after {_MAX_PATCH_BYTES} bytes"] if len(text) > _MAX_PATCH_BYTES or patch_result.cut else []),
        *(
            [f"the text of {len(untracked) - _MAX_NEW_FILES} untracked files"]
            if len(untracked) > _MAX_NEW_FILES
            else []
        ),
    ]
    return WorkspaceDiff(base, commit, files[:_MAX_FILES], _text(visible), cut)


def parse_changed_files(output: bytes) -> Iterator[ChangedFile]:
    """Parse the output of `git diff --raw --numstat -z`: first the kind of each change, then the numbers of lines."""
    fields = iter(output.split(b"\0"))
    kinds: dict[bytes, ChangeKind] = {}
    for field in fields:
        if field.startswith(b":"):
            letter = field.rpartition(b" ")[2][:1]
            path = next(fields, b"")
            kinds[next(fields, b"") if letter in (b"R", b"C") else path] = _KINDS.get(letter, "modified")
        elif field:
            added, deleted, path = field.split(b"\t", 2)
            # For a renamed file both names follow.
            was = None if path else _text(next(fields, b""))
            path = path or next(fields, b"")
            yield ChangedFile(_text(path), kinds.get(path, "modified"), _count(added), _count(deleted), was)


async def _find_start(git: Git, path: Path, base: str) -> str | None:
    """Return the merge base of HEAD and `base`, else HEAD; None without a commit."""
    head = await resolve_base(git, path, "HEAD")
    if head is None:
        return None
    base_commit = await resolve_base(git, path, base)
    merge_base = await git.run(path, "merge-base", "HEAD", base_commit.commit) if base_commit is not None else None
    return (
        merge_base.stdout.decode("ascii").strip()
        if merge_base is not None and merge_base.returncode == 0
        else head.commit
    )


async def _diff_new_file(git: Git, path: Path, name: bytes) -> bytes:
    """Return a patch that adds a new file; empty if the file no longer exists.

    Git exits with 1 because the files differ.
    """
    # Git would read a file named "-" from its standard input.
    file = "./-" if name == b"-" else os.fsdecode(name)
    result = await git.run(path, "diff", *_DIFF_OPTIONS, "--no-index", "--", os.devnull, file)
    return result.stdout if result.returncode == 1 else b""


def _count(field: bytes) -> int | None:
    return None if field == b"-" else int(field)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
