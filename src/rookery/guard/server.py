"""The definition of an MCP server as a subject of approval: its content, and the files that it would run."""

import asyncio
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.guard.subject import Key, Subject
from rookery.system.errors import RookeryError

MAX_FILE_BYTES = 64 * 2**20
MAX_TOTAL_BYTES = 128 * 2**20
MAX_FILES = 200
MAX_WORDS = 2_000

# An argument is also split into pieces: it may be a command line for a shell, or an option with its value.
_PIECES = re.compile(r"""[^\s;|&()<>"'`=,]+""")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Where a runner looks for a word before it searches PATH.
_BINARIES = ("node_modules/.bin", ".venv/bin", "venv/bin")
_NODE = (".js", ".mjs", ".cjs", ".ts", ".json", "/package.json", "/index.js")
_PYTHON = (".py", "/__main__.py", "/__init__.py", "/pyproject.toml")
# What programs append to a word that names no file by itself.
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("node", "bun", "deno", "tsx", "ts-node"), _NODE),
    **dict.fromkeys(("python", "python3", "uv", "uvx", "pipx"), _PYTHON),
}
# Files that programs read without an argument.
_IMPLICIT_FILES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "deno": ("deno.json", "deno.jsonc"),
    "docker": ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
    "docker-compose": ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
}

KIND = "mcp-server"


def list_named_files(argv: Sequence[str], cwd: Path, root: Path, search: str = "") -> list[Path]:
    """Return the files inside `root` that `argv` names or would find in `cwd`; `search` is the child's PATH."""
    prefixes = (f"{os.path.normpath(root)}/", f"{os.path.realpath(root)}/")
    files: dict[str, Path] = {}
    for number, name in enumerate(_candidates(argv, search)):
        if number > MAX_WORDS:
            raise _unapprovable(f"its command has more than {MAX_WORDS} words")
        path = cwd / name
        try:
            real = os.path.realpath(path)
            named_inside = os.path.normpath(path).startswith(prefixes) or real.startswith(prefixes)
            if named_inside and not stat.S_ISDIR(path.stat().st_mode):
                files.setdefault(real, path)
                if len(files) > MAX_FILES:
                    raise _unapprovable(f"its command names more than {MAX_FILES} files")
        except (OSError, ValueError):
            continue  # the file does not exist, or the word is no path
    return list(files.values())


def _candidates(argv: Sequence[str], search: str) -> Iterator[str]:
    words = [piece for word in argv for piece in dict.fromkeys((word, *_PIECES.findall(word)))]
    programs = {word.rpartition("/")[2] for word in words}
    endings = dict.fromkeys(ending for program in programs for ending in _SUFFIXES.get(program, ()))
    if argv and "/" not in argv[0]:
        # An empty entry of PATH is the current folder.
        yield from (f"{folder or '.'}/{argv[0]}" for folder in search.split(":"))
    for program in programs:
        yield from _IMPLICIT_FILES.get(program, ())
    for word in words:
        yield from _paths_in(word)
        if "/" not in word:
            yield from (f"{folder}/{word}" for folder in _BINARIES)
        yield from (word.rstrip("/") + ending for ending in endings)
        if "." in word and _MODULE.fullmatch(word):
            yield from (word.replace(".", "/") + ending for ending in endings)


def _paths_in(word: str) -> Iterator[str]:
    yield word.removeprefix("file://").removeprefix("file:")
    # An option joined with its value, such as -r./hook.js.
    if word.startswith("-") and (match := re.search(r"[./]", word)):
        yield word[match.start() :]


def fingerprint_files(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the hash of each file, by its path relative to `root`. Raise if a file cannot be hashed."""
    digests: dict[str, str] = {}
    total = 0
    for path in paths:
        name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise _unapprovable(f"{name} is not a regular file")
                hashed = hashlib.sha256()
                size = 0
                while data := file.read(2**20):
                    hashed.update(data)
                    size = size + len(data)
                    total = total + len(data)
                    if size > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES:
                        raise _unapprovable(f"{name} is too large to be checked")
                digests[name] = hashed.hexdigest()
        except OSError as error:
            raise _unapprovable(f"{name} cannot be read: {error.strerror}") from error
    return digests


def _unapprovable(why: str) -> RookeryError:
    return RookeryError("needs-approval", why)


class ServerDefinition(msgspec.Struct):
    """A definition split into fields for display, independent of its config dialect; `other` is the rest."""

    command: list[str]
    url: str
    cwd: str
    environment: dict[str, Any]
    headers: dict[str, Any]
    other: dict[str, Any]


async def server_subject(
    *,
    name: str,
    kind: str,
    entry: Mapping[str, Any],
    place: Path,
    checkout: Path,
    command: Sequence[str] = (),
    cwd: str | None = None,
    search: str = "",
    source: str = "",
) -> Subject:
    """Return the subject for a definition in `checkout`, with `command`, `cwd` and `search` (its PATH) as used.

    The files are read anew each time, because callers ask right before they start a server.
    """
    root = checkout.resolve()
    real_place = place.resolve()
    folder = root / (cwd or "")

    def fingerprint() -> dict[str, str]:
        bases = dict.fromkeys((root, real_place))
        return fingerprint_files(
            {path: None for base in bases for path in list_named_files(command, folder, base, search)}, root
        )

    files: dict[str, str] = {}
    problem = ""
    try:
        files = await asyncio.to_thread(fingerprint)
    except RookeryError as error:
        problem = error.message
    runs_in = os.path.normpath(folder) if kind == "local" else ""
    return Subject(KIND, str(real_place), name, definition_content(kind, entry), files, source, problem, runs_in)


def server_key(name: str, place: Path) -> Key:
    return Key(KIND, str(place.resolve()), name)


def definition_content(kind: str, entry: Mapping[str, Any]) -> str:
    """Return the content of a definition that is displayed and approved."""
    content = json.dumps({"kind": kind, "entry": entry}, indent=2, ensure_ascii=False)
    # A lone surrogate cannot be stored as text; as an escape it is the same JSON.
    return content.encode("utf-8", "backslashreplace").decode()


def read_definition(content: str) -> ServerDefinition:
    """Parse the content of a definition."""
    other = dict(cast(Mapping[str, Any], json.loads(content)["entry"]))
    command = _words(other.pop("command", [])) + _words(other.pop("args", []))
    environment = _pop_mapping(other, "environment") | _pop_mapping(other, "env")
    url = str(other.pop("url", ""))
    cwd = str(other.pop("cwd", "") or "")
    return ServerDefinition(command, url, cwd, environment, _pop_mapping(other, "headers"), other)


def _words(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(word) for word in cast(list[Any], value)]
    return [str(value)]


def _pop_mapping(other: dict[str, Any], key: str) -> dict[str, Any]:
    """Remove and return a mapping; a value of another type stays among the rest, and is displayed there."""
    return cast(dict[str, Any], other.pop(key)) if isinstance(other.get(key), dict) else {}
