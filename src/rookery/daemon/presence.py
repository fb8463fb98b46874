"""The files that make a running daemon unique and discoverable: lock, socket, daemon.json and the owner's token."""

import asyncio
import logging
import os
from collections.abc import Callable, Set
from pathlib import Path
from typing import Literal

import msgspec

from rookery.daemon.services.core import HttpService
from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.fs.atomic import UnreadableFile, read_json, read_secret, set_aside_unusable, write_secret
from rookery.system.fs.lock import FileLock
from rookery.system.fs.watch import watch_files
from rookery.system.ids import is_token, new_token
from rookery.system.process import table
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.daemon")

# A second start that is refused because this daemon runs holds the new lock file for a moment.
_LOCK_TRIES = 100
_PAUSE = 0.1


class Runtime(msgspec.Struct, frozen=True):
    """The content of `daemon.json`. `instance` is the nonce that `GET /api/health` returns too."""

    pid: int
    started: str
    url: str
    mcp_url: str
    socket: str
    token_file: str
    version: str
    instance: str
    auth: str = "token"


def load_owner_token(state: Path) -> tuple[str, str]:
    """Return the owner's token, made on the first start and kept, and a message about its file, if any.

    A file without a token of the right form and length is replaced: a token that others wrote there could be guessed.
    """
    path = paths.token_file(state)
    data = read_secret(path)
    text = data.decode("ascii", "replace").strip() if data is not None else ""
    if is_token(text):
        return text, ""
    token = new_token()
    write_secret(path, token.encode() + b"\n")
    if data is None:
        return token, ""
    return token, f"{path} held no valid token; a new one was created, and clients with another token need it"


def write_runtime(state: Path, runtime: Runtime) -> None:
    write_secret(paths.runtime_file(state), msgspec.json.format(msgspec.json.encode(runtime), indent=1) + b"\n")


def describe_running(state: Path, holder: str) -> RookeryError:
    """Return the error for the start of a second daemon."""
    try:
        runtime = read_json(paths.runtime_file(state), Runtime)
        running = f"pid {runtime.pid} at {runtime.url}, since {runtime.started}"
    except (FileNotFoundError, UnreadableFile):
        running = holder or "pid unknown"
    return RookeryError(
        "already-running",
        f"a daemon is already running on {state} ({running})",
        "stop it with `rookery down`, or set ROOKERY_HOME to run another one",
    )


def format_lock_note(phase: Literal["starting", "running", "stopping"]) -> str:
    """Return the text of the lock file; `rookery down` reads pid and phase from it if the socket cannot be reached."""
    return f"pid {os.getpid()} started {table.start_time(os.getpid())} {phase}"


class Presence:
    """Restores files of the daemon that are deleted while it runs.

    Calls `stop` if the state folder is gone, or belongs to another daemon.
    """

    def __init__(
        self, state: Path, lock: FileLock, http: HttpService, runtime: Runtime, stop: Callable[[str], None]
    ) -> None:
        self._state = state
        self._lock = lock
        self._http = http
        self._runtime = runtime
        self._stop = stop
        self._folder_id = _folder_identity(state)
        self._changed = asyncio.Event()
        self._tasks = TaskSet("presence")
        self._watch = watch_files(self._on_change)
        self._watch.watch(
            {
                paths.lock_file(state.resolve()),
                paths.runtime_file(state.resolve()),
                http.socket_file.parent.resolve() / http.socket_file.name,
            }
        )
        self._tasks.keep_running(self._run, "watch")
        # A file may have been deleted before the watch started.
        self._changed.set()

    async def close(self) -> None:
        self._watch.close()
        await self._tasks.close()

    def _on_change(self, files: Set[Path]) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            # Wait first: a process that deletes the whole folder must not find new files in it.
            await asyncio.sleep(_PAUSE)
            self._changed.clear()
            try:
                if reason := await self._restore():
                    self._stop(reason)
                    return
            except (RookeryError, OSError) as error:
                logger.error("clients may not find this daemon: %s", error)

    async def _restore(self) -> str | None:
        """Restore missing files; return why this daemon has to stop, None if it does not."""
        if _folder_identity(self._state) != self._folder_id:
            return f"its state folder {self._state} was deleted or replaced"
        if not self._lock.is_intact():
            set_aside_unusable(self._lock.path)
            if not await self._take_lock_again():
                return f"another daemon has taken {self._lock.path}"
            logger.warning("%s was deleted or replaced, and has been recreated", self._lock.path)
        if not self._http.has_socket():
            if self._http.socket_file.is_dir():
                set_aside_unusable(self._http.socket_file)
            await self._http.bind_socket_again()
            logger.warning("%s was deleted or replaced, and has been recreated", self._http.socket_file)
        if not self._runtime_is_written():
            set_aside_unusable(paths.runtime_file(self._state))
            write_runtime(self._state, self._runtime)
            logger.warning("%s was deleted or changed, and has been rewritten", paths.runtime_file(self._state))
        return None

    async def _take_lock_again(self) -> bool:
        for _ in range(_LOCK_TRIES):
            if self._lock.reacquire(format_lock_note("running")):
                return True
            await asyncio.sleep(_PAUSE)
        return False

    def _runtime_is_written(self) -> bool:
        try:
            return read_json(paths.runtime_file(self._state), Runtime) == self._runtime
        except (FileNotFoundError, UnreadableFile):
            return False


def _folder_identity(state: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(state)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
