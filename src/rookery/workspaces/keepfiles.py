"""Ignored files that a new workspace gets from the main checkout: those that `.keepfiles` or `.worktreeinclude` list.

Both have the syntax of `.gitignore`, turned round: what is listed is copied, what has a "!" is not. Git itself does the
matching. Only files that git ignores are copied; all others come with a branch, or are somebody's work.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path, PurePath

from rookery.system.copying import copy_beneath
from rookery.system.errors import RookeryError
from rookery.system.files import read_beneath, write_atomic
from rookery.system.git import Git, failed
from rookery.workspaces.metadata import house

logger = logging.getLogger("rookery.workspaces")

LISTS = (".keepfiles", ".worktreeinclude")
_LARGEST = 256 * 1024
_SECONDS = 120.0
# How many files are copied between two looks at the world.
_BATCH = 50


async def files_to_bring(git: Git, checkout: Path, own: Path) -> list[PurePath]:
    """What the lists of the main checkout ask for; `own` is the git folder of the workspace to be."""
    patterns = b"\n".join(filter(None, (_read(checkout, name) for name in LISTS)))
    if not patterns:
        return []
    place = house(own) / "keepfiles"
    write_atomic(place, patterns + b"\n")
    listed = await _listed(git, checkout, b"", "ls-files", "-z", "-o", "-i", f"--exclude-from={place}")
    # A nested repository is listed as a folder: it is not ours to copy.
    matching = [name for name in listed if not name.endswith(b"/")]
    if not matching:
        return []
    ignored = await _listed(git, checkout, b"\0".join(matching) + b"\0", "check-ignore", "-z", "--stdin")
    return [PurePath(os.fsdecode(name)) for name in ignored]


async def bring(
    checkout: Path, workspace: Path, names: list[PurePath], progress: Callable[[int, int], None]
) -> list[str]:
    """Copy the files; answers what could not be copied, and why. What is there already stays as it is."""
    problems: list[str] = []

    def copy(batch: list[PurePath]) -> None:
        for name in batch:
            try:
                copy_beneath(checkout, workspace, name)
            except OSError as error:
                problems.append(f"{name}: {error.strerror or error}")

    for start in range(0, len(names), _BATCH):
        progress(start, len(names))
        await asyncio.to_thread(copy, names[start : start + _BATCH])
    progress(len(names), len(names))
    return problems


def _read(checkout: Path, name: str) -> bytes:
    try:
        return read_beneath(checkout, PurePath(name), _LARGEST)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RookeryError("invalid-input", f"{checkout / name} cannot be read: {error.strerror}", "mend it") from error


async def _listed(git: Git, checkout: Path, given: bytes, *args: str) -> list[bytes]:
    ran = await git.run(checkout, *args, timeout=_SECONDS, input=given)
    # check-ignore ends with 1 if nothing is ignored.
    if ran.returncode not in ((0, 1) if args[0] == "check-ignore" else (0,)):
        raise failed(checkout, args[0], ran)
    if ran.cut:
        raise RookeryError("invalid-input", f"{', '.join(LISTS)} list too many files", "list fewer")
    return [name for name in ran.stdout.split(b"\0") if name]
