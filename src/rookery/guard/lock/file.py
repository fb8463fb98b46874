"""The text of `mcp.lock`: one fact on each line, sorted, and complete in itself.

A line is the name of a server, a kind, for most kinds a key, and a value:

    github command ["npx", "-y", "@example/github@1.2.3"]
    github env TOKEN "{env:GITHUB_TOKEN}"
    github package npm:@example/github 1.2.3
    github integrity npm:@example/github@1.2.3 sha512-0Jx...
    github tool create_issue sha256:5f0c...

Servers are separated by an empty line, so that git merges changes of different servers. No line depends on another, so
a merge that keeps the lines of both sides is right, in any order. Two lines that contradict each other are an error:
then neither side is believed.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec

from rookery.guard.pins.definition import DefinitionKey, PinKind
from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_beneath, write_beneath

LOCK_FILE = "mcp.lock"
MAX_LOCK_BYTES = 8_000_000

_TITLE = "# rookery mcp.lock 1"
_HEADER = f"""\
{_TITLE}
# The MCP servers of this repository: definitions, packages, and digests of what the servers list.
# Written by: rookery guard lock. Compared by: rookery guard check.
"""
# An empty line follows each server, also the last, so that removing one server and changing another do not touch.
_FOOTER = "# end\n"
_TITLE_VERSION = re.compile(r"# rookery mcp\.lock (\d+)\Z")
_CONFLICT = re.compile(r"(<{7}|\|{7}|={7}|>{7})( |\Z)")

FactKind = Literal["command", "cwd", "env", "url", "header", "option", "values"]
Ecosystem = Literal["npm", "pypi"]
ServerLevel = Literal["project", "user"]

# The order of the lines of a server.
_FACTS: tuple[FactKind, ...] = get_args(FactKind)
_KEYED_FACTS = frozenset({"env", "header", "option"})
_PINS: tuple[PinKind, ...] = get_args(PinKind)
_KINDS = ("level", *_FACTS, "package", "integrity", "instructions", *(kind for kind in _PINS if kind != "instructions"))
_KEYED = _KEYED_FACTS | {"package", "integrity"} | (set(_PINS) - {"instructions"})

# A word that needs no quotes: nothing in it is invisible, or looks like a comment or a conflict marker of git.
_BARE = re.compile(r"[A-Za-z0-9_@/.][A-Za-z0-9_@/.:+~{}?&=,*%$-]*\Z")
_WORD = re.compile(r'("(?:[^"\\]|\\.)*"|[^\s"]\S*)(?: |\Z)')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


class FactKey(NamedTuple):
    """What a fact of a definition is about: its kind, and the name of a variable, a header or an option."""

    kind: FactKind
    name: str = ""


class LockedPackage(msgspec.Struct, frozen=True):
    """A package that a server runs, as its registry describes it. `integrity` has the hashes of its files."""

    ecosystem: Ecosystem
    name: str
    version: str
    integrity: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.ecosystem}:{self.name}"


class LockedServer(msgspec.Struct, frozen=True):
    """What is locked of one server. `level` says whether the repository or the user defines it."""

    name: str
    level: ServerLevel
    facts: Mapping[FactKey, Any] = {}
    packages: Sequence[LockedPackage] = ()
    pins: Mapping[DefinitionKey, str] = {}


LockedServers = Mapping[str, LockedServer]


def format_lock(servers: Iterable[LockedServer]) -> str:
    """Return the text of the file. The same servers always have the same text."""
    blocks = [
        "".join(f"{line}\n" for line in _format_server(server))
        for server in sorted(servers, key=lambda server: server.name)
    ]
    return "\n".join([_HEADER, *blocks, _FOOTER])


def _format_server(server: LockedServer) -> Iterator[str]:
    lines = [("level", "", server.level)]
    lines += [(fact.kind, fact.name, _format_json(value)) for fact, value in server.facts.items()]
    for package in server.packages:
        lines.append(("package", package.key, _format_word(package.version)))
        lines += [("integrity", f"{package.key}@{package.version}", _format_word(value)) for value in package.integrity]
    lines += [(key.kind, key.name, digest) for key, digest in server.pins.items()]
    for kind, key, value in sorted(lines, key=lambda line: (_KINDS.index(line[0]), line[1:])):
        words = [_format_word(server.name), kind, *([_format_word(key)] if kind in _KEYED else []), value]
        yield " ".join(words)


def _format_word(text: str) -> str:
    """Return a word as it is, or as JSON in ASCII: then characters that cannot be seen are escapes."""
    return text if _BARE.match(text) else json.dumps(text)


def _format_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


class _ServerLines:
    """The lines of one server as they are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[tuple[str, str], str] = {}
        self.integrity: dict[str, set[str]] = {}

    def add(self, kind: str, key: str, value: str) -> None:
        if kind == "integrity":
            self.integrity.setdefault(key, set()).add(_parse_word(value))
            return
        if self.values.setdefault((kind, key), value) != value:
            raise ValueError(f"it contradicts another line on {' '.join(filter(None, (self.name, kind, key)))}")

    def build(self) -> LockedServer:
        facts: dict[FactKey, Any] = {}
        packages: list[LockedPackage] = []
        pins: dict[DefinitionKey, str] = {}
        level: ServerLevel = "project"
        for (kind, key), value in self.values.items():
            if kind == "level":
                level = "user" if value == "user" else "project"
            elif kind in _FACTS:
                facts[FactKey(kind, key)] = json.loads(value)
            elif kind == "package":
                packages.append(self._build_package(key, _parse_word(value)))
            else:
                pins[DefinitionKey(cast(PinKind, kind), key)] = value
        return LockedServer(self.name, level, facts, sorted(packages, key=lambda package: package.key), pins)

    def _build_package(self, key: str, version: str) -> LockedPackage:
        ecosystem, _, name = key.partition(":")
        integrity = tuple(sorted(self.integrity.get(f"{key}@{version}", ())))
        return LockedPackage(cast(Ecosystem, ecosystem), name, version, integrity)


