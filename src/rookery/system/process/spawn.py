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
from rookery.system.pipes import pipe_for_child
from rookery.system.priority import Priority, send_back

logger = logging.getLogger("rookery.spawn")
# How often strays that fork faster than they are found are looked for again.
_LOOKS = 5
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
        priority: Priority | None = None,
    ) -> Child:
        """Start `argv` with exactly `env` and our marker; `stdin` asks for a pipe, without one it reads nothing."""
        self._count += 1
        number = str(self._count)
        marked = dict(env) | {processes.MARKER: processes.marker_for(self.instance, number)}
        ours: list[int] = []
        with contextlib.ExitStack() as theirs:
            try:
                outputs = [(_theirs(output, ours, theirs), output) for output in (stdout, stderr)]
                child_in, our_in = pipe_for_child(theirs, ours, reading=True) if stdin else (subprocess.DEVNULL, None)
                # Two milliseconds on the loop's own thread; a thread that ends would take a PDEATHSIG child with it.
                process = subprocess.Popen(  # noqa: ASYNC220
                    list(argv),
                    cwd=cwd,
                    env=marked,
                    stdin=child_in,
                    stdout=outputs[0][0],
                    stderr=outputs[1][0],
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                for fd in ours:
                    os.close(fd)
                raise _cannot_start(name, argv, cwd, error) from error
        child = Child(name, process, processes.started(process.pid), processes.of_child(self.instance, number))
        if priority is not None:
            send_back(child.pid, priority)
        STARTED.add()
        self.children.add(child)
        _watch(process, lambda: self._dead(child))
        fed = [output for output in (stdout, stderr) if output is not None and not isinstance(output, Path)]
        child.attach(our_in, list(zip(ours, fed, strict=False)))
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

    async def stop_all(self) -> bool:
        """End every child and whatever they left, side by side; whether nothing of it is alive."""
        await asyncio.gather(*(child.stop() for child in list(self.children)), return_exceptions=True)
        self.children.clear()
        owned = processes.of_instance(self.instance)
        for number in (signal.SIGTERM, *[signal.SIGKILL] * _LOOKS):
            strays = await asyncio.to_thread(processes.carriers, owned)
            if not strays:
                return True
            processes.send(strays, number)
            await asyncio.to_thread(processes.wait_gone, strays, 1.0)
        return not await asyncio.to_thread(processes.carriers, owned)

    def kill_all_now(self) -> None:
        # Also by their groups: whoever becomes another program at this moment shows no marker.
        for child in list(self.children):
            child.kill_now()
        processes.send(processes.carriers(processes.of_instance(self.instance)), signal.SIGKILL)

    def _dead(self, child: Child) -> None:
        unfinished = child.reap()
        if unfinished is None:
            self.children.discard(child)
        else:
            unfinished.add_done_callback(lambda _: self.children.discard(child))


def _theirs(output: Output, ours: list[int], theirs: contextlib.ExitStack) -> int:
    """The child's end of an output."""
    if output is None:
        return subprocess.DEVNULL
    if isinstance(output, Path):
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        theirs.callback(os.close, handle)
        return handle
    return pipe_for_child(theirs, ours, reading=False)[0]


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
