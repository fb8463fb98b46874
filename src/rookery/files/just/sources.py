"""The files that just reads in a workspace: its justfile, imports, modules and environment files.

just follows links and paths wherever they lead, and quotes their content in its messages. So each file is opened
beneath the root of the workspace, and files outside of it are refused. just reads a justfile from a copy of these
files, in a folder that no workspace can reach. Recipes run in the workspace itself; there the files are checked again
when just prints for the first time, since by then it has read all of them. Files that were swapped out and back until
then are detected by the system's change notifications (`SourceWatch`).
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rookery.system.errors import RookeryError
from rookery.system.fs import beneath
from rookery.system.fs.beneath import OPEN_FILE, OPEN_FOLDER, Beneath
from rookery.system.fs.watch import TreeWatch, WatchLimitReached
from rookery.system.text import escape_invisible

JUSTFILE_NAMES = ("justfile", ".justfile")
# File timestamps have the resolution of a kernel tick: a second change within this time may go unnoticed.
TICK_SECONDS = 0.02

_MAX_FILES = 200
_MAX_FILE_BYTES = 1_000_000
# A statement begins a line; its words are separated by blanks, or a backslash at the end of a line.
_GAP = r"(?:[ \t]|\\\r?\n)*"
_NAME = r"[A-Za-z_][\w-]*"
_STATEMENT = re.compile(
    rf"^\ufeff?(?:import(?![\w-]){_GAP}\??|mod(?![\w-]){_GAP}\??{_GAP}(?P<module>{_NAME})){_GAP}", re.MULTILINE
)
_QUOTED = re.compile(rf"(?P<expands>x?){_GAP}(?P<quote>'''|\"\"\"|'|\")(?P<text>.*?)(?P=quote)", re.DOTALL)


class FileStamp(NamedTuple):
    """Changes when a file is written, replaced or renamed; a process that does so cannot restore these values."""

    device: int
    inode: int
    changed_ns: int


@dataclass
class JustSources:
    """The files of a justfile. `files` maps paths from the root to content; links inside the workspace are followed."""

    root: Path
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _entries: dict[str, FileStamp | None] = field(default_factory=dict[str, FileStamp | None])
    _folders: dict[str, FileStamp | None] = field(default_factory=dict[str, FileStamp | None])

    def copy_to(self, folder: Path) -> None:
        """Write the justfile and all its imports to a folder."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def has_changed_within(self, seconds: float, now: float) -> bool:
        """Return whether a file changed so shortly before `now` that another change might go unnoticed."""
        ages = [now - stamp.changed_ns / 1e9 for stamp in self._entries.values() if stamp is not None]
        return any(0 <= age < seconds for age in ages)

    def is_unchanged(self, *, folders: bool) -> bool:
        """Return whether all files read are as they were; with `folders`, also the content of their folders."""
        if any(_read_stamp(self.root / name) != stamp for name, stamp in self._entries.items()):
            return False
        stamps = [(_read_stamp(self.root / name), stamp) for name, stamp in self._folders.items()]
        if folders:
            return all(stamp == before for stamp, before in stamps)
        return all((stamp and stamp[:2]) == (before and before[:2]) for stamp, before in stamps)

    def paths(self) -> Iterator[Path]:
        """Yield each path that led to a file, including those of folders and links in between."""
        return (self.root / name for name in (*self._entries, *self._folders))

    def record(self, names: tuple[str, ...]) -> None:
        """Record the state of a path, unless it is recorded: the file or link itself, and its folders."""
        for end in range(len(names)):
            part = "/".join(names[:end])
            stamp = _read_stamp(self.root / part)
            is_link = (self.root / part).is_symlink()
            (self._entries if is_link and part else self._folders).setdefault(part, stamp)
        self._entries.setdefault("/".join(names), _read_stamp(self.root / "/".join(names)))

    def record_open(self, names: tuple[str, ...], handle: int) -> None:
        """Record the state of an open file, and of its path."""
        self._entries.setdefault("/".join(names), _make_stamp(os.fstat(handle)))
        self.record(names)


