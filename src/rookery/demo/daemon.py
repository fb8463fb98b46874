"""The daemon of a demo: started in the demo's own state folder, and ended with everything that it started."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from rookery.cli.failure import Failure
from rookery.cli.starting import start_daemon
from rookery.system import processes
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.leftovers import Register, end_leftovers
from rookery.system.lock import FileLock, is_held
from rookery.system.places import lock_file

_FORCED_SECONDS = 5.0
# Not the usual ones, which the user's own daemon wants, and which clients have been told of.
_PORTS, _TRIES = range(24_000, 25_000), 3
# The second signal forces a daemon that is stopping.
_ENDING = ((signal.SIGTERM, 60.0), (signal.SIGINT, _FORCED_SECONDS), (signal.SIGKILL, _FORCED_SECONDS))


def _start(tell: Callable[[str], None]) -> None:
    """On one of our ports; whether it is free is seen when it is bound."""
    for left in reversed(range(_TRIES)):
        port = _PORTS[int(new_id(), 16) % len(_PORTS)]
        try:
            start_daemon([f"--set=http.port={port}"], tell)
        except Failure as failure:
            if failure.code != "port-taken" or not left:
                raise
        else:
            return


class House:
    """One daemon, known by the lock that it holds in its state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._starting: asyncio.Future[object] | None = None

    async def start(self, tell: Callable[[str], None]) -> None:
        """Start it; this process's environment is the one that it gets. `tell` hears how far it is."""
        loop = asyncio.get_running_loop()

        def told(text: str) -> None:
            loop.call_soon_threadsafe(tell, text)

        self._starting = loop.run_in_executor(None, _start, told)
        try:
            await asyncio.shield(self._starting)
        except Failure as failure:
            raise RookeryError(failure.code, failure.message, failure.remedy) from None

    @property
    def is_starting(self) -> bool:
        return self._starting is not None and not self._starting.done()

    async def stop(self) -> None:
        """End it in order; one that does not end is forced, and what a killed one left behind is ended too."""
        if self._starting is not None:
            # A start cannot be called off, and one that is left alone would come after us.
            await asyncio.wait([self._starting])
        for number, seconds in _ENDING:
            if (daemon := self._holder()) is not None:
                processes.send([daemon], number)
                await asyncio.to_thread(processes.wait_gone, [daemon], seconds)
        await end_leftovers(Register(self._state).earlier())

    def force(self) -> None:
        """End it at once, and wait for that: two different signals, since two alike may count as one."""
        if (daemon := self._holder()) is not None:
            for number in (signal.SIGTERM, signal.SIGINT):
                processes.send([daemon], number)
            processes.wait_gone([daemon], _FORCED_SECONDS)

    def _holder(self) -> psutil.Process | None:
        """The process that holds the lock, if it is the one that has written itself down there."""
        lock = lock_file(self._state)
        if not is_held(lock):
            return None
        match FileLock(lock).holder().split():
            case ["pid", pid, "started", moment, _]:
                with contextlib.suppress(psutil.Error, OSError, ValueError):
                    if processes.started(int(pid)) == float(moment):
                        return psutil.Process(int(pid))
            case _:
                pass
        return None
