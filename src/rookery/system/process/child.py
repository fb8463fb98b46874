"""One child process: its pipes, its bounded output, and the steps that stop it reliably.

The pipes use the readiness calls of the loop. A file object given to `connect_read_pipe` would have its descriptor
closed twice on uvloop: by libuv, and again by the object, when the number may belong to another file.
"""

import asyncio
import contextlib
import functools
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast, runtime_checkable

import psutil

from rookery.system.process import table
from rookery.system.tasks import TaskSet

if TYPE_CHECKING:
    import subprocess


_CHUNK = 65_536
_HIGH_WATER = 1_048_576

logger = logging.getLogger("rookery.spawn")

T = TypeVar("T")


@runtime_checkable
class PipeFeed(Protocol):
    """Receives the bytes that a `PipeReader` reads."""

    def data(self, data: bytes) -> None: ...

    def end(self) -> None:
        """Handle the end of the stream."""
        ...


class PipeReader:
    """Reads a pipe and passes the data to `feed`; `done` is set at the end of the stream."""

    def __init__(self, fd: int, feed: PipeFeed) -> None:
        self.done = asyncio.Event()
        self._fd = fd
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._reading = False
        os.set_blocking(fd, False)
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._reading and not self.done.is_set():
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        if not self.done.is_set():
            self.pause_reading()
            os.close(self._fd)
            self.done.set()
            self._feed.end()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._feed.data(data)
        else:
            self.close()


class PipeWriter:
    """Writes to a pipe without ever blocking the loop; `drain` waits while the other side does not read."""

    def __init__(self, fd: int) -> None:
        # Called when the buffer has room again, or the pipe is closed.
        self.on_writable: Callable[[], None] | None = None
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._watching = False
        self._drained: asyncio.Future[None] | None = None
        self._closing = False
        self._closed = False
        os.set_blocking(fd, False)

    @property
    def is_full(self) -> bool:
        """Whether more data is waiting than should be: write no more until `drain` returns."""
        return len(self._buffer) > _HIGH_WATER

    @property
    def is_broken(self) -> bool:
        """Whether the other side has closed the pipe."""
        return self._closed and not self._closing

    def write(self, data: bytes) -> bool:
        """Write data, now or later; return whether all is written. Raise ConnectionError if the pipe is closed."""
        if self._closing or self._closed:
            raise ConnectionResetError("the pipe is closed")
        if not self._buffer:
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
        self._buffer += data
        if not self._watching:
            self._watching = True
            self._loop.add_writer(self._fd, self._on_writable)
        return False

    async def drain(self) -> None:
        """Wait until the buffer has room; raise ConnectionError if the other side has closed the pipe."""
        while self.is_full:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        if self.is_broken:
            raise ConnectionResetError("the other side has closed the pipe")

    def close(self) -> None:
        """Close the pipe once the waiting data is written."""
        self._closing = True
        if not self._buffer:
            self.abort()

    def abort(self) -> None:
        """Close the pipe now and drop the waiting data."""
        if not self._closed:
            self._closed = True
            self._stop_watching()
            os.close(self._fd)
        self._buffer.clear()
        self._wake()

    def _on_writable(self) -> None:
        try:
            written = os.write(self._fd, self._buffer)
        except BlockingIOError:
            return
        except OSError:
            self.abort()
            return
        del self._buffer[:written]
        if not self._buffer:
            self._stop_watching()
            if self._closing:
                self.abort()
        if not self.is_full:
            self._wake()

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self._fd)

    def _wake(self) -> None:
        if self._drained is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                self._drained.set_result(None)
            self._drained = None
        if self.on_writable is not None:
            self.on_writable()


def make_child_pipe(child_ends: contextlib.ExitStack, our_ends: list[int], *, reading: bool) -> tuple[int, int]:
    """Create a pipe for a child that reads (or writes) one end; `child_ends` closes that end in this process."""
    ends = os.pipe()
    child_end, our_end = ends if reading else ends[::-1]
    child_ends.callback(os.close, child_end)
    our_ends.append(our_end)
    return child_end, our_end


class OutputSink(Protocol):
    """Receives a child's output as it arrives."""

    def write(self, data: bytes) -> None: ...


@dataclass
class HeadBuffer:
    """Keeps the first `limit` bytes of an output; `cut` counts the rest."""

    limit: int = 10_000_000
    data: bytearray = field(default_factory=bytearray)
    cut: int = 0

    def write(self, data: bytes) -> None:
        free = max(self.limit - len(self.data), 0)
        self.data += data[:free]
        self.cut += max(len(data) - free, 0)


class TailBuffer:
    """Keeps about the last `limit` bytes of an output; `dropped` counts the rest."""

    def __init__(self, limit: int = 65_536) -> None:
        self.limit = limit
        self.dropped = 0
        self._parts: deque[bytes] = deque()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        while self._size > self.limit:
            first = self._parts.popleft()
            extra = self._size - self.limit
            if len(first) > extra:
                self._parts.appendleft(first[extra:])
                self._size -= extra
                self.dropped += extra
            else:
                self._size -= len(first)
                self.dropped += len(first)

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def text(self) -> str:
        """Return the bytes as text; the first line says how many bytes were dropped, if any."""
        text = bytes(self).decode("utf-8", "replace")
        return f"[{self.dropped} bytes before this were dropped]\n{text}" if self.dropped else text


# A sink or feed receives the output from us; the child itself appends to a path; the caller reads "stream"; None means
# that the output is discarded.
ChildOutput = OutputSink | PipeFeed | Path | Literal["stream"] | None