class SourceWatch:
    """Detects each change of these files and of all folders in their paths, even if it is undone at once.

    The first check runs after the watches are set: a just that starts afterwards misses no change. Raises `OSError` if
    the system does not notify of changes.
    """

    def __init__(self, sources: JustSources) -> None:
        self._names: dict[str, set[bytes]] = {}
        for path in sources.paths():
            # Also the folders above the workspace: all of it may be swapped.
            for part in (path, *path.parents):
                if part.name:
                    self._names.setdefault(str(part.parent), set()).add(os.fsencode(part.name))
        self._changed = False
        self._watch = TreeWatch(self._on_change)
        try:
            for folder in self._names:
                self._watch.add(folder, os.fsencode(folder))
        except WatchLimitReached:
            self.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        self._changed = not sources.is_unchanged(folders=False)

    def has_changed(self) -> bool:
        """Return whether anything has happened to these files so far."""
        self._watch.process_pending()
        return self._changed

    def close(self) -> None:
        self._watch.close()

    def _on_change(self, folder: str, name: bytes, folders: bool) -> None:
        # Without a name, the folder itself was removed or moved, or events were lost.
        self._changed = self._changed or not name or name in self._names[folder]


def read_sources(root: Path) -> JustSources:
    """Read the justfile of a workspace and all its imports; raise `RookeryError` for paths that lead out."""
    name = find_justfile_name(root)
    if name is None:
        raise RookeryError("task-not-found", f"there is no justfile in {root}", "create one with recipes")
    with _SourceReader(root) as reader:
        reader.follow(name)
        return reader.sources


def add_environment_files(sources: JustSources, dump: Mapping[str, Any], snapshot: Path) -> bool:
    """Record the environment files that just would load for a justfile; return whether there are any.

    `dump` is just's dump of the copy in `snapshot`. just would also search above the root: files there do not count,
    and the justfile is refused if only some of the modules find a file inside.
    """
    results: list[bool] = []
    with _SourceReader(sources.root, sources) as reader:
        for settings, folder in _walk_modules(dump, snapshot):
            if any(settings.get(f"dotenv_{key}") for key in ("load", "filename", "path", "required")):
                results.append(reader.find_environment_file(settings, folder))
    if any(results) and not all(results):
        message = "modules of the justfile load environment files from inside the workspace and from above it"
        raise RookeryError(
            "path-outside-root", message, "put an environment file in the workspace for each module that loads one"
        )
    return any(results)


def find_justfile_name(root: Path) -> str | None:
    """Return the name of the justfile in a folder, by the names that just accepts, in any case."""
    try:
        with os.scandir(root) as entries:
            names = sorted(
                entry.name for entry in entries if entry.name.casefold() in JUSTFILE_NAMES and entry.is_file()
            )
    except OSError as error:
        raise RookeryError("workspace-not-found", f"cannot read the folder {root}: {error.strerror}") from error
    if len(names) > 1:
        raise RookeryError("invalid-input", f"there are several justfiles: {', '.join(names)}", "keep one of them")
    return names[0] if names else None


