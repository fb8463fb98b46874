"""The only way to start a process, and the only way to be sure that it has gone."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import psutil

from rookery.system import metrics, processes
from rookery.system.errors import RookeryError
from rookery.system.ring import Ring
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.spawn")
STARTED = metrics.counter("rookery_children_started_total", "Processes that Rookery started.")


class Sink(Protocol):
    """Where a child's output goes as it comes."""

    def write(self, data: bytes) -> None: ...


@dataclass
class Capture:
    """The first `limit` bytes of an output; `cut` counts the rest."""

    limit: int = 10_000_000
    data: bytearray = field(default_factory=bytearray)
    cut: int = 0

    def write(self, data: bytes) -> None:
        room = max(self.limit - len(self.data), 0)
        self.data += data[:room]
        self.cut += max(len(data) - room, 0)


# A sink is fed by us; a path is appended to by the child itself; "stream" is read by the caller; None is thrown away.
Output = Sink | Path | Literal["stream"] | None


@dataclass(frozen=True)
class Ladder:
    """How long each rung of `Child.stop` may take, in seconds: well under 10 in all."""

    after_eof: float = 2.0
    after_term: float = 3.0
    after_kill: float = 2.0


@dataclass(frozen=True)
class Completed:
    returncode: int
    stdout: bytes
    stderr: bytes
    cut: int


class Child:
    """One process that we started, the leader of its own session and process group."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", started: float, owned: Callable[[str], bool]
    ) -> None:
        self.name = name
        self.pid = process.pid
        self.started = started
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.returncode: int | None = None
        self._process = process
        self._owned = owned
        self._exited = asyncio.Event()
        self._readers: list[asyncio.ReadTransport] = []
        self._drained: list[asyncio.Event] = []
        self._tasks = TaskSet(f"child {name}")
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
                for event in self._drained:
                    await event.wait()
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
            remaining = await asyncio.to_thread(self._remaining)
            if not remaining:
                break
            processes.send(remaining, number)
            others = [process for process in remaining if process.pid != self.pid]
            await asyncio.gather(self._exits_within(seconds), asyncio.to_thread(processes.wait_gone, others, seconds))
        survivors = await asyncio.to_thread(self._remaining)
        if survivors:
            # Forked between look and signal; or stuck in the kernel, where nothing more can be done.
            processes.send(survivors, signal.SIGKILL)
            logger.error("%s: processes %s did not end after SIGKILL", self.name, [left.pid for left in survivors])
        await self.drained(0.5)
        for reader in self._readers:
            reader.close()

    def _remaining(self) -> list[psutil.Process]:
        """All that is alive of this child: leader, group, and strays known by the marker."""
        found = {process.pid: process for process in processes.carriers(self._owned, not_before=self.started)}
        if self.returncode is None or not processes.group_is_empty(self.pid):
            for process in processes.group_members(self.pid, not_before=self.started):
                found.setdefault(process.pid, process)
        return list(found.values())

    async def _exits_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def reap(self) -> None:
        """Called on the loop when the leader is dead: read its code, and let its group follow it."""
        if self.returncode is not None:
            return
        self.returncode = self._process.wait()
        self._exited.set()
        logger.debug("%s (pid %d) ended with %d", self.name, self.pid, self.returncode)
        if self._stopping is None and not processes.group_is_empty(self.pid):
            self._stopping = self._tasks.start(self._descend(Ladder()), "sweep")

    async def connect(self, stdout: Output, stderr: Output) -> None:
        """Put the loop's readers and writers on the pipes."""
        loop = asyncio.get_running_loop()
        for pipe, output in ((self._process.stdout, stdout), (self._process.stderr, stderr)):
            if pipe is None:
                continue
            done = asyncio.Event()
            if isinstance(output, str):
                self.stdout = asyncio.StreamReader(limit=2**20)
                protocol: asyncio.BaseProtocol = _StreamProtocol(self.stdout, done)
            else:
                assert output is not None and not isinstance(output, Path)
                protocol = _SinkProtocol(output, done)
            transport, _ = await loop.connect_read_pipe(lambda made=protocol: made, pipe)
            self._readers.append(transport)
            self._drained.append(done)
        if self._process.stdin is not None:
            transport, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._process.stdin)
            self.stdin = asyncio.StreamWriter(transport, flow, None, loop)


class _SinkProtocol(asyncio.Protocol):
    def __init__(self, sink: Sink, done: asyncio.Event) -> None:
        self._sink, self._done = sink, done

    def data_received(self, data: bytes) -> None:
        self._sink.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._done.set()


