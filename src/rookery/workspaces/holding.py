"""Keeps from git's housekeeping what only a worktree's own git folder names: staged files, commits of its past.

Once that folder lies in the trash, git no longer sees its index and its reflog, and may drop what they name. One
commit is made that names all of it, and a ref on that commit.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.files import read_plain
from rookery.system.git import Git, failed
from rookery.workspaces.worktrees import Worktree

_OBJECT = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_LARGEST = 16 * 2**20
# Of the files of an index, which may be very many.
_LARGEST_LIST = 256 * 2**20
# Where git keeps commits of an operation that is under way, and of the past.
_FOLDERS = ("", "logs", "rebase-merge", "rebase-apply", "sequencer")
_NO_COMMITS = {"index", "commondir", "gitdir", "locked"}


async def hold(git: Git, checkout: Path, own: Path, worktree: Worktree, at: float, *, staged: bool) -> str | None:
    """The commit that holds it all; None if the worktree's head holds everything already."""
    named = await _existing(git, checkout, _named(own, worktree.branch) - {worktree.head or ""})
    blobs: Sequence[bytes] = await _staged(git, checkout, own) if staged else ()
    if not named and not blobs:
        return None
    lines = b"".join(b"100644 blob %s\t%s\0" % (blob, blob) for blob in blobs)
    tree = await _written(git, checkout, "mktree", "-z", input=lines)
    who = f"Rookery <rookery@localhost> {int(at)} +0000"
    parents = [*([worktree.head] if worktree.head else []), *named]
    text = "".join([f"tree {tree}\n", *(f"parent {one}\n" for one in parents), f"author {who}\n", f"committer {who}\n"])
    return await _written(
        git, checkout, "hash-object", "-t", "commit", "-w", "--stdin", input=f"{text}\nheld\n".encode("ascii")
    )


def _named(own: Path, branch: str | None) -> set[str]:
    """All object names in the files where git may keep them."""
    found: set[str] = set()
    for place in _places(own, branch):
        with contextlib.suppress(OSError):
            found |= {name.decode("ascii") for name in _OBJECT.findall(read_plain(place, _LARGEST))}
    return {name for name in found if name.strip("0")}


def _places(own: Path, branch: str | None) -> Iterator[Path]:
    for name in _FOLDERS:
        folder = own / name
        if folder.is_dir():
            yield from (path for path in folder.iterdir() if path.is_file() and path.name not in _NO_COMMITS)
    yield from (path for path in (own / "refs").rglob("*") if path.is_file())
    if branch is not None:
        yield own.parents[1] / "logs" / "refs" / "heads" / branch


async def _existing(git: Git, checkout: Path, names: set[str]) -> list[str]:
    """Those of them that are commits of this repository."""
    if not names:
        return []
    asked = "".join(f"{name}\n" for name in sorted(names)).encode("ascii")
    ran = await git.run(checkout, "cat-file", "--batch-check=%(objecttype) %(objectname)", input=asked)
    if ran.returncode != 0:
        raise failed(checkout, "cat-file", ran)
    lines = ran.stdout.decode("ascii", "replace").splitlines()
    return [line.removeprefix("commit ") for line in lines if line.startswith("commit ")]


async def _staged(git: Git, checkout: Path, own: Path) -> Sequence[bytes]:
    """Every file of the index. Not of the worktree's folder, which may be missing."""
    ran = await git.run(checkout, f"--git-dir={os.fspath(own)}", "ls-files", "--stage", "-z", limit=_LARGEST_LIST)
    if ran.returncode != 0 or ran.cut:
        raise RookeryError("git-failed", f"the index in {own} cannot be read, and so not be kept", "mend or remove it")
    entries = [entry.split(b"\t", 1)[0].split(b" ") for entry in ran.stdout.split(b"\0") if entry]
    # A submodule's commit lies in its own repository.
    return sorted({name for mode, name, _ in entries if mode != b"160000"})


async def _written(git: Git, checkout: Path, *args: str, input: bytes) -> str:
    ran = await git.run(checkout, *args, input=input, write=True)
    if ran.returncode != 0:
        raise failed(checkout, args[0], ran)
    return ran.stdout.decode("ascii").strip()
