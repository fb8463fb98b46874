"""The files of a project that matter most: notes for agents, the README, manifests, and what is being changed."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from rookery.files.context.section import Section
from rookery.system.errors import RookeryError
from rookery.system.git import Git

# By priority; of those in one tuple the first that is there.
_NOTES = [("AGENTS.md",), ("CLAUDE.md",), ("GEMINI.md",), (".github/copilot-instructions.md",)]
_READMES = [("README.md", "README", "README.rst", "README.txt", "readme.md", "Readme.md")]
_MANIFESTS = [
    *(("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt"), ("package.json",), ("deno.json", "deno.jsonc")),
    *(("Cargo.toml",), ("go.mod",), ("pom.xml", "build.gradle.kts", "build.gradle"), ("Gemfile",), ("composer.json",)),
    *(("CMakeLists.txt",), ("Makefile",), ("Dockerfile",), ("compose.yaml", "compose.yml", "docker-compose.yml")),
]
_WANTED = [(2, _NOTES), (3, _READMES), (4, _MANIFESTS)]
_CHANGED_PRIORITY = 5
_MOST_CHANGED = 12
_LONGEST_PATH = 200
_BYTES = 12_000
# Of many files a part each says more than all of a few.
_CHANGED_BYTES = 6_000


class Read(Protocol):
    """What was read of a file; no `encoding` if it is no text; `cut` says what is not there."""

    @property
    def text(self) -> str: ...
    @property
    def encoding(self) -> str | None: ...
    @property
    def cut(self) -> str: ...


# Reads at most so many bytes of a file of the workspace; an error if it may not be seen or cannot be.
ReadFile = Callable[[str, int], Awaitable[Read]]


async def file_sections(git: Git, root: Path, read: ReadFile) -> list[Section]:
    """One section a file. A file that is there, but may not be seen, is told of."""
    wanted = [(priority, names) for priority, group in _WANTED for names in group]
    found = await asyncio.gather(*(_first(read, names, priority) for priority, names in wanted))
    sections = {section.key: section for section in found if section is not None}
    changed = await _changed(git, root)
    for path in changed[:_MOST_CHANGED]:
        section = await _section(read, path, _CHANGED_PRIORITY, _CHANGED_BYTES)
        if section is not None:
            sections.setdefault(section.key, section)
    if len(changed) > _MOST_CHANGED:
        text = f"{len(changed) - _MOST_CHANGED} more files have changed; their content is not looked at here.\n"
        sections["files"] = Section("files", "More changed files", _CHANGED_PRIORITY, text, untrusted=False)
    return list(sections.values())


async def _first(read: ReadFile, names: Sequence[str], priority: int) -> Section | None:
    for name in names:
        section = await _section(read, name, priority)
        if section is not None:
            return section
    return None


async def _section(read: ReadFile, path: str, priority: int, most: int = _BYTES) -> Section | None:
    """Nothing if there is no such file."""
    key = f"files/{path}"
    try:
        content = await read(path, most)
    except RookeryError as error:
        if error.code == "file-not-found":
            return None
        return Section(key, f"File {path}", priority, f"It is not shown: {error.message}\n")
    if content.encoding is None:
        return Section(key, f"File {path}", priority, "It is not shown: it is no text.\n", untrusted=False)
    cut = f"\n[{content.cut}]" if content.cut else ""
    return Section(key, f"File {path}", priority, f"{content.text.rstrip()}{cut}\n")


async def _changed(git: Git, root: Path) -> list[str]:
    """What differs from the last commit, and what is new; not what is gone. Odd names are left out."""
    tracked, new = await asyncio.gather(
        git.run(root, "diff", "--no-ext-diff", "--name-only", "--no-renames", "--diff-filter=d", "-z", "HEAD", "--"),
        git.run(root, "ls-files", "--others", "--exclude-standard", "-z"),
    )
    # Each list ends with an empty name, or with half of one that did not fit.
    names = [
        os.fsdecode(name) for ran in (tracked, new) if ran.returncode == 0 for name in ran.stdout.split(b"\0")[:-1]
    ]
    return [name for name in names if name.isprintable() and len(name) <= _LONGEST_PATH and not name.endswith("/")]