class _StreamProtocol(asyncio.StreamReaderProtocol):
    def __init__(self, reader: asyncio.StreamReader, done: asyncio.Event) -> None:
        super().__init__(reader)
        self._done = done

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._done.set()


class Spawner:
    """Starts the children of one daemon instance and knows all that are alive."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.children: set[Child] = set()
        self._count = 0

    async def start(
        self,
        argv: Sequence[str],
        *,
        name: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: bool = False,
        stdout: Output = None,
        stderr: Output = None,
    ) -> Child:
        """Start `argv` with exactly `env` and our marker; `stdin` asks for a pipe, without one it reads nothing."""
        self._count += 1
        number = str(self._count)
        marked = dict(env) | {processes.MARKER: processes.marker_for(self.instance, number)}
        with contextlib.ExitStack() as opened:
            try:
                # Two milliseconds on the loop's own thread; a thread that ends would take a PDEATHSIG child with it.
                process = subprocess.Popen(  # noqa: ASYNC220
                    list(argv),
                    cwd=cwd,
                    env=marked,
                    stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                    stdout=_target(stdout, opened),
                    stderr=_target(stderr, opened),
                    bufsize=0,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise _cannot_start(name, argv, cwd, error) from error
        child = Child(name, process, processes.started(process.pid), processes.of_child(self.instance, number))
        STARTED.add()
        self.children.add(child)
        _watch(process, lambda: self._dead(child))
        try:
            await child.connect(stdout, stderr)
        except BaseException:
            child.kill_now()
            raise
        logger.debug("started %s (pid %d)", name, child.pid)
        return child

    async def run(
        self,
        argv: Sequence[str],
        *,
        name: str,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
        input: bytes | None = None,
        limit: int = 10_000_000,
    ) -> Completed:
        """Run a short command to its end; on time-out or cancellation its whole tree is gone first."""
        out, err = Capture(limit), Capture(limit)
        child = await self.start(argv, name=name, cwd=cwd, env=env, stdin=input is not None, stdout=out, stderr=err)
        try:
            async with asyncio.timeout(timeout):
                if child.stdin is not None:
                    with contextlib.suppress(ConnectionError):
                        child.stdin.write(input or b"")
                        await child.stdin.drain()
                    child.stdin.close()
                code = await child.wait()
                if not await child.drained(1.0):
                    await child.stop()
        except TimeoutError:
            await child.stop()
            raise RookeryError("timeout", f"{name} did not end within {timeout:g} s") from None
        except BaseException:
            await child.stop()
            raise
        return Completed(code, bytes(out.data), bytes(err.data), out.cut + err.cut)

    async def stop_all(self) -> None:
        """End every child and whatever they left, side by side."""
        await asyncio.gather(*(child.stop() for child in list(self.children)), return_exceptions=True)
        strays = await asyncio.to_thread(processes.carriers, processes.of_instance(self.instance))
        processes.send(strays, signal.SIGKILL)
        self.children.clear()

    def kill_all_now(self) -> None:
        processes.send(processes.carriers(processes.of_instance(self.instance)), signal.SIGKILL)

    def _dead(self, child: Child) -> None:
        child.reap()
        self.children.discard(child)


def _target(output: Output, opened: contextlib.ExitStack) -> int:
    if output is None:
        return subprocess.DEVNULL
    if isinstance(output, Path):
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        opened.callback(os.close, handle)
        return handle
    return subprocess.PIPE


def _watch(process: "subprocess.Popen[bytes]", dead: Callable[[], None]) -> None:
    """Call `dead` on the loop once the process has ended. Never EOF: a descendant can hold the pipes for ever."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        _watch_by_thread(process, loop, dead)
        return

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        dead()

    loop.add_reader(handle, ended)


def _watch_by_thread(
    process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, dead: Callable[[], None]
) -> None:
    """For systems without pidfd."""

    def wait() -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(dead)

    threading.Thread(target=wait, name=f"wait-{process.pid}", daemon=True).start()


def _cannot_start(name: str, argv: Sequence[str], cwd: Path, error: OSError | ValueError) -> RookeryError:
    if isinstance(error, FileNotFoundError) and not cwd.is_dir():
        return RookeryError("spawn-failed", f"cannot start {name}: its folder {cwd} does not exist")
    if isinstance(error, FileNotFoundError):
        return RookeryError("spawn-failed", f"cannot start {name}: {argv[0]} was not found", f"install {argv[0]}")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return RookeryError("spawn-failed", f"cannot start {name}: {reason}")


__all__ = ["Capture", "Child", "Completed", "Ladder", "Output", "Ring", "Sink", "Spawner"]
