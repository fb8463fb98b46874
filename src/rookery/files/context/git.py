"""What git says of a workspace: branch and status, conflicts, how much has changed, the last commits."""

import asyncio
from pathlib import Path

from rookery.files.context.section import Section
from rookery.system.git import Git, failed

_STATUS = ("status", "--short", "--branch", "--untracked-files=normal", "--no-renames")
# No program of a repository's config has a word in it.
_STAT = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--stat=100", "--stat-count=60", "HEAD", "--")
_LOG = ("log", "--max-count=15", "--no-color", "--no-show-signature", "--date=short", "--format=%h %ad %an: %s")
_UNMERGED = ("DD ", "AU ", "UD ", "UA ", "DU ", "AA ", "UU ")
_MOST_LINES = 100


async def git_sections(git: Git, root: Path) -> list[Section]:
    """Without a first commit there is nothing to compare with, and nothing to log."""
    status, stat, log = await asyncio.gather(git.run(root, *_STATUS), git.run(root, *_STAT), git.run(root, *_LOG))
    if status.returncode != 0:
        raise failed(root, "status", status)
    lines = _text(status.stdout).splitlines()
    conflicts = [line for line in lines if line.startswith(_UNMERGED)]
    found = [Section("git/status", "Git status", 1, at_most(lines, _MOST_LINES))]
    if conflicts:
        found.append(Section("git/conflicts", "Files in conflict", 1, at_most(conflicts, _MOST_LINES)))
    if stat.returncode == 0 and stat.stdout:
        found.append(Section("git/diffstat", "Changed since the last commit", 2, _text(stat.stdout)))
    if log.returncode == 0 and log.stdout:
        found.append(Section("git/log", "The last commits", 3, _text(log.stdout)))
    return found


def at_most(lines: list[str], most: int) -> str:
    """The first lines, and how many there are beyond."""
    beyond = [f"[{len(lines) - most} more]"] if len(lines) > most else []
    return "\n".join([*lines[:most], *beyond]) + "\n"


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "replace")
