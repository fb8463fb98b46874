"""Context sources that every workspace has: git, important files, the file tree and just tasks.

Sources that depend on agents, containers or failures are added by the caller.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from rookery.files.context.engine import Gatherer
from rookery.files.context.section import Section
from rookery.files.just.recipes import format_usage
from rookery.files.just.run import JustRunner, find_justfile
from rookery.system.errors import RookeryError
from rookery.system.git import Git, git_error

_GIT_STATUS = ("status", "--short", "--branch", "--untracked-files=normal", "--no-renames")
# No program of the repository's config runs for these commands.
_GIT_DIFF_STAT = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--stat=100", "--stat-count=60", "HEAD", "--")
_GIT_LOG = ("log", "--max-count=15", "--no-color", "--no-show-signature", "--date=short", "--format=%h %ad %an: %s")
_UNMERGED = ("DD ", "AU ", "UD ", "UA ", "DU ", "AA ", "UU ")
_MAX_STATUS_LINES = 100

# By priority; of each tuple, the first file that exists.
_AGENT_INSTRUCTIONS = [("AGENTS.md",), ("CLAUDE.md",), ("GEMINI.md",), (".github/copilot-instructions.md",)]
_READMES = [("README.md", "README", "README.rst", "README.txt", "readme.md", "Readme.md")]
_MANIFESTS = [
    *(("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"), ("package.json",), ("deno.json", "deno.jsonc")),
    *(("Cargo.toml",), ("go.mod",), ("pom.xml", "build.gradle.kts", "build.gradle"), ("Gemfile",), ("composer.json",)),
    *(("CMakeLists.txt",), ("Makefile",), ("Dockerfile",), ("compose.yaml", "compose.yml", "docker-compose.yml")),
]
_WANTED_FILES = [(2, _AGENT_INSTRUCTIONS), (3, _READMES), (4, _MANIFESTS)]
_CHANGED_PRIORITY = 5
_MAX_CHANGED = 12
_MAX_PATH = 200
_MAX_FILE_BYTES = 12_000
# Parts of many files say more than the whole of a few.
_MAX_CHANGED_BYTES = 6_000
_MAX_TASKS = 100
_GIT_LS_FILES = ("ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "-z")
_MAX_TREE_LINES = 150
# How many entries of a folder are shown.
_MAX_FOLDER_ENTRIES = 40


async def build_git_sections(git: Git, root: Path) -> list[Section]:
    """Return git's status, conflicts, diffstat and log. Without a commit there is no diffstat and no log."""
    status, stat, log = await asyncio.gather(
        git.run(root, *_GIT_STATUS), git.run(root, *_GIT_DIFF_STAT), git.run(root, *_GIT_LOG)
    )
    if status.returncode != 0:
        raise git_error(root, "status", status)
    lines = _decode_output(status.stdout).splitlines()
    conflicts = [line for line in lines if line.startswith(_UNMERGED)]
    sections = [Section("git/status", "Git status", 1, limit_lines(lines, _MAX_STATUS_LINES))]
    if conflicts:
        sections.append(Section("git/conflicts", "Files in conflict", 1, limit_lines(conflicts, _MAX_STATUS_LINES)))
    if stat.returncode == 0 and stat.stdout:
        sections.append(Section("git/diffstat", "Changed since the last commit", 2, _decode_output(stat.stdout)))
    if log.returncode == 0 and log.stdout:
        sections.append(Section("git/log", "The last commits", 3, _decode_output(log.stdout)))
    return sections


def limit_lines(lines: list[str], limit: int) -> str:
    """Return the first lines, and how many more there are."""
    beyond = [f"[{len(lines) - limit} more]"] if len(lines) > limit else []
    return "\n".join([*lines[:limit], *beyond]) + "\n"


def _decode_output(output: bytes) -> str:
    return output.decode("utf-8", "replace")


class FileText(Protocol):
    """Text read from a file; `encoding` is None if it is not text; `cut` says what is missing."""

    @property
    def text(self) -> str: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def cut(self) -> str: ...


# Reads at most so many bytes of a file of the workspace; raises if it is denied or unreadable.
ReadFile = Callable[[str, int], Awaitable[FileText]]


async def build_file_sections(git: Git, root: Path, read: ReadFile) -> list[Section]:
    """Return one section per file. A file that exists, but is denied or unreadable, is mentioned."""
    wanted = [(priority, names) for priority, group in _WANTED_FILES for names in group]
    results = await asyncio.gather(*(_build_first_section(read, names, priority) for priority, names in wanted))
    sections = {section.key: section for section in results if section is not None}
    changed = await _list_changed(git, root)
    for path in changed[:_MAX_CHANGED]:
        section = await _build_file_section(read, path, _CHANGED_PRIORITY, _MAX_CHANGED_BYTES)
        if section is not None:
            sections.setdefault(section.key, section)
    if len(changed) > _MAX_CHANGED:
        text = f"{len(changed) - _MAX_CHANGED} more files have changed; their content is not included here.\n"
        sections["files"] = Section("files", "More changed files", _CHANGED_PRIORITY, text, untrusted=False)
    return list(sections.values())


async def _build_first_section(read: ReadFile, names: Sequence[str], priority: int) -> Section | None:
    """Return the section of the first of these files that exists; None if none does."""
    for name in names:
        section = await _build_file_section(read, name, priority)
        if section is not None:
            return section
    return None


