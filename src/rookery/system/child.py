"""One child process: its output, its death, and the ladder by which it is ended for certain."""

import asyncio
import functools
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

import psutil

from rookery.system import processes
from rookery.system.buffers import Sink
from rookery.system.pipes import Feed, PipeReader, PipeWriter
from rookery.system.tasks import TaskSet

if TYPE_CHECKING:
    import subprocess

logger = logging.getLogger("rookery.spawn")

T = TypeVar("T")


# A sink or feed is fed by us; a path is appended to by the child itself; "stream" is read by the caller; None is thrown
# away.
Output = Sink | Feed | Path | Literal["stream"] | None


@dataclass(frozen=True)
class Ladder:
    """How long each rung of `Child.stop` may take, in seconds: well under 10 in all."""

    after_eof: float = 2.0
    after_term: float = 3.0
    after_kill: float = 2.0


class Child:
    """One process that we started, the leader of its own session and process group."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", started: float, owned: Callable[[str], bool]
    ) -> None:
        self.name = name
        self.pid = process.pid
        self.started = started
        self.stdin: PipeWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.returncode: int | None = None
        self._process = process
        self._owned = owned
        self._exited = asyncio.Event()
        self._readers: list[PipeReader] = []
        self._tasks = TaskSet(f"child {name}")
        # The rest of the group at the leader's death. Later its number may be somebody else's.
        self._orphans: list[psutil.Process] = []
        self._stopping: asyncio.Task[None] | None = None

    async def wait(self) -> int:
        """The return code, as soon as the process is dead; its output may still be held open by a descendant."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    async def drained(self, seconds: float) -> bool:
        """Wait until every output has been read to its end."""
        try:
            async with asyncio.timeout(seconds):
                for reader in self._readers:
                    await reader.done.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self, ladder: Ladder = Ladder()) -> None:  # noqa: B008 - frozen
        """End the process, its group and every descendant that left it. Safe to call at any time and more than once."""
        if self._stopping is None or self._stopping.done():
            self._stopping = self._tasks.start(self._descend(ladder), "stop")
        # A cancelled caller must not leave the ladder half-way down.
        await asyncio.shield(self._stopping)

    def kill_now(self) -> None:
        """The last resort of a forced end: no waiting, no second look."""
        processes.send(self._remaining(), signal.SIGKILL)

    async def _descend(self, ladder: Ladder) -> None:
        if self.stdin is not None:
            self.stdin.close()
            if self.returncode is None:
                await self._exits_within(ladder.after_eof)
        for number, seconds in ((signal.SIGTERM, ladder.after_term), (signal.SIGKILL, ladder.after_kill)):
            remaining = await _elsewhere(self._remaining)
            if not remaining:
                break
            processes.send(remaining, number)
            others = [process for process in remaining if process.pid != self.pid]
            gone = functools.partial(processes.wait_gone, others, seconds)
            await asyncio.gather(self._exits_within(seconds), _elsewhere(gone))
        else:
            if survivors := await _elsewhere(self._remaining):
                # Forked between look and signal; or stuck in the kernel, where nothing more can be done.
                processes.send(survivors, signal.SIGKILL)
                logger.error("%s: processes %s did not end after SIGKILL", self.name, [left.pid for left in survivors])
        await self.drained(0.5)
        for reader in self._readers:
            reader.close()
        if self.stdin is not None:
            self.stdin.abort()

    def _remaining(self) -> list[psutil.Process]:
        """All that is alive of this child: leader, group, and strays known by the marker."""
        found = {process.pid: process for process in processes.carriers(self._owned, not_before=self.started)}
        group = self._orphans
        if self.returncode is None:
            group = processes.group_members(self.pid, not_before=self.started)
        found.update({process.pid: process for process in group if processes.is_alive(process)})
        return list(found.values())

    async def _exits_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def reap(self) -> asyncio.Task[None] | None:
        """Called on the loop when the leader is dead: read its code, and let its group follow it."""
        self.returncode = self._process.wait()
        self._exited.set()
        logger.debug("%s (pid %d) ended with %d", self.name, self.pid, self.returncode)
        if not processes.group_is_empty(self.pid):
            self._orphans = processes.group_members(self.pid, not_before=self.started)
            if self._stopping is None:
                self._stopping = self._tasks.start(self._descend(Ladder()), "sweep")
        if self.stdin is not None:
            self.stdin.abort()
        return self._stopping

    def attach(self, stdin: int | None, outputs: Sequence[tuple[int, Sink | Feed | str]]) -> None:
        """Take over our ends of the child's pipes."""
        if stdin is not None:
            self.stdin = PipeWriter(stdin)
        for fd, output in outputs:
            if isinstance(output, str):
                self.stdout = asyncio.StreamReader(limit=2**20)
                reader = PipeReader(fd, _StreamFeed(self.stdout))
                self.stdout.set_transport(cast(asyncio.Transport, reader))
            else:
                reader = PipeReader(fd, output if isinstance(output, Feed) else _SinkFeed(output))
            self._readers.append(reader)


async def _elsewhere(work: Callable[[], T]) -> T:
    """Run `work` in a thread; here, if the system has none left to give."""
    try:
        return await asyncio.to_thread(work)
    except RuntimeError:
        return work()


@dataclass(frozen=True)
class _SinkFeed:
    sink: Sink

    def data(self, data: bytes) -> None:
        self.sink.write(data)

    def end(self) -> None:
        """A sink keeps what it has."""


@dataclass(frozen=True)
class _StreamFeed:
    reader: asyncio.StreamReader

    def data(self, data: bytes) -> None:
        self.reader.feed_data(data)

    def end(self) -> None:
        self.reader.feed_eof()
