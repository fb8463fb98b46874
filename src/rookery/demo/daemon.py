"""The daemon of a demo: runs in the demo's own state folder, and is stopped with everything that it started."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from rookery.daemon_client.failure import Failure
from rookery.daemon_client.start import start_daemon
from rookery.system.errors import RookeryError
from rookery.system.fs.lock import FileLock, is_held
from rookery.system.fs.paths import lock_file
from rookery.system.ids import new_id
from rookery.system.process import table
from rookery.system.process.leftovers import InstanceRegistry, stop_leftovers

_FORCED_SECONDS = 5.0
# Not the usual ports, which the user's own daemon needs, and which clients are configured with.
_PORTS = range(24_000, 25_000)
_TRIES = 3
# Each signal, and how long to wait after it. The second one forces a daemon that is stopping.
_STOP_SIGNALS = ((signal.SIGTERM, 60.0), (signal.SIGINT, _FORCED_SECONDS), (signal.SIGKILL, _FORCED_SECONDS))


def _start_on_free_port(on_progress: Callable[[str], None]) -> None:
    """Start the daemon on a random port of the demo's range; try another one if it is taken."""
    for attempts_left in reversed(range(_TRIES)):
        port = _PORTS[int(new_id(), 16) % len(_PORTS)]
        try:
            start_daemon([f"--set=http.port={port}"], on_progress)
        except Failure as failure:
            if failure.code != "port-taken" or not attempts_left:
                raise
        else:
            return


class DemoDaemon:
    """The daemon of one demo, identified by the lock that it holds in its state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._starting: asyncio.Future[object] | None = None

    async def start(self, on_progress: Callable[[str], None]) -> None:
        """Start the daemon with this process's environment, and report its progress in the event loop."""
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            loop.call_soon_threadsafe(on_progress, text)

        self._starting = loop.run_in_executor(None, _start_on_free_port, report)
        try:
            await asyncio.shield(self._starting)
        except Failure as failure:
            raise RookeryError(failure.code, failure.message, failure.remedy) from None

    @property
    def is_starting(self) -> bool:
        return self._starting is not None and not self._starting.done()

    async def stop(self) -> None:
        """Stop the daemon. Force it if it does not end, and end processes that a killed daemon left behind."""
        if self._starting is not None:
            # A start cannot be cancelled: if it were abandoned, the daemon would outlive this process.
            await asyncio.wait([self._starting])
        for number, seconds in _STOP_SIGNALS:
            if (daemon := self._holder()) is not None:
                table.send_signal([daemon], number)
                await asyncio.to_thread(table.wait_for_exits, [daemon], seconds)
        await stop_leftovers(InstanceRegistry(self._state).load_current_boot())

    def force(self) -> None:
        """End the daemon at once, and wait for it. Two different signals are sent, since equal ones may be merged."""
        if (daemon := self._holder()) is not None:
            for number in (signal.SIGTERM, signal.SIGINT):
                table.send_signal([daemon], number)
            table.wait_for_exits([daemon], _FORCED_SECONDS)

    def _holder(self) -> psutil.Process | None:
        """Return the process that holds the lock, if its pid and start time are those recorded in the lock."""
        lock = lock_file(self._state)
        if not is_held(lock):
            return None
        match FileLock(lock).read_note().split():
            case ["pid", pid, "started", moment, _]:
                with contextlib.suppress(psutil.Error, OSError, ValueError):
                    if table.start_time(int(pid)) == float(moment):
                        return psutil.Process(int(pid))
            case _:
                pass
        return None