async def _build_file_section(
    read: ReadFile, path: str, priority: int, max_bytes: int = _MAX_FILE_BYTES
) -> Section | None:
    """Return the section of a file; None if there is no such file."""
    key = f"files/{path}"
    try:
        content = await read(path, max_bytes)
    except RookeryError as error:
        if error.code == "file-not-found":
            return None
        return Section(key, f"File {path}", priority, f"Not shown: {error.message}\n")
    if content.encoding is None:
        return Section(key, f"File {path}", priority, "Not shown: the file is not text.\n", untrusted=False)
    cut = f"\n[{content.cut}]" if content.cut else ""
    return Section(key, f"File {path}", priority, f"{content.text.rstrip()}{cut}\n")


async def _list_changed(git: Git, root: Path) -> list[str]:
    """Return files that differ from the last commit and new ones, but not deleted ones or odd names."""
    tracked, new = await asyncio.gather(
        git.run(root, "diff", "--no-ext-diff", "--name-only", "--no-renames", "--diff-filter=d", "-z", "HEAD", "--"),
        git.run(root, "ls-files", "--others", "--exclude-standard", "-z"),
    )
    # Each list ends with an empty name, or an incomplete one that did not fit.
    names = [
        os.fsdecode(name)
        for result in (tracked, new)
        if result.returncode == 0
        for name in result.stdout.split(b"\0")[:-1]
    ]
    return [name for name in names if name.isprintable() and len(name) <= _MAX_PATH and not name.endswith("/")]


async def build_task_sections(just: JustRunner, root: Path) -> list[Section]:
    """Return a section with the recipes of the justfile; none if there is no justfile."""
    if find_justfile(root) is None:
        return []
    recipes = list((await just.read_justfile(root)).recipes.values())
    lines = [f"{format_usage(recipe)}{f'  # {recipe.doc}' if recipe.doc else ''}" for recipe in recipes]
    beyond = [f"[{len(lines) - _MAX_TASKS} more]"] if len(lines) > _MAX_TASKS else []
    text = "\n".join([*lines[:_MAX_TASKS], *beyond])
    return [Section("tasks", "Just tasks, for run_just_task", 3, f"{text}\n")] if lines else []


async def build_tree_sections(git: Git, root: Path) -> list[Section]:
    """Return a section with the file tree, without files that git ignores."""
    listed = await git.run(root, *_GIT_LS_FILES)
    if listed.returncode != 0:
        raise git_error(root, "ls-files", listed)
    paths = listed.stdout.split(b"\0")
    # The last item is empty, or an incomplete name.
    text = await asyncio.to_thread(draw_tree, [os.fsdecode(path) for path in paths[:-1]])
    cut = "[there are more files than can be listed here]\n" if listed.cut else ""
    return [Section("tree", "Files", 3, text + cut)] if text else []


@dataclass
class _Folder:
    """A folder of the tree; `count` is the number of files in it and its subfolders."""

    name: str
    depth: int
    files: list[str] = field(default_factory=list[str])
    folders: "dict[str, _Folder]" = field(default_factory=dict[str, "_Folder"])
    count: int = 0
    is_open: bool = False

    @property
    def entries(self) -> int:
        return min(len(self.files) + len(self.folders), _MAX_FOLDER_ENTRIES + 1)


def draw_tree(paths: Sequence[str], lines: int = _MAX_TREE_LINES) -> str:
    """Return the tree, one entry per line; a folder that is not expanded shows its number of files."""
    top = _Folder("", 0)
    for path in paths:
        _add_path(top, path)
    waiting = deque([top])
    lines_left = lines
    while waiting:
        folder = waiting.popleft()
        # Smaller folders after a large one may still fit.
        if folder.entries <= lines_left:
            folder.is_open = True
            lines_left -= folder.entries
            waiting.extend(child for _, child in sorted(folder.folders.items())[:_MAX_FOLDER_ENTRIES])
    drawn = _draw_folder(top) if top.is_open else [f"{top.count} files"] * bool(top.count)
    return "".join(f"{line}\n" for line in drawn)


def _add_path(folder: _Folder, path: str) -> None:
    *parents, name = path.split("/")
    folder.count += 1
    for parent in parents:
        if parent not in folder.folders:
            folder.folders[parent] = _Folder(parent, folder.depth + 1)
        folder = folder.folders[parent]
        folder.count += 1
    # An untracked repository inside this one is listed as a folder.
    if name:
        folder.files.append(name)


def _draw_folder(folder: _Folder) -> list[str]:
    indent = "  " * folder.depth
    blocks: list[list[str]] = []
    for _, child in sorted(folder.folders.items()):
        inner = _draw_folder(child) if child.is_open else []
        count = "" if child.is_open else f" ({child.count} files)"
        blocks.append([f"{indent}{_display_name(child.name)}/{count}", *inner])
    blocks += [[indent + _display_name(name)] for name in sorted(folder.files)]
    beyond = (
        [f"{indent}[{len(blocks) - _MAX_FOLDER_ENTRIES} more entries]"] if len(blocks) > _MAX_FOLDER_ENTRIES else []
    )
    return [line for entry in blocks[:_MAX_FOLDER_ENTRIES] for line in entry] + beyond


def _display_name(name: str) -> str:
    """Return a name in one line, whatever it contains."""
    return name.replace("\n", "\\n").replace("\r", "\\r").encode("utf-8", "replace").decode()


def build_gatherers(root: Path, git: Git, just: JustRunner, read: ReadFile, *, seconds: float = 5.0) -> list[Gatherer]:
    """Return the gatherers that every workspace has."""
    return [
        Gatherer("git", partial(build_git_sections, git, root), seconds),
        Gatherer("files", partial(build_file_sections, git, root, read), seconds),
        Gatherer("tree", partial(build_tree_sections, git, root), seconds),
        Gatherer("tasks", partial(build_task_sections, just, root), seconds),
    ]
