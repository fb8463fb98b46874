"""Reads a configuration file and the files that it names. What a repository says reaches no file outside of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rookery.system.files import read_beneath, read_plain
from rookery.upstreams.definition import Dialect, Place, Problem
from rookery.upstreams.dialects import Parsed, parse_file
from rookery.upstreams.jsonc import LARGEST, JsoncError
from rookery.upstreams.substitute import Substitution

_LARGEST_VALUE = 65_536


@dataclass(frozen=True)
class File:
    """A file that may define servers; `root` is the repository that it belongs to, None if it is the user's own."""

    path: Path
    dialect: Dialect
    root: Path | None = None

    @property
    def place(self) -> Place:
        return "user" if self.root is None else "project"


@dataclass
class Read:
    """What a file says. `failure` is why it could not be read as a whole; `named` are the files that it names."""

    file: File
    parsed: Parsed = field(default_factory=Parsed)
    failure: Problem | None = None
    named: set[Path] = field(default_factory=set[Path])

    @property
    def problems(self) -> list[Problem]:
        return [self.failure, *self.parsed.problems] if self.failure else self.parsed.problems


def read(file: File, environment: Mapping[str, str]) -> Read:
    """Never raises. A file that is not there says nothing, and that is fine."""
    found = Read(file)
    try:
        text = content(file)
    except (FileNotFoundError, NotADirectoryError):
        return found
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = "make it a plain file that you may read, or remove it"
        found.failure = Problem(str(file.path), 1, f"cannot be read: {told}", remedy)
        return found

    def content_of(name: str) -> str:
        path = _named(file, name)
        found.named.add(path)
        return _content(file, path, _LARGEST_VALUE)

    substitution = Substitution(file.dialect, environment, content_of, show_files=file.root is not None)
    try:
        found.parsed = parse_file(text, str(file.path), file.dialect, file.place, substitution)
    except JsoncError as error:
        found.failure = Problem(str(file.path), error.line, error.message, "mend it; until then nothing new is taken")
    return found


def content(file: File) -> str:
    """The text of a configuration file; OSError or UnicodeDecodeError if it has none."""
    return _content(file, file.path, LARGEST)


def _content(file: File, path: Path, limit: int) -> str:
    if file.root is None:
        return read_plain(path, limit).decode()
    return read_beneath(file.root, path.relative_to(file.root), limit).decode()


def _named(file: File, name: str) -> Path:
    """The file that `{file:name}` means: relative to the one it stands in, and never outside of its repository."""
    if file.root is None:
        return Path.home() / name[2:] if name.startswith("~/") else file.path.parent / name
    path = Path(os.path.normpath(file.path.parent / name))
    if name.startswith("~") or not path.is_relative_to(file.root) or _of_git(path.relative_to(file.root)):
        raise OSError("a repository's file can only name files of that repository")
    return path


def _of_git(path: Path) -> bool:
    """What git keeps for itself may hold the credentials of remotes."""
    return ".git" in {part.lower() for part in path.parts}
