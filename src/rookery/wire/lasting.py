"""A connection that is made on first use, and anew when it was lost: nothing runs in the background to do so."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Literal

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.client import Client
from rookery.wire.connect import Era
from rookery.wire.pauses import pause

logger = logging.getLogger("rookery.mcp.client")

# `failed`: it is gone, and the next use connects. `backoff`: it failed, and until its pause is over every use does.
State = Literal["pending", "connected", "failed", "backoff", "stopped"]
Factory = Callable[[Era | None], Awaitable[tuple[Client, Era]]]
Told = Callable[[State, str | None], None]

# Who is lost sooner than this after connecting would only be lost again.
_LIVED_SECONDS = 10.0


def _tell_nobody(state: State, error: str | None) -> None:
    """Nobody here wants to know."""


class Lasting:
    """Holds one server's client. `told` hears of every change of state, with what went wrong."""

    def __init__(
        self, factory: Factory, told: Told = _tell_nobody, *, known: Era | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.era: Era | None = known
        self.connected: Client | None = None
        self.failures = 0
        self._factory = factory
        self._told = told
        self._clock = clock
        self._since = 0.0
        self._again_at = 0.0
        self._error = RookeryError("upstream-failed", "not connected")
        self._closed = False
        self._tasks = TaskSet("mcp connection")
        self._connecting: asyncio.Task[Client | RookeryError] | None = None
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def pausing(self) -> bool:
        """Whether it failed, and is not tried again yet."""
        return self._left() > 0

    async def client(self) -> Client:
        """Connected. Whoever comes while that is being done waits for the same; who leaves disturbs nobody."""
        if self.connected is not None:
            return self.connected
        if self._closed:
            raise RookeryError("upstream-failed", "the connection was closed")
        if self._connecting is None or self._connecting.done():
            if self.pausing:
                again = f"{self._error.message}; tried again in {math.ceil(self._left())} s"
                raise RookeryError(_lasting(self._error.code), again, self._error.remedy)
            self._connecting = self._tasks.start(self._connect(), "connect")
        connecting = self._connecting
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise RookeryError("upstream-failed", "stopped while it was being connected")
        found = connecting.result()
        if isinstance(found, RookeryError):
            raise RookeryError(found.code, found.message, found.remedy)
        return found

    async def reached(self) -> bool:
        """Whether it can be connected."""
        try:
            await self.client()
        except RookeryError:
            return False
        return True

    def retry_now(self) -> None:
        """Forget the pause: something has changed that makes it worth while."""
        self._again_at = 0.0

    async def fail(self, client: Client, error: RookeryError) -> None:
        """It is connected, and yet of no use. One that is connected no more is none of another's business."""
        if client is self.connected:
            self._let_go()
            self._failed(error)
            await asyncio.wait([self._end(client)])

    async def stop(self) -> None:
        """End the connection; the next use makes it anew."""
        connecting, client = self._connecting, self._let_go()
        if connecting is not None and not connecting.done():
            connecting.cancel()
            await asyncio.wait([connecting])
        self._told("stopped", None)
        if client is not None:
            await asyncio.wait([self._end(client)])

    async def close(self) -> None:
        """End it for good."""
        self._closed = True
        await self.stop()
        if self._endings:
            await asyncio.wait(self._endings)

    # ---- connecting

    async def _connect(self) -> Client | RookeryError:
        self._told("pending", None)
        # Two of one server at the same time might be in each other's way.
        if self._endings:
            await asyncio.wait(self._endings)
        try:
            client, self.era = await self._factory(self.era)
        except RookeryError as error:
            return self._failed(error)
        except Exception as error:
            logger.exception("connecting failed in a way that it should not")
            return self._failed(RookeryError("internal-error", f"{type(error).__name__}: {error}"))
        self.connected, self._since = client, self._clock.monotonic()
        client.on_gone = lambda reason: self._lost(client, reason)
        self._told("connected", None)
        if client.gone is not None:
            self._lost(client, client.gone)
        return client

    def _failed(self, error: RookeryError) -> RookeryError:
        self.failures += 1
        self._error = error
        self._again_at = self._clock.monotonic() + pause(self.failures)
        self._told("backoff", error.message)
        return error

    def _lost(self, client: Client, reason: str) -> None:
        if client is not self.connected:
            return
        self._let_go()
        self._end(client)
        if self._clock.monotonic() - self._since < _LIVED_SECONDS:
            self._failed(RookeryError("upstream-failed", f"the connection was lost: {reason}", client.diagnosis()))
        else:
            self.failures = 0
            self._told("failed", reason)

    # ---- ending

    def _let_go(self) -> Client | None:
        client, self.connected = self.connected, None
        return client

    def _end(self, client: Client) -> asyncio.Task[None]:
        """In a task of its own: whoever waits for it and leaves does not keep it from ending."""
        task = self._tasks.start(client.close(), "end")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    def _left(self) -> float:
        return self._again_at - self._clock.monotonic()


def _lasting(code: str) -> str:
    """What only the user can change is still so; whatever else failed may not be when it is tried again."""
    return code if code.startswith("needs-") else "upstream-failed"
