"""One server of the pool: started on first use, listed, called, stopped when idle, tried again after a failure."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Raw

from rookery.gateway.catalog import Catalog
from rookery.gateway.relay import Relay
from rookery.system.buffers import Ring
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.connecting import Opening
from rookery.upstreams.connector import Connector
from rookery.upstreams.definition import Definition
from rookery.upstreams.idleness import Idleness
from rookery.upstreams.liveness import Liveness
from rookery.upstreams.offer import Offer
from rookery.upstreams.passage import NEW, Begun, Passage, passage_to
from rookery.upstreams.turnstile import Turnstile
from rookery.upstreams.voice import Voice
from rookery.upstreams.waiting import NotYet, Waiting
from rookery.upstreams.watchers import Watchers
from rookery.wire.client import Client
from rookery.wire.connect import Era
from rookery.wire.lasting import Lasting, State
from rookery.wire.provider import Call

logger = logging.getLogger("rookery.upstreams")

_HIDDEN = frozenset({"failed", "backoff", "needs_approval", "needs_auth", "needs_client_registration"})


class Server:
    """A member of views. `told` is called whenever its status changes."""

    ours = False

    def __init__(
        self,
        definition: Definition,
        directory: Path,
        connector: Connector,
        told: Callable[["Server"], None],
        checkout: Path | None = None,
    ) -> None:
        self.name, self.definition, self.directory = definition.name, definition, directory
        self.status: State | Waiting = "pending"
        self.error: str | None = None
        self.held = False
        self.stderr = Ring()
        self.voice = Voice(definition)
        self.turnstile = Turnstile(definition.name, definition.calls, definition.queue, exclusive=definition.exclusive)
        self._opening = Opening(connector, definition, directory, checkout, self.stderr)
        self._waits: Waiting | None = None
        self._hidden, self._told = False, told
        self._tasks = TaskSet(f"server {definition.name}")
        self._lasting = Lasting(self._connect, self._state_changed)
        self._offer = Offer(self.voice.warn, self._tasks, self._lasting.fail)
        self.changes = self._offer.changes
        self._starting: asyncio.Task[bool] | None = None
        self._watchers = Watchers(self.voice.warn)
        self._idleness = Idleness(definition.idle_seconds, self._busy, self._is_idle)
        self.touch = self._idleness.touch
        self._liveness = Liveness(self._tasks, lambda: bool(self.turnstile.running), self._lasting.fail)

    # ---- what a view sees

    @property
    def catalog(self) -> Catalog | None:
        return None if self.held or self._hidden else self._offer.catalog

    @property
    def client(self) -> Client | None:
        return self._lasting.connected

    def use(self) -> asyncio.Future[bool] | None:
        self.touch()
        if self._lasting.connected is not None:
            return self._offer.refresh()
        if self.held or self._lasting.pausing:
            return None
        if self._starting is None or self._starting.done():
            self._starting = self._tasks.start(self._lasting.reached(), "start")
        # What it offered when it was stopped is shown at once; should it offer something else now, that is announced.
        return None if self.catalog is not None and self.status == "stopped" else self._starting

    @property
    def asks(self) -> bool:
        return self.client is None or not self.client.modern

    def passage(self, call: Call, params: Mapping[str, Any]) -> Passage | None:
        return passage_to(self, self.client, call, params)

    async def handle(self, call: Call, params: Mapping[str, Any], begun: Begun = NEW) -> Raw | Mapping[str, Any]:
        client, sent = begun
        if sent is None and not self.turnstile.enters(call.caller):
            await self.turnstile.enter(call.caller)
        try:
            if self.held and sent is None:  # perhaps only since this waits for its turn
                raise RookeryError("server-unavailable", "it is disconnected", f"rookery mcp connect {self.name}")
            client = client or self._lasting.connected or await self._lasting.client()
            return await Relay(call, self._opening.root).call(client, params, sent)
        except RookeryError as error:
            self._liveness.failed(error, self._lasting.connected)
            if client is not None and error.code == "needs-auth":
                error = self._refused(client, error)
            raise self.voice.cleaned(error, f'MCP server "{self.name}": ') from None
        finally:
            self.turnstile.leave(call.caller)
            self.touch()

    def failure(self) -> RookeryError:
        """Why nothing can be had of it now."""
        told = f'MCP server "{self.name}" failed: {self.error or self.status}'
        return RookeryError("upstream-failed", told, f"rookery mcp get {self.name}")

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        if self._watchers.set(watcher, uris) and (client := self._lasting.connected) is not None:
            self._tasks.start(self._watchers.tell(client), "watch")

    # ---- what its owner does

    async def connect(self) -> None:
        """At once, whatever happened before; raises what is wrong."""
        self.held = False
        self._lasting.retry_now()
        self.touch()
        with self.voice.errors():
            await self._lasting.client()

    async def disconnect(self) -> None:
        """Stop it, and leave it so until it is connected again."""
        self.held = True
        await self._lasting.stop()
        self._offer.show(visible=False)

    async def close(self) -> None:
        self._idleness.close()
        await self._tasks.close()
        await self._lasting.close()

    async def signed(self, stays: bool) -> None:
        """Its sign-in is another one now, or none, or more is known of it; whether a connection that it has `stays`."""
        if self._lasting.connected is not None and not stays:
            await self._lasting.stop()
        elif self.held or self._lasting.connected is not None or self._waits is None:
            return  # the next request has it
        self._lasting.retry_now()
        await self._lasting.reached()

    # ---- connecting

    async def _connect(self, known: Era | None) -> tuple[Client, Era]:
        self._waits = None
        try:
            client, era = await self._opening.open(known, self._offer.heard)
        except NotYet as error:
            self._waits = error.status
            raise
        self._tasks.start(self._opening.hear_logs(client), "logs")
        try:
            await self._offer.list_all(client)
            await self._watchers.tell(client)
        except BaseException:
            await client.close()
            raise
        return client, era

    def _refused(self, client: Client, error: RookeryError) -> NotYet:
        found = self._opening.refused(error)
        if found.whole:
            self._waits = found.status
            self._tasks.start(self._lasting.fail(client, found), "refused")
        return found

    def _state_changed(self, state: State, error: str | None) -> None:
        # One failure is a failure; who fails again and again is left alone for a while.
        self.status = "failed" if state == "backoff" and self._lasting.failures < 2 else state
        if self._waits is not None and self.status in _HIDDEN:
            self.status = self._waits
        self.error = self.voice.clean(error) if error is not None else None
        if state != "pending":  # while it is tried again, it is what came of it before
            self._hidden = self.status in _HIDDEN
            self._offer.show(visible=self.catalog is not None)
        self._offer.stand(self._lasting.connected)
        if state == "connected":
            self.touch()  # it may have taken longer to start than it may be idle
        self._told(self)

    def _busy(self) -> bool:
        return bool(self.turnstile.running or self._watchers)

    def _is_idle(self) -> None:
        if self._lasting.connected is not None:
            logger.info("%s was idle for %g s and is stopped", self.name, self.definition.idle_seconds)
            self._tasks.start(self._lasting.stop(), "stop")
