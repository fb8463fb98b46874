"""Run a child on a pseudoterminal, which is its controlling terminal; closing our end hangs it up."""

import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.errors import RookeryError
from rookery.system.process.child import Child, PipeFeed, PipeReader, PipeWriter
from rookery.system.process.spawn import Spawner, WorksFor

# The first terminal that a session leader opens becomes its controlling terminal. A shell opens it: running code of our
# own between fork and exec is not safe in a process with threads.
_ON_TERMINAL = 'exec "$@" <>"$0" >&0 2>&0'


class Pty:
    """A pseudoterminal. `feed` receives the child's output. `close` closes both ends, once."""

    def __init__(self, columns: int, rows: int, feed: PipeFeed) -> None:
        with contextlib.ExitStack() as undo:
            try:
                # The child's end stays open here, so that its last output is not lost when it ends.
                self._parent_fd, self._child_fd = os.openpty()
                undo.callback(os.close, self._parent_fd)
                undo.callback(os.close, self._child_fd)
                self._name = os.ttyname(self._child_fd)
                self.resize(columns, rows)
                self._writer = PipeWriter(os.dup(self._parent_fd))
                undo.callback(self._writer.abort)
                self._reader = PipeReader(os.dup(self._parent_fd), feed)
            except OSError as error:
                message = f"cannot open a terminal: {error.strerror}"
                remedy = "close some terminals, or raise the limit of open files (ulimit -n)"
                raise RookeryError("spawn-failed", message, remedy) from error
            undo.pop_all()

    async def start(
        self,
        spawner: Spawner,
        argv: Sequence[str],
        *,
        name: str,
        cwd: Path,
        env: Mapping[str, str],
        works_for: WorksFor = None,
        confinement: ConfinementPolicy | None = None,
    ) -> Child:
        """Start `argv` on the terminal. The caller that stops the child also calls `close`.

        A confined program can open no other terminal.
        """
        on_terminal = ["/bin/sh", "-c", _ON_TERMINAL, self._name, *argv]
        if confinement is not None:
            confinement = replace(confinement, devices=(*confinement.devices, self._name))
        return await spawner.start(
            on_terminal, name=name, cwd=cwd, env=env, works_for=works_for, confinement=confinement
        )

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal. The kernel notifies the child."""
        fcntl.ioctl(self._parent_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, data: bytes) -> None:
        """Send input to the child. It is dropped if too much unread input is already waiting."""
        if not self._writer.is_full:
            with contextlib.suppress(ConnectionError):
                self._writer.write(data)

    def close(self) -> None:
        """Close both ends. Further calls do nothing."""
        self._reader.close()
        self._writer.abort()
        for end in (self._child_fd, self._parent_fd):
            if end >= 0:
                os.close(end)
        self._child_fd = self._parent_fd = -1
