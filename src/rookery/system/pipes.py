"""Our ends of a child's pipes, on the loop's own readiness calls.

Handing a file object to `connect_read_pipe` would close its descriptor twice on uvloop: once by libuv, and once more by
the object, when the number may be somebody else's already.
"""

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 65_536
_HIGH_WATER = 1_048_576


@runtime_checkable
class Feed(Protocol):
    """Where a reader's bytes go."""

    def data(self, data: bytes) -> None: ...

    def end(self) -> None:
        """Nothing more will come."""
        ...


class PipeReader:
    """Feeds what comes to `write`; `done` is set at the end of the stream."""

    def __init__(self, fd: int, write: Feed) -> None:
        self.done = asyncio.Event()
        self._fd = fd
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._reading = False
        os.set_blocking(fd, False)
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._reading and not self.done.is_set():
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        if not self.done.is_set():
            self.pause_reading()
            os.close(self._fd)
            self.done.set()
            self._write.end()

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._write.data(data)
        else:
            self.close()


class PipeWriter:
    """Writes without ever blocking the loop; `drain` waits while the other side does not read."""

    def __init__(self, fd: int) -> None:
        # Called when there is room again, or never will be.
        self.on_room: Callable[[], None] | None = None
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._watching = False
        self._room: asyncio.Future[None] | None = None
        self._closing = False
        self._closed = False
        os.set_blocking(fd, False)

    @property
    def full(self) -> bool:
        """Whether so much waits that no more should be written."""
        return len(self._waiting) > _HIGH_WATER

    @property
    def gone(self) -> bool:
        """Whether the other side has."""
        return self._closed and not self._closing

    def write(self, data: bytes) -> bool:
        """Whether nothing is left of it to be written later. ConnectionError if the other side has gone."""
        if self._closing or self._closed:
            raise ConnectionResetError("the pipe is closed")
        if not self._waiting:
            try:
                written = os.write(self._fd, data)
            except BlockingIOError:
                written = 0
            except OSError:
                self.abort()
                return False
            if written == len(data):
                return True
            data = data[written:]
        self._waiting += data
        if not self._watching:
            self._watching = True
            self._loop.add_writer(self._fd, self._writable)
        return False

    async def drain(self) -> None:
        while self.full:
            if self._room is None:
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        if self.gone:
            raise ConnectionResetError("the other side has gone")

    def close(self) -> None:
        """Close once what waits has been written."""
        self._closing = True
        if not self._waiting:
            self.abort()

    def abort(self) -> None:
        """Close now, whatever waits."""
        if not self._closed:
            self._closed = True
            self._stop_watching()
            os.close(self._fd)
        self._waiting.clear()
        self._wake()

    def _writable(self) -> None:
        try:
            written = os.write(self._fd, self._waiting)
        except BlockingIOError:
            return
        except OSError:
            self.abort()
            return
        del self._waiting[:written]
        if not self._waiting:
            self._stop_watching()
            if self._closing:
                self.abort()
        if not self.full:
            self._wake()

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self._fd)

    def _wake(self) -> None:
        if self._room is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                self._room.set_result(None)
            self._room = None
        if self.on_room is not None:
            self.on_room()


def pipe_for_child(theirs: contextlib.ExitStack, ours: list[int], *, reading: bool) -> tuple[int, int]:
    """A pipe of which the child reads (or writes) one end; its end is closed here once it has it."""
    ends = os.pipe()
    child_end, our_end = ends if reading else ends[::-1]
    theirs.callback(os.close, child_end)
    ours.append(our_end)
    return child_end, our_end
