"""A child on a terminal of ours, as its controlling one: when our end is gone, however that came, it is hung up."""

import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from rookery.system.child import Child
from rookery.system.errors import RookeryError
from rookery.system.pipes import Feed, PipeReader, PipeWriter
from rookery.system.spawn import Spawner

# The leader of a session has the first terminal that it opens. Doing that in our own process, between fork and exec,
# would not be safe beside threads.
_ON_TERMINAL = 'exec "$@" <>"$0" >&0 2>&0'


class Pty:
    """`feed` is given what the child draws. Each end is closed once: by `close`."""

    def __init__(self, columns: int, rows: int, feed: Feed) -> None:
        with contextlib.ExitStack() as undo:
            try:
                # Theirs is kept open, so that what was drawn last is not lost with the child.
                self._ours, self._theirs = os.openpty()
                undo.callback(os.close, self._ours)
                undo.callback(os.close, self._theirs)
                self._name = os.ttyname(self._theirs)
                self.resize(columns, rows)
                self._writer = PipeWriter(os.dup(self._ours))
                undo.callback(self._writer.abort)
                self._reader = PipeReader(os.dup(self._ours), feed)
            except OSError as error:
                message = f"the system gives no terminal: {error.strerror}"
                remedy = "close some, or raise how many files may be open"
                raise RookeryError("spawn-failed", message, remedy) from error
            undo.pop_all()

    async def start(
        self, spawner: Spawner, argv: Sequence[str], *, name: str, cwd: Path, env: Mapping[str, str]
    ) -> Child:
        """Start `argv` on it. Whoever stops the child closes this too."""
        return await spawner.start(["/bin/sh", "-c", _ON_TERMINAL, self._name, *argv], name=name, cwd=cwd, env=env)

    def resize(self, columns: int, rows: int) -> None:
        """The kernel tells the child."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, data: bytes) -> None:
        """Type this. What a child does not read is dropped when too much of it waits."""
        if not self._writer.full:
            with contextlib.suppress(ConnectionError):
                self._writer.write(data)

    def close(self) -> None:
        """May be called more than once."""
        self._reader.close()
        self._writer.abort()
        for end in (self._theirs, self._ours):
            if end >= 0:
                os.close(end)
        self._theirs = self._ours = -1
