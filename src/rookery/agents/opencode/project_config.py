"""What of a repository would take effect in OpenCode: its config, plugins, tools, commands and agents, as one content.

Starting an agent runs a repository's plugins at once, so nobody starts one with them before they have been approved.
Files that plugins load in turn are not followed, except those of the config folder itself.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec

from rookery.system.errors import RookeryError

KIND = "opencode-config"
FOLDER = ".opencode"
FILES = ("opencode.json", "opencode.jsonc")
MOST_FILES = 2_000
LARGEST_FILE = 16 * 2**20
LARGEST_SUM = 64 * 2**20
LARGEST_CONFIG = 1_000_000

# OpenCode itself writes these when it starts; were they part of the content, every start would change it.
_OPENCODES_OWN = frozenset({".gitignore", "package-lock.json", "bun.lock", "bun.lockb"})
_OWN_PACKAGE = "@opencode-ai/plugin"
# OpenCode writes this at the head of a config that has none.
_WRITTEN_IN = re.compile(rb'^\s*\{(\s*"\$schema": "https://opencode\.ai/config\.json",)?')
# A text may be a path, a line for a shell, or hold a reference to a file.
_PIECES = re.compile(r"""[^\s;|&()<>"'`=,{}]+""")
_PREFIXES = ("file://", "file:")
# What a name of a module may lack.
_ENDINGS = (".js", ".ts", ".mjs")

# Reads JSON with comments; a ValueError tells what is wrong with it.
ReadJson = Callable[[str], Any]


class ProjectConfig(msgspec.Struct, frozen=True):
    """`content` is what a person is shown: each config as it stands. `files` are the hashes of all that belongs to it.

    With a `problem` it cannot be approved, and stays without effect.
    """

    content: str
    files: Mapping[str, str]
    problem: str = ""


def project_config(root: Path, read: ReadJson) -> ProjectConfig | None:
    """Look at a checkout, anew each time; None if nothing in it is for OpenCode. Ask right before a start."""
    look = _Look(root)
    try:
        for path in _config_files(root):
            look.config(path, read)
        for path in _inside(root / FOLDER):
            look.add(path)
    except RookeryError as error:
        return ProjectConfig("\n".join(look.shown), look.files, error.message)
    return ProjectConfig("\n".join(look.shown), look.files) if look.files else None


def _config_files(root: Path) -> Iterator[Path]:
    for folder in (root, root / FOLDER):
        yield from (folder / name for name in FILES if os.path.lexists(folder / name))


def _inside(folder: Path) -> Iterator[Path]:
    """Everything in the config folder, links followed as OpenCode does; but no installed packages."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        yield folder
        return
    for seen, (where, folders, names) in enumerate(os.walk(folder, followlinks=True, onerror=_unreadable)):
        folders[:] = sorted(name for name in folders if name != "node_modules")
        if seen > MOST_FILES:
            raise _unapprovable(f"{FOLDER} holds more than {MOST_FILES} folders")
        top = Path(where) == folder
        yield from (Path(where) / name for name in sorted(names) if not (top and name in _OPENCODES_OWN))


class _Look:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._real = os.path.realpath(root)
        self._total = 0
        self.files: dict[str, str] = {}
        self.shown: list[str] = []

    def config(self, path: Path, read: ReadJson) -> None:
        """A config, and the files of the checkout that it names: its plugins and commands among them."""
        data = _WRITTEN_IN.sub(b"{", self._read(path, LARGEST_CONFIG), count=1)
        self._keep(path, data)
        try:
            text = data.decode()
            value = read(text)
        except ValueError as error:
            raise _unapprovable(f"{self._name(path)} cannot be read: {error}") from error
        self.shown += [f"// {self._name(path)}", text.rstrip()]
        for word in dict.fromkeys(_words(value)):
            for folder in (path.parent, self._root):
                self._named(folder, word)
        for plugin in _plugins(value):
            if (folder := path.parent / plugin).is_dir():
                for one in _inside(folder):
                    self.add(one)

    def add(self, path: Path) -> None:
        if self._name(path) in self.files:
            return
        data = self._read(path, LARGEST_FILE)
        if path == self._root / FOLDER / "package.json":
            data = _without_own_package(data)
        if data:
            self._keep(path, data)

    def _named(self, folder: Path, word: str) -> None:
        for prefix in _PREFIXES:
            word = word.removeprefix(prefix)
        try:
            path = Path(os.path.normpath(folder / word))
            real = os.path.realpath(path)
            inside = path.is_relative_to(self._root) or Path(real).is_relative_to(self._real)
            if not inside:
                return
            for one in (path, *(path.with_name(path.name + ending) for ending in _ENDINGS)):
                if one.is_file():
                    self.add(one)
        except (OSError, ValueError):
            return  # no path at all

    def _keep(self, path: Path, data: bytes) -> None:
        self.files[self._name(path)] = hashlib.sha256(data).hexdigest()
        if len(self.files) > MOST_FILES:
            raise _unapprovable(f"OpenCode's config here consists of more than {MOST_FILES} files")

    def _name(self, path: Path) -> str:
        return str(PurePath(path).relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _read(self, path: Path, limit: int) -> bytes:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise _unapprovable(f"{self._name(path)} is not a plain file")
                data = file.read(limit + 1)
        except OSError as error:
            raise _unapprovable(f"{self._name(path)} cannot be read: {error.strerror}") from error
        self._total += len(data)
        if len(data) > limit or self._total > LARGEST_SUM:
            raise _unapprovable(f"{self._name(path)} is too large to be looked at")
        return data


def _words(value: Any) -> Iterator[str]:
    """All texts in a config and their pieces; names count too, since some are patterns of files."""
    if isinstance(value, str):
        yield value
        yield from _PIECES.findall(value)
    elif isinstance(value, Mapping):
        for key, one in cast("Mapping[str, Any]", value).items():
            yield from _words(key)
            yield from _words(one)
    elif isinstance(value, Sequence):
        for one in cast("Sequence[Any]", value):
            yield from _words(one)


def _plugins(value: Any) -> Iterator[str]:
    """The plugins that a config names, each a text or a text with its options."""
    listed: Any = cast("dict[str, Any]", value).get("plugin") if isinstance(value, dict) else None
    for one in cast("list[Any]", listed) if isinstance(listed, list) else []:
        spec: Any = cast("list[Any]", one)[0] if isinstance(one, list) and one else cast("Any", one)
        if isinstance(spec, str) and "\0" not in spec:
            yield spec.removeprefix("file://")


def _without_own_package(data: bytes) -> bytes:
    """A package.json as the repository has it: OpenCode adds its own package to it."""
    try:
        found: Any = json.loads(data)
        found.get("dependencies", {}).pop(_OWN_PACKAGE, None)
        kept = {key: value for key, value in found.items() if value}
    except (ValueError, TypeError, AttributeError):
        return data
    return json.dumps(kept, sort_keys=True).encode() if kept else b""


def _unreadable(error: OSError) -> None:
    raise _unapprovable(f"{error.filename} cannot be read: {error.strerror}")


def _unapprovable(why: str) -> RookeryError:
    return RookeryError("needs-approval", why)