class _SourceReader:
    """Reads files beneath the root of a workspace and records their state."""

    def __init__(self, root: Path, sources: JustSources | None = None) -> None:
        self.sources = sources or JustSources(root)
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._beneath = Beneath(self._fd, beneath.has_openat2())

    def __enter__(self) -> "_SourceReader":
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self._fd)

    def follow(self, first: str) -> None:
        """Read a file and all its imports, by their paths from the root."""
        pending = [first]
        while pending:
            name = pending.pop()
            data = self._read(name) if name not in self.sources.files else None
            if data is None:
                continue
            self.sources.files[name] = data
            if len(self.sources.files) > _MAX_FILES:
                raise RookeryError("invalid-input", f"the justfile imports more than {_MAX_FILES} files")
            for statement in _find_statements(data.decode("utf-8", "replace")):
                pending += self._referenced_files(statement, name)

    def find_environment_file(self, settings: Mapping[str, Any], folder: str) -> bool:
        """Record the file that a module would load; return whether it is in the workspace."""
        if path := settings.get("dotenv_path"):
            name = _resolve_inside(_require_text(path), folder)
            return self._read(name) is not None
        wanted = _require_text(settings.get("dotenv_filename") or ".env")
        while True:
            if self._read(_resolve_inside(wanted, folder)) is not None:
                return True
            if not folder:
                return False
            folder = os.path.dirname(folder)  # noqa: PTH120 - names, not paths of this machine

    def _referenced_files(self, statement: "_Statement", name: str) -> Iterator[str]:
        """Yield the files that a statement in the file `name` may refer to."""
        folder = os.path.dirname(name)  # noqa: PTH120
        if statement.path is not None:
            path = _resolve_inside(statement.path, folder)
            yield path
            if statement.module:
                yield from self._module_files(path)
        elif statement.module:
            yield _resolve_inside(f"{statement.module}.just", folder)
            yield from self._module_files(_resolve_inside(statement.module, folder))

    def _module_files(self, folder: str) -> Iterator[str]:
        """Yield the files that just accepts as a module in its folder."""
        yield f"{folder}/mod.just"
        try:
            opened = self._beneath.open(_split_names(folder), OPEN_FOLDER)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _outside_error(folder) from None
            return
        try:
            with os.scandir(opened.handle) as entries:
                yield from sorted(
                    f"{folder}/{entry.name}" for entry in entries if entry.name.casefold() in JUSTFILE_NAMES
                )
        finally:
            os.close(opened.handle)

    def _read(self, name: str) -> bytes | None:
        """Return the content of a file beneath the root; None if there is no such file."""
        names = _split_names(name)
        self.sources.record(names)
        try:
            opened = self._beneath.open(names, OPEN_FILE)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _outside_error(name) from None
            return None  # just reports that it is missing or cannot be read
        self.sources.record_open(opened.names, opened.handle)
        mode = os.fstat(opened.handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(opened.handle)
            if stat.S_ISDIR(mode):
                return None
            raise _not_plain_error(name)
        with os.fdopen(opened.handle, "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise _not_plain_error(name)
        return data


class _Statement(NamedTuple):
    """An import or module statement. An import has no `module`; a module may have no `path`."""

    module: str | None
    path: str | None


def _find_statements(text: str) -> Iterator[_Statement]:
    """Yield the imports and modules that a justfile may name. Text that only looks like one does no harm."""
    for match in _STATEMENT.finditer(text):
        quoted = _QUOTED.match(text, match.end())
        path = _read_plain_path(quoted) if quoted else None
        if match["module"] or path is not None:
            yield _Statement(match["module"], path)


def _read_plain_path(quoted: re.Match[str]) -> str:
    """Return a quoted path; raise if just would expand or unescape it."""
    text = quoted["text"]
    quote = quoted["quote"]
    if len(quote) == 3:
        text = text.strip()
    expands = bool(quoted["expands"]) and ("$" in text or "~" in text)
    if expands or "\n" in text or "\0" in text or ("\\" in text and quote.startswith('"')):
        message = f"the justfile imports a path that is not a plain string: {escape_invisible(text)}"
        raise RookeryError(
            "invalid-input", message, "write it relative to the importing file, without escapes and variables"
        )
    return text


def _resolve_inside(path: str, folder: str) -> str:
    """Return the path from the root that just would resolve a path to; raise if it leads out."""
    name = os.path.normpath(os.path.join(folder, path))  # noqa: PTH118 - names, not paths of this machine
    if path.startswith(("/", "~")) or name == ".." or name.startswith("../"):
        raise _outside_error(path)
    return name


def _walk_modules(dump: Mapping[str, Any], snapshot: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the settings of each module, and its folder from the root."""
    folder = os.path.relpath(os.path.dirname(str(dump.get("source", ""))), snapshot)  # noqa: PTH120
    yield dump["settings"], "" if folder == "." else folder
    for module in dump["modules"].values():
        yield from _walk_modules(module, snapshot)


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        message = "the environment files of the justfile cannot be checked"
        raise RookeryError("invalid-input", message, "set dotenv-path or dotenv-filename to one plain string")
    return value


def _split_names(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _read_stamp(path: Path) -> FileStamp | None:
    try:
        file_stat = path.lstat()
    except OSError:
        return None
    return _make_stamp(file_stat)


def _make_stamp(stat_result: os.stat_result) -> FileStamp:
    return FileStamp(stat_result.st_dev, stat_result.st_ino, stat_result.st_ctime_ns)


def _outside_error(name: str) -> RookeryError:
    message = f"the justfile, or a file that it imports or loads, is outside the workspace: {escape_invisible(name)}"
    return RookeryError("path-outside-root", message, "use relative paths, and links that stay inside the workspace")


def _not_plain_error(name: str) -> RookeryError:
    message = f"{escape_invisible(name)} is not a regular file of at most {_MAX_FILE_BYTES} bytes"
    return RookeryError("invalid-input", message, "use another file in the justfile")