def parse_lock(text: str, path: str = LOCK_FILE) -> dict[str, LockedServer]:
    """Return the servers of the file by name. Raise `RookeryError` with the line if it cannot be used as it is."""
    servers: dict[str, _ServerLines] = {}
    lines = text.removeprefix("\ufeff").split("\n")
    title = _TITLE_VERSION.match(lines[0].rstrip("\r"))
    if title is None:
        raise _invalid(path, 1, f"the first line is not {_TITLE!r}")
    if title[1] != "1":
        raise _invalid(path, 1, f"this version of Rookery does not know its format {title[1]}", newer=True)
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r")
        if _CONFLICT.match(line):
            raise _invalid(path, number, "git left a conflict here: keep the lines of both sides")
        if not line or line.startswith("#"):
            continue
        try:
            name, kind, key, value = _parse_line(line)
            servers.setdefault(name, _ServerLines(name)).add(kind, key, value)
        except ValueError as error:
            raise _invalid(path, number, str(error)) from None
    return {name: lines.build() for name, lines in sorted(servers.items())}


def find_line(text: str, server: str, subject: str) -> int:
    """Return the number of the line on a subject of a server, of the first one on the server, or else 1."""
    first = 1
    for number, line in enumerate(text.split("\n"), 1):
        try:
            name, kind, key, _ = _parse_line(line)
        except ValueError:
            continue
        if name == server:
            first = number if first == 1 else first
            if subject in (" ".join(filter(None, (kind, key))), key):
                return number
    return first


def _parse_line(line: str) -> tuple[str, str, str, str]:
    """Return server, kind, key and value. Raise ValueError if it is no such line."""
    name, rest = _split_word(line)
    kind, rest = _split_word(rest)
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is no kind of line")
    key = ""
    if kind in _KEYED:
        key, rest = _split_word(rest)
    if not rest:
        raise ValueError("the line has no value")
    if kind in _FACTS:
        _check_json(rest)
    elif kind in _PINS:
        if not _DIGEST.match(rest):
            raise ValueError("the value is not sha256: and 64 hexadecimal digits")
    elif kind == "level":
        if rest not in get_args(ServerLevel):
            raise ValueError("the level is neither project nor user")
    else:
        _parse_word(rest)
        if key.partition(":")[0] not in get_args(Ecosystem):
            raise ValueError("the package is neither of npm: nor of pypi:")
    return name, kind, key, rest


def _split_word(text: str) -> tuple[str, str]:
    match = _WORD.match(text)
    if match is None:
        raise ValueError("a word is missing, or its quotes do not end")
    return _parse_word(match[1]), text[match.end() :]


def _parse_word(word: str) -> str:
    if not word.startswith('"'):
        if not _BARE.match(word):
            raise ValueError(f"the word {word!r} needs quotes")
        return word
    return _check_json(word)


def _check_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the value is no JSON") from None


def _invalid(path: str, line: int, reason: str, *, newer: bool = False) -> RookeryError:
    remedy = "use the version of Rookery that wrote it" if newer else "repair it, or write it again: rookery guard lock"
    return RookeryError("invalid-lock", f"{path}:{line}: {reason}", remedy)


def read_lock(directory: Path) -> tuple[str, dict[str, LockedServer]]:
    """Return the text of the file of a checkout and the servers in it; nothing if there is no file."""
    path = directory / LOCK_FILE
    try:
        text = read_beneath(directory, PurePath(LOCK_FILE), MAX_LOCK_BYTES).decode()
    except FileNotFoundError:
        return "", {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not in UTF-8"
        raise RookeryError("invalid-lock", f"{path} cannot be read: {reason}", "repair or remove it") from error
    return text, parse_lock(text, str(path))


def write_lock(directory: Path, text: str) -> None:
    """Write the file into the folder itself: a link in its place is replaced, not followed."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_beneath(folder, LOCK_FILE, text.encode(), replace=True)
    except OSError as error:
        # The name alone does not say which folder.
        raise explain_os_error(OSError(error.errno, error.strerror), directory / LOCK_FILE) or error from error
    finally:
        os.close(folder)
