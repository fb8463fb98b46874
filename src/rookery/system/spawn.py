"""The only way to start a process."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rookery.system import metrics, processes
from rookery.system.buffers import Capture
from rookery.system.child import Child, Output
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.spawn")
STARTED = metrics.counter("rookery_children_started_total", "Processes that Rookery started.")


@dataclass(frozen=True)
class Completed:
    returncode: int
    stdout: bytes
    stderr: bytes
    cut: int


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
            child.abandon()
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
        unfinished = child.reap()
        if unfinished is None:
            self.children.discard(child)
        else:
            unfinished.add_done_callback(lambda _: self.children.discard(child))


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