@dataclass(frozen=True)
class StopTimeouts:
    """How long each step of `Child.stop` may take, in seconds: well under 10 in all."""

    after_eof: float = 2.0
    after_term: float = 3.0
    after_kill: float = 2.0


class Child:
    """A process that we started; it leads its own session and process group."""

    def __init__(
        self,
        name: str,
        process: "subprocess.Popen[bytes]",
        started: float,
        matches_marker: Callable[[str], bool],
        number: str = "",
    ) -> None:
        self.name = name
        self.number = number
        self.pid = process.pid
        self.started = started
        self.stdin: PipeWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.returncode: int | None = None
        self._process = process
        self._matches_marker = matches_marker
        self._exited = asyncio.Event()
        self._readers: list[PipeReader] = []
        self._tasks = TaskSet(f"child {name}")
        # Members of the group when the leader ended. Later the number of the group may be reused.
        self._orphans: list[psutil.Process] = []
        self._stopping: asyncio.Task[None] | None = None

    async def wait(self) -> int:
        """Wait until the process has ended; return its code. A descendant may still hold its output open."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    async def wait_drained(self, seconds: float) -> bool:
        """Wait until every output is read to its end; return False on timeout."""
        try:
            async with asyncio.timeout(seconds):
                for reader in self._readers:
                    await reader.done.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self, timeouts: StopTimeouts = StopTimeouts()) -> None:  # noqa: B008 - frozen
        """Stop the process, its group and every descendant that left it. Safe to call at any time and repeatedly."""
        if self._stopping is None or self._stopping.done():
            self._stopping = self._tasks.start(self._stop_in_steps(timeouts), "stop")
        # Cancelling the caller must not interrupt the sequence of steps.
        await asyncio.shield(self._stopping)

    def kill_now(self) -> None:
        """Send SIGKILL to all processes of this child at once, without waiting. For a forced shutdown."""
        table.send_signal(self._list_processes(), signal.SIGKILL)

    async def _stop_in_steps(self, timeouts: StopTimeouts) -> None:
        """Stop the child step by step: end of input, SIGTERM, SIGKILL."""
        if self.stdin is not None:
            self.stdin.close()
            if self.returncode is None:
                await self._wait_exit(timeouts.after_eof)
        for number, seconds in ((signal.SIGTERM, timeouts.after_term), (signal.SIGKILL, timeouts.after_kill)):
            remaining = await _run_in_thread(self._list_processes)
            if not remaining:
                break
            table.send_signal(remaining, number)
            others = [process for process in remaining if process.pid != self.pid]
            wait_for_others = functools.partial(table.wait_for_exits, others, seconds)
            await asyncio.gather(self._wait_exit(seconds), _run_in_thread(wait_for_others))
        else:
            if survivors := await _run_in_thread(self._list_processes):
                # Forked between the search and the signal, or stuck in the kernel, where nothing more can be done.
                table.send_signal(survivors, signal.SIGKILL)
                logger.error(
                    "%s: processes %s did not end after SIGKILL", self.name, [survivor.pid for survivor in survivors]
                )
        await self.wait_drained(0.5)
        for reader in self._readers:
            reader.close()
        if self.stdin is not None:
            self.stdin.abort()

    def _list_processes(self) -> list[psutil.Process]:
        """Return the living processes of this child: leader, group, and descendants found by the marker."""
        processes = {
            process.pid: process for process in table.find_marked(self._matches_marker, not_before=self.started)
        }
        group = self._orphans
        if self.returncode is None:
            group = table.list_group(self.pid, not_before=self.started)
        processes.update({process.pid: process for process in group if table.is_alive(process)})
        return list(processes.values())

    async def _wait_exit(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def reap(self) -> asyncio.Task[None] | None:
        """Record the return code once the leader has ended, and stop the rest of its group. Called on the loop."""
        self.returncode = self._process.wait()
        self._exited.set()
        logger.debug("%s (pid %d) ended with %d", self.name, self.pid, self.returncode)
        if not table.group_is_empty(self.pid):
            self._orphans = table.list_group(self.pid, not_before=self.started)
            if self._stopping is None:
                self._stopping = self._tasks.start(self._stop_in_steps(StopTimeouts()), "sweep")
        if self.stdin is not None:
            self.stdin.abort()
        return self._stopping

    def attach(self, stdin: int | None, outputs: Sequence[tuple[int, OutputSink | PipeFeed | str]]) -> None:
        """Take over our ends of the child's pipes."""
        if stdin is not None:
            self.stdin = PipeWriter(stdin)
        for fd, output in outputs:
            if isinstance(output, str):
                self.stdout = asyncio.StreamReader(limit=2**20)
                reader = PipeReader(fd, _StreamFeed(self.stdout))
                self.stdout.set_transport(cast(asyncio.Transport, reader))
            else:
                reader = PipeReader(fd, output if isinstance(output, PipeFeed) else _SinkFeed(output))
            self._readers.append(reader)


async def _run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, or in this one if the system cannot start another."""
    try:
        return await asyncio.to_thread(work)
    except RuntimeError:
        return work()


@dataclass(frozen=True)
class _SinkFeed:
    sink: OutputSink

    def data(self, data: bytes) -> None:
        self.sink.write(data)

    def end(self) -> None:
        """Do nothing: a sink has no end."""


@dataclass(frozen=True)
class _StreamFeed:
    reader: asyncio.StreamReader

    def data(self, data: bytes) -> None:
        self.reader.feed_data(data)

    def end(self) -> None:
        self.reader.feed_eof()
