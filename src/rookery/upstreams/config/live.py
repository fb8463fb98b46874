"""The configuration of all directories in use, read again when a file changes.

If a file or an entry breaks, its last good state remains in use.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Set
from pathlib import Path

from rookery.system.fs.watch import file_signature, watch_files
from rookery.system.tasks import TaskSet
from rookery.upstreams.config.definition import ConfigProblem
from rookery.upstreams.config.dialects import ParsedFile
from rookery.upstreams.config.overrides import EntryOverride
from rookery.upstreams.config.sources import (
    ConfigFile,
    LoadedFile,
    ServerConfig,
    list_config_files,
    load_file,
    merge_files,
)

# Editors write in several steps; a read after each step would see half a file.
QUIET_SECONDS = 0.1
MAX_WAIT_SECONDS = 1.0


class LiveConfig:
    """The configuration of all directories in use.

    Placeholders are replaced from `environment`. `on_directories_changed` is called when the directories in use change.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.on_directories_changed: Callable[[], None] = lambda: None
        self._environment = environment
        self._files: dict[Path | None, list[ConfigFile]] = {}
        self._configs: dict[Path | None, ServerConfig] = {}
        self._loaded: dict[Path, LoadedFile] = {}
        self._watched_files: dict[Path, set[Path]] = {}
        self._signatures: dict[Path, object] = {}

    def get(self, directory: Path | None) -> ServerConfig:
        """Return the servers of a directory, or the app-wide ones for None. The files are read on first use."""
        directory = directory and directory.resolve()
        if directory not in self._configs:
            self._files[directory] = list_config_files(directory)
            for file in self._files[directory]:
                if file.path not in self._loaded:
                    self._store(load_file(file, self._environment))
            self._configs[directory] = self._merge(directory)
            self.on_directories_changed()
        return self._configs[directory]

    def forget(self, directory: Path) -> None:
        """Drop a directory that is no longer in use. Files that other directories use are kept."""
        directory = directory.resolve()
        self._configs.pop(directory, None)
        paths = {file.path for file in self._files.pop(directory, [])}
        for path in paths - {file.path for files in self._files.values() for file in files}:
            del self._loaded[path], self._watched_files[path]
        remaining = self.files()
        self._signatures = {path: signature for path, signature in self._signatures.items() if path in remaining}
        self.on_directories_changed()

    def files(self) -> set[Path]:
        """Return all files whose changes matter, including those that others name or link to."""
        return set[Path]().union(*self._watched_files.values())

    def changed_files(self, directory: Path | None) -> set[Path]:
        """Return the files of a directory that changed since they were read; none if it is not in use."""
        files = self._files.get(directory and directory.resolve(), [])
        concerned = set[Path]().union(*(self._watched_files[file.path] for file in files))
        return {path for path in concerned if file_signature(path) != self._signatures.get(path)}

    def refresh(self, files: Set[Path] | None = None) -> list[Path | None]:
        """Read these files again, or all, and return the directories whose configuration has changed."""
        stale = {path for path, concerned in self._watched_files.items() if files is None or files & concerned}
        for path in stale:
            self._store(keep_last_good(self._loaded[path], load_file(self._loaded[path].file, self._environment)))
        changed = list[Path | None]()
        for directory, before in list(self._configs.items()):
            if any(file.path in stale for file in self._files[directory]):
                self._configs[directory] = self._merge(directory)
                changed += [directory] if self._configs[directory] != before else []
        return changed

    def _store(self, loaded: LoadedFile) -> None:
        self._loaded[loaded.file.path] = loaded
        self._watched_files[loaded.file.path] = concerned = _files_to_watch(loaded)
        # The watcher of the files reports changes that happened before this.
        self._signatures |= {path: file_signature(path) for path in concerned}

    def _merge(self, directory: Path | None) -> ServerConfig:
        return merge_files(self._loaded[file.path] for file in self._files[directory])


