"""What an agent prints: kept in a file that does not grow without end, with its last lines at hand."""

import asyncio
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from rookery.system.buffers import Ring
from rookery.system.files import move_aside

logger = logging.getLogger("rookery.agents")
_LARGEST = 2_000_000
_LAST_BYTES = 8_192
_LONGEST_LINE = 65_536
_APART_SECONDS = 0.1
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_GUARDED = b"rookery: the repository's own OpenCode config is kept off"
_LISTENING = re.compile(rb"^opencode server listening on http://127\.0\.0\.1:(\d+)\s*$")


class AgentLog:
    """A sink. When the file is full it becomes the older one, `<name>.1`, of which there is one.

    Agents print much, in little pieces: those that come right behind another are written together, a little later.
    """

    def __init__(self, path: Path, largest: int = _LARGEST) -> None:
        self.path = path
        self._largest = largest
        self._last = Ring(_LAST_BYTES)
        self._broken = False
        self._waiting: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def older(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    def write(self, data: bytes) -> None:
        self._last.write(data)
        self._waiting.append(data)
        if self._timer is None:
            self._write()

    def flush(self) -> None:
        """Nothing waits any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._keep()

    def _write(self) -> None:
        self._timer = None
        if self._waiting:
            self._keep()
            self._timer = asyncio.get_running_loop().call_later(_APART_SECONDS, self._write)

    def _keep(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        try:
            size = self._size()
            if size and size + len(data) > self._largest:
                move_aside(self.path, self.older)
            with os.fdopen(os.open(self.path, _APPEND, 0o600), "ab") as file:
                file.write(data)
            self._broken = False
        except OSError as error:
            # The agent must not stop for want of a log.
            if not self._broken:
                logger.error("cannot keep what the agent prints in %s: %s", self.path, error)
            self._broken = True

    def _size(self) -> int:
        """Its folder is looked at only where the file is missing."""
        try:
            return os.lstat(self.path).st_size
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return 0

    def last_lines(self, count: int = 12) -> str:
        text = bytes(self._last).decode("utf-8", "replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-count:])


class Announcement:
    """A sink that looks for the line with which OpenCode says where it listens, and passes everything on.

    `guarded` tells whether our guard has said that it is there; it does so before all else.
    """

    def __init__(self, log: AgentLog, listens: Callable[[int], None]) -> None:
        self.guarded = False
        self._log = log
        self._listens = listens
        self._line = b""
        self._found = False

    def write(self, data: bytes) -> None:
        self._log.write(data)
        if self._found:
            return
        *lines, self._line = (self._line + data)[-_LONGEST_LINE:].split(b"\n")
        for line in lines:
            self.guarded = self.guarded or line == _GUARDED
            if not self._found and (found := _LISTENING.match(line)):
                self._found = True
                self._listens(int(found[1]))
