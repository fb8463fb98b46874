"""The parts of a repository that take effect in OpenCode: config, plugins, tools, commands, agents.

OpenCode runs a repository's plugins when it starts, so they have to be approved before the first start with them. The
approval is for the hashes of all these files. Files that plugins load in turn are not followed, except those of the
config folder itself.
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

APPROVAL_KIND = "opencode-config"
CONFIG_FOLDER = ".opencode"
CONFIG_FILES = ("opencode.json", "opencode.jsonc")
MAX_FILES = 2_000
MAX_FILE_BYTES = 16 * 2**20
MAX_TOTAL_BYTES = 64 * 2**20
MAX_CONFIG_BYTES = 1_000_000

# OpenCode itself writes these when it starts; if they were part of the content, every start would change it.
_GENERATED_FILES = frozenset({".gitignore", "package-lock.json", "bun.lock", "bun.lockb"})
_GENERATED_PACKAGE = "@opencode-ai/plugin"
# OpenCode writes this at the beginning of a config that has no schema.
_GENERATED_HEAD = re.compile(rb'^\s*\{(\s*"\$schema": "https://opencode\.ai/config\.json",)?')
# A string may be a path, a shell command, or contain a reference to a file.
_PIECES = re.compile(r"""[^\s;|&()<>"'`=,{}]+""")
_PREFIXES = ("file://", "file:")
# Suffixes that the name of a module may lack.
_SUFFIXES = (".js", ".ts", ".mjs")

# Parses JSON with comments; raises ValueError if the text is not valid.
ParseJson = Callable[[str], Any]


class ProjectConfig(msgspec.Struct, frozen=True):
    """OpenCode's config in a checkout. `content` is the text for the user, `files` has the hashes of all files.

    With a `problem` the config cannot be approved, and has no effect.
    """

    content: str
    files: Mapping[str, str]
    problem: str = ""


def read_project_config(root: Path, parse_json: ParseJson) -> ProjectConfig | None:
    """Read the config of a checkout; None if nothing in it is for OpenCode. Call this right before each start."""
    collector = _ConfigCollector(root)
    try:
        for path in _config_files(root):
            collector.add_config(path, parse_json)
        for path in _files_in(root / CONFIG_FOLDER):
            collector.add(path)
    except RookeryError as error:
        return ProjectConfig("\n".join(collector.text_lines), collector.files, error.message)
    return ProjectConfig("\n".join(collector.text_lines), collector.files) if collector.files else None


def _config_files(root: Path) -> Iterator[Path]:
    for folder in (root, root / CONFIG_FOLDER):
        yield from (folder / name for name in CONFIG_FILES if os.path.lexists(folder / name))


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield all files in the config folder except installed packages. Links are followed, as in OpenCode."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        yield folder
        return
    for count, (parent, folders, names) in enumerate(os.walk(folder, followlinks=True, onerror=_raise_unreadable)):
        folders[:] = sorted(name for name in folders if name != "node_modules")
        if count > MAX_FILES:
            raise _unapprovable_error(f"{CONFIG_FOLDER} contains more than {MAX_FILES} folders")
        top = Path(parent) == folder
        yield from (Path(parent) / name for name in sorted(names) if not (top and name in _GENERATED_FILES))


class _ConfigCollector:
    """Collects the config files of a checkout, their hashes, and the text for the user."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real = os.path.realpath(root)
        self._total = 0
        self.files: dict[str, str] = {}
        self.text_lines: list[str] = []

    def add_config(self, path: Path, parse_json: ParseJson) -> None:
        """Add a config and the files of the checkout that it names, plugins and commands among them."""
        data = _GENERATED_HEAD.sub(b"{", self._read(path, MAX_CONFIG_BYTES), count=1)
        self._add_hash(path, data)
        try:
            text = data.decode()
            value = parse_json(text)
        except ValueError as error:
            raise _unapprovable_error(f"{self._name(path)} cannot be read: {error}") from error
        self.text_lines += [f"// {self._name(path)}", text.rstrip()]
        for word in dict.fromkeys(_strings_in(value)):
            for folder in (path.parent, self._root):
                self._add_named_file(folder, word)
        for plugin in _plugins_in(value):
            if (folder := path.parent / plugin).is_dir():
                for file in _files_in(folder):
                    self.add(file)

    def add(self, path: Path) -> None:
        if self._name(path) in self.files:
            return
        data = self._read(path, MAX_FILE_BYTES)
        if path == self._root / CONFIG_FOLDER / "package.json":
            data = _without_generated_package(data)
        if data:
            self._add_hash(path, data)

    def _add_named_file(self, folder: Path, word: str) -> None:
        """Add the file of the checkout that `word` names, if there is one."""
        for prefix in _PREFIXES:
            word = word.removeprefix(prefix)
        try:
            path = Path(os.path.normpath(folder / word))
            real = os.path.realpath(path)
            inside = path.is_relative_to(self._root) or Path(real).is_relative_to(self._real)
            if not inside:
                return
            for candidate in (path, *(path.with_name(path.name + ending) for ending in _SUFFIXES)):
                if candidate.is_file():
                    self.add(candidate)
        except (OSError, ValueError):
            return  # not a path

    def _add_hash(self, path: Path, data: bytes) -> None:
        self.files[self._name(path)] = hashlib.sha256(data).hexdigest()
        if len(self.files) > MAX_FILES:
            raise _unapprovable_error(f"OpenCode's config here consists of more than {MAX_FILES} files")

    def _name(self, path: Path) -> str:
        return str(PurePath(path).relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _read(self, path: Path, limit: int) -> bytes:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise _unapprovable_error(f"{self._name(path)} is not a plain file")
                data = file.read(limit + 1)
        except OSError as error:
            raise _unapprovable_error(f"{self._name(path)} cannot be read: {error.strerror}") from error
        self._total += len(data)
        if len(data) > limit or self._total > MAX_TOTAL_BYTES:
            raise _unapprovable_error(f"{self._name(path)} is too large to be checked")
        return data


def _strings_in(value: Any) -> Iterator[str]:
    """Yield all strings in a config and their pieces; keys count too, since some are file patterns."""
    if isinstance(value, str):
        yield value
        yield from _PIECES.findall(value)
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _strings_in(key)
            yield from _strings_in(item)
    elif isinstance(value, Sequence):
        for item in cast("Sequence[Any]", value):
            yield from _strings_in(item)


def _plugins_in(value: Any) -> Iterator[str]:
    """Yield the plugins that a config names, each a string or a list of a string and its options."""
    listed: Any = cast("dict[str, Any]", value).get("plugin") if isinstance(value, dict) else None
    for entry in cast("list[Any]", listed) if isinstance(listed, list) else []:
        spec: Any = cast("list[Any]", entry)[0] if isinstance(entry, list) and entry else cast("Any", entry)
        if isinstance(spec, str) and "\0" not in spec:
            yield spec.removeprefix("file://")


def _without_generated_package(data: bytes) -> bytes:
    """Return a package.json as the repository has it, without the package that OpenCode adds."""
    try:
        package: Any = json.loads(data)
        package.get("dependencies", {}).pop(_GENERATED_PACKAGE, None)
        remaining = {key: value for key, value in package.items() if value}
    except (ValueError, TypeError, AttributeError):
        return data
    return json.dumps(remaining, sort_keys=True).encode() if remaining else b""


def _raise_unreadable(error: OSError) -> None:
    raise _unapprovable_error(f"{error.filename} cannot be read: {error.strerror}")


def _unapprovable_error(why: str) -> RookeryError:
    return RookeryError("needs-approval", why)