def keep_last_good(old: LoadedFile, new: LoadedFile) -> LoadedFile:
    """Return the new content of a file, with the old content where the new one is broken."""
    if new.failure is not None:
        parsed = ParsedFile(
            old.parsed.definitions, old.parsed.overrides, old.parsed.failed, permissions=old.parsed.permissions
        )
        return LoadedFile(new.file, parsed, new.failure, old.named_files | new.named_files)
    for name in new.parsed.failed & (old.parsed.definitions.keys() | old.parsed.overrides.keys()):
        previous = old.parsed.overrides.get(name) or old.parsed.definitions[name]
        if isinstance(previous, EntryOverride):
            new.parsed.overrides[name] = previous
            continue
        new.parsed.definitions[name] = previous
        message = f'the server "{name}" keeps its previous definition'
        new.parsed.problems.append(
            ConfigProblem(previous.source.path, previous.source.line, message, "", name, note=True)
        )
    return new


def _files_to_watch(loaded: LoadedFile) -> set[Path]:
    """Return the files to watch for a loaded file. Of the user's links, both link and target are watched."""
    files = {loaded.file.path, *loaded.named_files}
    if loaded.file.root is not None:
        return files
    return {path for file in files for path in (file.parent.resolve() / file.name, file.resolve())}


ChangeCallback = Callable[[Path | None], None]


async def watch_config(configuration: LiveConfig, on_changed: ChangeCallback, *, quiet: float = QUIET_SECONDS) -> None:
    """Until cancelled, read files that change and call `on_changed` for each directory whose configuration changes.

    Directories that come into use later are watched from then on.
    """
    wake = asyncio.Event()
    touched = set[Path]()
    watched = set[Path]()

    def on_files_changed(files: Set[Path]) -> None:
        touched.update(files)
        wake.set()

    files = watch_files(on_files_changed)
    configuration.on_directories_changed = wake.set
    try:
        while True:
            current = configuration.files()
            files.watch(current)
            # New files may have changed after they were read and before they were watched.
            stale = touched | (current - watched)
            touched.clear()
            watched = current
            for directory in configuration.refresh(stale) if stale else []:
                on_changed(directory)
            if configuration.files() == current:
                await _wait_until_quiet(wake, quiet)
    finally:
        files.close()
        configuration.on_directories_changed = lambda: None


async def _wait_until_quiet(wake: asyncio.Event, quiet: float) -> None:
    """Wait until something happens, and then until nothing happens for `quiet` seconds."""
    await wake.wait()
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            while True:
                wake.clear()
                async with asyncio.timeout(quiet):
                    await wake.wait()
    except TimeoutError:
        wake.clear()


class ConfigWatcher:
    """Watches the files of all directories. `on_changed` is called for each directory whose configuration changes."""

    def __init__(self, on_changed: Callable[[Path | None], Awaitable[None]]) -> None:
        self._on_changed = on_changed
        self._configuration = LiveConfig(os.environ)
        self._tasks = TaskSet("following files")
        self._changes = TaskSet("changed files")

    def start(self) -> None:
        self._tasks.keep_running(lambda: watch_config(self._configuration, self._start_callback), "watch")

    async def close(self) -> None:
        await self._tasks.close()
        await self._changes.close()

    def read(self, directory: Path | None) -> ServerConfig:
        """Return the configuration of a directory. Its files are watched from now on."""
        return self._configuration.get(directory)

    def forget(self, directory: Path) -> None:
        """Drop a directory. Its files are read again on the next use."""
        self._configuration.forget(directory)

    async def read_again(self) -> None:
        """Read all files now, for a caller that has just written one and does not wait for the watcher."""
        await self._refresh(None)

    async def catch_up(self, directory: Path | None) -> None:
        """Read the changed files of one directory now."""
        await self._refresh(self._configuration.changed_files(directory))

    async def _refresh(self, files: Set[Path] | None) -> None:
        for directory in self._configuration.refresh(files):
            self._start_callback(directory)
        await self._changes.wait_all()

    def _start_callback(self, directory: Path | None) -> None:
        self._changes.start(self._run_callback(directory), "change")

    async def _run_callback(self, directory: Path | None) -> None:
        await self._on_changed(directory)
