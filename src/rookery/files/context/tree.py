"""The tree of a workspace, as git sees it: folders opened from the top, as long as there are lines left."""

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rookery.files.context.section import Section
from rookery.system.git import Git, failed

_LISTING = ("ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "-z")
_LINES = 150
# A folder with more entries than this shows only so many.
_ENTRIES = 40


async def tree_sections(git: Git, root: Path) -> list[Section]:
    """Files that git ignores are not in it."""
    listed = await git.run(root, *_LISTING)
    if listed.returncode != 0:
        raise failed(root, "ls-files", listed)
    paths = listed.stdout.split(b"\0")
    # The last one is empty, or the half of a name.
    text = await asyncio.to_thread(draw_tree, [os.fsdecode(path) for path in paths[:-1]])
    cut = "[there are more files than git may list here]\n" if listed.cut else ""
    return [Section("tree", "Files", 3, text + cut)] if text else []


@dataclass
class _Folder:
    name: str
    depth: int
    files: list[str] = field(default_factory=list[str])
    folders: "dict[str, _Folder]" = field(default_factory=dict[str, "_Folder"])
    count: int = 0
    is_open: bool = False

    @property
    def entries(self) -> int:
        return min(len(self.files) + len(self.folders), _ENTRIES + 1)


def draw_tree(paths: Sequence[str], lines: int = _LINES) -> str:
    """Each entry in a line; a folder that is not opened tells how many files it has."""
    top = _Folder("", 0)
    for path in paths:
        _add(top, path)
    waiting, room = deque([top]), lines
    while waiting:
        folder = waiting.popleft()
        # The smaller folders behind a big one still have their chance.
        if folder.entries <= room:
            folder.is_open = True
            room -= folder.entries
            waiting.extend(child for _, child in sorted(folder.folders.items())[:_ENTRIES])
    drawn = _draw(top) if top.is_open else [f"{top.count} files"] * bool(top.count)
    return "".join(f"{line}\n" for line in drawn)


def _add(folder: _Folder, path: str) -> None:
    *parents, name = path.split("/")
    folder.count += 1
    for parent in parents:
        if parent not in folder.folders:
            folder.folders[parent] = _Folder(parent, folder.depth + 1)
        folder = folder.folders[parent]
        folder.count += 1
    # An untracked repository inside is listed as a folder.
    if name:
        folder.files.append(name)


def _draw(folder: _Folder) -> list[str]:
    indent = "  " * folder.depth
    found: list[list[str]] = []
    for _, child in sorted(folder.folders.items()):
        inner = _draw(child) if child.is_open else []
        count = "" if child.is_open else f" ({child.count} files)"
        found.append([f"{indent}{_name(child.name)}/{count}", *inner])
    found += [[indent + _name(name)] for name in sorted(folder.files)]
    beyond = [f"{indent}[{len(found) - _ENTRIES} more entries]"] if len(found) > _ENTRIES else []
    return [line for entry in found[:_ENTRIES] for line in entry] + beyond


def _name(name: str) -> str:
    """In one line, whatever is in it."""
    return name.replace("\n", "\\n").replace("\r", "\\r").encode("utf-8", "replace").decode()
