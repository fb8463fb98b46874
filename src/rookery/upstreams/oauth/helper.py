"""Runs one errand in a process of its own, which is ended for certain."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from rookery.system import environment
from rookery.system.buffers import Ring
from rookery.system.child import Child
from rookery.system.errors import RookeryError
from rookery.system.priority import Priority
from rookery.system.spawn import Spawner
from rookery.upstreams.signin.messages import (
    SERVERS_SECONDS,
    Asked,
    Errand,
    Failed,
    Outcome,
    Redirected,
    Step,
    Taken,
    Told,
)

# The SDK takes half a second to import, more where others work too.
_START_SECONDS = 30.0
_PRIORITY = Priority(nice=10, long_slice=True)

Heard = Callable[[Step | Asked | Taken], None]


class Helper:
    """It knows what it is told on its stdin, and nothing else of ours: no token is in its arguments or environment."""

    def __init__(self, spawner: Spawner, folder: Path) -> None:
        self._spawner, self._folder = spawner, folder
        self._child: Child | None = None

    async def run(self, errand: Errand, heard: Heard = lambda told: None) -> Outcome:
        """What the errand came to; raises what went wrong."""
        argv = [sys.executable, "-P", "-m", "rookery.upstreams.signin"]
        errors = Ring(4096)
        self._child = child = await self._spawner.start(
            argv,
            name="sign-in",
            cwd=self._folder,
            env=environment.allowed(),
            stdin=True,
            stdout="stream",
            stderr=errors,
            # A person is slower; who waits for a renewal is not.
            priority=_PRIORITY if errand.mode in ("login", "look") else None,
        )
        try:
            self._say(errand)
            async with asyncio.timeout(errand.seconds + SERVERS_SECONDS + _START_SECONDS):
                outcome = await self._hear(child, heard)
        except TimeoutError:
            raise RookeryError("timeout", "the sign-in takes too long, and was ended") from None
        finally:
            await _end(child)
        if outcome is None:
            why = errors.text().strip().rpartition("\n")[2][:200]
            raise RookeryError("sign-in-failed", f"the process that signs in has ended early: {why}", "try again")
        if isinstance(outcome, Failed):
            raise RookeryError(outcome.code, outcome.message, outcome.remedy)
        return outcome

    def redirected(self, url: str) -> None:
        """A person says where the browser was sent to."""
        self._say(Redirected(url))

    def _say(self, said: Errand | Redirected) -> None:
        child = self._child
        if child is not None and child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                child.stdin.write(msgspec.json.encode(said) + b"\n")

    async def _hear(self, child: Child, heard: Heard) -> Outcome | None:
        assert child.stdout is not None
        while line := await child.stdout.readline():
            told = msgspec.json.decode(line, type=Told)
            if not isinstance(told, Step | Asked | Taken):
                return told
            heard(told)
        return None


async def _end(child: Child) -> None:
    """For certain: whoever gives up in the middle of that waits for it all the same."""
    try:
        await child.stop()
    except asyncio.CancelledError:
        await child.stop()
        raise
