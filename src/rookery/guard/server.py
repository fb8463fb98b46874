"""Which files of a checkout a command names, and what is in them.

A command that was approved must not run something else because a script that it names was swapped. What such a script
loads in turn is not followed. Programs outside the checkout are the user's own.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rookery.system.errors import RookeryError

LARGEST_FILE = 64 * 2**20
LARGEST_SUM = 128 * 2**20
MOST_FILES = 200
MOST_WORDS = 2_000

# An argument is also looked at in pieces: it may be a line for a shell, or an option with its value.
_PIECES = re.compile(r"""[^\s;|&()<>"'`=,]+""")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Where a runner looks for a word before it looks on PATH.
_BINARIES = ("node_modules/.bin", ".venv/bin", "venv/bin")
_NODE = (".js", ".mjs", ".cjs", ".ts", ".json", "/package.json", "/index.js")
_PYTHON = (".py", "/__main__.py", "/__init__.py", "/pyproject.toml")
# What programs make of a word that names no file by itself.
_ENDINGS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("node", "bun", "deno", "tsx", "ts-node"), _NODE),
    **dict.fromkeys(("python", "python3", "uv", "uvx", "pipx"), _PYTHON),
}
# What programs read without being told.
_PLANS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "deno": ("deno.json", "deno.jsonc"),
    "docker": ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
    "docker-compose": ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
}


def files_named(argv: Sequence[str], cwd: Path, root: Path, search: str = "") -> list[Path]:
    """The files that exist inside `root` and that `argv` names or would find in `cwd`; `search` is the child's PATH."""
    inside = (f"{os.path.normpath(root)}/", f"{os.path.realpath(root)}/")
    found: dict[str, Path] = {}
    for number, name in enumerate(_candidates(argv, search)):
        if number > MOST_WORDS:
            raise _unapprovable(f"its command names more than {MOST_WORDS} things")
        path = cwd / name
        try:
            real = os.path.realpath(path)
            named_inside = os.path.normpath(path).startswith(inside) or real.startswith(inside)
            if named_inside and not stat.S_ISDIR(path.stat().st_mode):
                found.setdefault(real, path)
                if len(found) > MOST_FILES:
                    raise _unapprovable(f"its command names more than {MOST_FILES} files")
        except (OSError, ValueError):
            continue  # it is not there, or no path at all
    return list(found.values())


def _candidates(argv: Sequence[str], search: str) -> Iterator[str]:
    words = [piece for word in argv for piece in dict.fromkeys((word, *_PIECES.findall(word)))]
    programs = {word.rpartition("/")[2] for word in words}
    endings = dict.fromkeys(ending for program in programs for ending in _ENDINGS.get(program, ()))
    if argv and "/" not in argv[0]:
        # Nothing before a colon is the current folder.
        yield from (f"{folder or '.'}/{argv[0]}" for folder in search.split(":"))
    for program in programs:
        yield from _PLANS.get(program, ())
    for word in words:
        yield from _paths_in(word)
        if "/" not in word:
            yield from (f"{folder}/{word}" for folder in _BINARIES)
        yield from (word.rstrip("/") + ending for ending in endings)
        if "." in word and _MODULE.fullmatch(word):
            yield from (word.replace(".", "/") + ending for ending in endings)


def _paths_in(word: str) -> Iterator[str]:
    yield word.removeprefix("file://").removeprefix("file:")
    # An option and its value in one, such as -r./hook.js.
    if word.startswith("-") and (found := re.search(r"[./]", word)):
        yield word[found.start() :]


def fingerprints(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """The hash of each file, by its path from `root`. What cannot be hashed cannot be approved."""
    found: dict[str, str] = {}
    total = 0
    for path in paths:
        name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise _unapprovable(f"{name} is not a plain file")
                hashed = hashlib.sha256()
                size = 0
                while data := file.read(2**20):
                    hashed.update(data)
                    size, total = size + len(data), total + len(data)
                    if size > LARGEST_FILE or total > LARGEST_SUM:
                        raise _unapprovable(f"{name} is too large to be looked at")
                found[name] = hashed.hexdigest()
        except OSError as error:
            raise _unapprovable(f"{name} cannot be read: {error.strerror}") from error
    return found


def _unapprovable(why: str) -> RookeryError:
    return RookeryError("needs-approval", why)
