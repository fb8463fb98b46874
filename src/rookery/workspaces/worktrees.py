"""What git says of a repository's worktrees, and where each keeps its own git folder."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.files import read_plain
from rookery.system.git import Git

_LONGEST = 64 * 1024
# What git says of a worktree that another git is just making: the file is there, and empty for a moment.
_HALF_MADE = re.compile(r"failed to read \S*commondir: Success")
_TRIES = 10


class Worktree(msgspec.Struct, frozen=True):
    """One record of `git worktree list`. A lock or an excuse to prune without a reason is the empty string."""

    path: Path
    head: str | None = None
    branch: str | None = None
    main: bool = False
    bare: bool = False
    detached: bool = False
    locked: str | None = None
    prunable: str | None = None


async def list_worktrees(git: Git, checkout: Path) -> list[Worktree]:
    """All worktrees of the repository, the main one first. Nothing of the repository runs."""
    for tries_left in reversed(range(_TRIES)):
        try:
            listed = await git.told(checkout, "worktree", "list", "--porcelain", "-z")
            return list(parse_worktrees(listed))
        except RookeryError as error:
            if not (tries_left and _HALF_MADE.search(error.message)):
                raise
    raise AssertionError("the last try answers or raises")


def parse_worktrees(listed: bytes) -> Iterator[Worktree]:
    """The records of `git worktree list --porcelain -z`."""
    for number, record in enumerate(listed.removesuffix(b"\0").split(b"\0\0")):
        fields = dict(_field(line) for line in record.split(b"\0") if line)
        if "worktree" not in fields:
            continue
        # A branch without a commit has a head of zeros.
        head = fields.get("HEAD", "").strip("0") and fields["HEAD"]
        yield Worktree(
            path=Path(fields["worktree"]),
            head=head or None,
            branch=fields["branch"].removeprefix("refs/heads/") if "branch" in fields else None,
            main=number == 0,
            bare="bare" in fields,
            detached="detached" in fields,
            locked=fields.get("locked"),
            prunable=fields.get("prunable"),
        )


def _field(line: bytes) -> tuple[str, str]:
    name, _, value = line.partition(b" ")
    return os.fsdecode(name), os.fsdecode(value)


async def own_git_folder(git: Git, worktree: Path) -> Path:
    """The worktree's own git folder: `.git` of the main checkout, `.git/worktrees/<id>` of the others."""
    return Path(os.fsdecode(await git.told(worktree, "rev-parse", "--absolute-git-dir")))


def named_git_folder(worktree: Path) -> Path | None:
    """The git folder that a worktree itself names, read without git; None where there is none to read."""
    try:
        named = read_plain(f"{worktree}/.git", _LONGEST)
    except OSError:
        place = worktree / ".git"
        with contextlib.suppress(OSError):  # such as a name that is too long for any file
            return place if place.is_dir() else None
        return None
    if not named.startswith(b"gitdir: ") or b"\0" in named:
        return None
    return worktree / os.fsdecode(named.removeprefix(b"gitdir: ").rstrip(b"\r\n"))


def made_at(own: Path) -> int:
    """When a worktree was made, by a file that git never writes again; 0 for a main checkout, of which there is one."""
    try:
        return (own / "commondir").stat().st_mtime_ns
    except OSError:
        return 0


def registered_folders(common: Path) -> dict[Path, Path]:
    """For each worktree that is registered in a repository's common git folder, its path: its own git folder."""
    found: dict[Path, Path] = {}
    try:
        folders = sorted((common / "worktrees").iterdir())
    except OSError:
        return found
    for folder in folders:
        try:
            place = os.fsdecode(read_plain(f"{folder}/gitdir", _LONGEST).rstrip(b"\r\n"))
        except OSError:
            continue
        found[Path(os.path.normpath(folder / place)).parent] = folder
    return found


def disagreement(worktree: Path, own: Path) -> str:
    """Why a folder is not the worktree that is registered for it, or nothing: both sides must name each other."""
    named = named_git_folder(worktree)
    if named is not None and (named == own or _are_same(named, own)):
        return ""
    if not worktree.is_dir():
        return f"{worktree} does not exist"
    if named is None:
        return f"{worktree / '.git'} cannot be read"
    return f"{worktree / '.git'} names {named}, but the repository keeps it at {own}"


def _are_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
