"""One server of the pool: started on first use, listed, called, stopped when idle, tried again after a failure."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Raw

import rookery
from rookery.gateway.catalog import Catalog, Kind
from rookery.gateway.relay import Relay
from rookery.system.buffers import Ring
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.connector import Connector
from rookery.upstreams.definition import Definition
from rookery.upstreams.listing import differing, fetch
from rookery.upstreams.turnstile import Turnstile
from rookery.wire import revisions
from rookery.wire.channel import Channel
from rookery.wire.client import Client
from rookery.wire.connect import Era, connect
from rookery.wire.jsonrpc import Notification, WireError
from rookery.wire.lasting import Lasting, State
from rookery.wire.provider import Call, Change, Changes
from rookery.wire.writing import Identity

logger = logging.getLogger("rookery.upstreams")

# Whoever may be behind us is spoken for, so that a server can ask; who cannot be asked is answered for.
IDENTITY = Identity(
    {"name": "rookery", "version": rookery.__version__},
    {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
)
# Members of `_meta` that belong to one leg of the way, and not to the call.
_OF_THE_LEG = frozenset({"progressToken", revisions.META_VERSION, revisions.META_CLIENT, revisions.META_CAPABILITIES})
_HIDDEN = frozenset({"failed", "backoff", "needs_approval"})
_RELISTED: Mapping[str, tuple[Kind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}
_CHANGE: dict[Kind, Change] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}


def needs_approval(name: str) -> RookeryError:
    return RookeryError(
        "needs-approval",
        f'MCP server "{name}" is defined inside a repository and waits for approval',
        f"look at it and approve it: rookery guard approve {name}",
    )


class _Updated(msgspec.Struct):
    uri: str


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
        self.definition = definition
        self.directory = directory
        self.changes = Changes()
        self.status: State | Literal["needs_approval"] = "pending"
        self.error: str | None = None
        self.held = False
        self.stderr = Ring()
        self.turnstile = Turnstile(definition.name, definition.calls, definition.queue, exclusive=definition.exclusive)
        self._checkout = checkout
        self._unapproved = False
        self._connector = connector
        self._told = told
        self._catalog: Catalog | None = None
        self._tasks = TaskSet(f"server {definition.name}")
        self._lasting = Lasting(self._connect, self._state_changed)
        self._starting: asyncio.Task[bool] | None = None
        self._stale: set[Kind] = set()
        self._relisting: asyncio.Task[None] | None = None
        self._watched: dict[int, frozenset[str]] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._used = 0.0

    # ---- what a view sees

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def catalog(self) -> Catalog | None:
        return None if self.held or self.status in _HIDDEN else self._catalog

    @property
    def client(self) -> Client | None:
        return self._lasting.connected

    def use(self) -> asyncio.Future[bool] | None:
        self._touch()
        if self.held or self._lasting.connected is not None or self._lasting.pausing:
            return None
        if self._starting is None or self._starting.done():
            self._starting = self._tasks.start(self._start(), "start")
        # What it offered when it was stopped is shown at once; should it offer something else now, that is announced.
        return None if self._catalog is not None and self.status == "stopped" else self._starting

    async def handle(self, call: Call, params: Mapping[str, Any]) -> Raw | Mapping[str, Any]:
        if self.held:
            raise RookeryError(
                "server-unavailable",
                f'MCP server "{self.name}" is disconnected',
                f"rookery mcp connect {self.name}",
            )
        await self.turnstile.enter(call.caller)
        try:
            client = self._lasting.connected or await self._lasting.client()
            relay = Relay(call, str(self.directory))
            work = client.call(
                call.method,
                self._with_meta(call, params, client),
                listener=relay,
                capabilities=call.client.capabilities,
                rounds=not call.client.modern,
            )
            return await relay.run(work)
        except RookeryError as error:
            raise RookeryError(error.code, f'MCP server "{self.name}": {error.message}', error.remedy) from None
        finally:
            self.turnstile.leave(call.caller)
            self._touch()

    def failure(self) -> RookeryError:
        """Why nothing can be had of it now."""
        told = self.error or self.status
        return RookeryError(
            "upstream-failed", f'MCP server "{self.name}" failed: {told}', f"rookery mcp get {self.name}"
        )

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        if uris:
            self._watched[id(watcher)] = uris
        elif self._watched.pop(id(watcher), None) is None:
            return
        if (client := self._lasting.connected) is not None:
            self._tasks.start(self._watch(client), "watch")

    # ---- what its owner does

    async def connect(self) -> None:
        """At once, whatever happened before; raises what is wrong."""
        self.held = False
        self._lasting.retry_now()
        self._touch()
        await self._lasting.client()

    async def disconnect(self) -> None:
        """Stop it, and leave it so until it is connected again."""
        self.held = True
        await self._lasting.stop()
        self._announce(self._catalog)

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        await self._tasks.close()
        await self._lasting.close()

    # ---- connecting

    async def _start(self) -> bool:
        try:
            await self._lasting.client()
        except RookeryError:
            return False
        return True

    async def _connect(self, known: Era | None) -> tuple[Client, Era]:
        def make(channel: Channel) -> Client:
            return Client(channel, IDENTITY, self.definition.timeouts, answerer=self._answer, notified=self._heard)

        # Asked again right before: a script may be another one by now than the one that was approved.
        self._unapproved = not await self._connector.approved(self.definition, self._checkout)
        if self._unapproved:
            raise needs_approval(self.name)
        newer, older = self._connector.channels(self.definition, self.directory, self.stderr)
        client, era = await connect(make, newer, older=older, known=known)
        try:
            if not client.modern and "logging" in client.capabilities:
                await self._hear_logs(client)
            before = self._catalog
            self._catalog = await fetch(self.name, client)
            await self._watch(client)
        except BaseException:
            await client.close()
            raise
        self._announce(before)
        return client, era

    async def _hear_logs(self, client: Client) -> None:
        """Every caller has a level of its own, so that the server is asked for everything."""
        try:
            await client.request("logging/setLevel", {"level": "debug"}, seconds=5.0, what="start-up")
        except (WireError, RookeryError) as error:
            logger.debug("%s: no level of log can be set: %s", self.name, error)

    async def _watch(self, client: Client) -> None:
        try:
            await client.watch(frozenset[str]().union(*self._watched.values()))
        except (WireError, RookeryError) as error:
            logger.warning("%s: changes are not heard of: %s", self.name, error)

    async def _answer(self, method: str, params: Any) -> Mapping[str, Any]:
        """A question that belongs to no call."""
        if method == "roots/list":
            return {"roots": [{"uri": self.directory.as_uri()}]}
        raise WireError(-32601, f"no call is under way that could answer {method}")

    def _state_changed(self, state: State, error: str | None) -> None:
        before = self._catalog if self.catalog is not None else None
        # One failure is a failure; who fails again and again is left alone for a while.
        self.status = "failed" if state == "backoff" and self._lasting.failures < 2 else state
        if self._unapproved and self.status in _HIDDEN:
            self.status = "needs_approval"
        self.error = error
        if before is not None and self.catalog is None:
            self._announce(before)
        if state == "connected":
            # It may have taken longer to start than it may be idle.
            self._touch()
        self._told(self)

    # ---- what it says

    def _heard(self, message: Notification) -> None:
        if message.method == "notifications/resources/updated":
            self.changes.resource_updated(msgspec.json.decode(message.params, type=_Updated).uri)
        elif kinds := _RELISTED.get(message.method):
            self._stale |= set(kinds)
            if self._relisting is None or self._relisting.done():
                self._relisting = self._tasks.start(self._relist(), "list")

    async def _relist(self) -> None:
        while self._stale and (client := self._lasting.connected) is not None:
            kinds, self._stale = self._stale, set()
            try:
                self._catalog = await fetch(self.name, client, kinds, self._catalog)
            except RookeryError as error:
                await self._lasting.fail(error)
                return
            self._tell(kinds)

    def _announce(self, before: Catalog | None) -> None:
        """Tell the views what of it has come, gone or become different."""
        self._tell({kind for kind, other in differing(before, self.catalog).items() if other})

    def _tell(self, kinds: set[Kind]) -> None:
        changes: set[Change] = {_CHANGE[kind] for kind in kinds}
        for change in changes:
            self.changes.list_changed(change)

    # ---- calls

    def _with_meta(self, call: Call, params: Mapping[str, Any], client: Client) -> Mapping[str, Any]:
        meta: dict[str, Any] = {key: value for key, value in call.meta.items() if key not in _OF_THE_LEG}
        if client.modern and not call.client.modern and call.log_level is not None:
            meta[revisions.META_LOG_LEVEL] = call.log_level
        elif not client.modern:
            meta.pop(revisions.META_LOG_LEVEL, None)
        return {**params, "_meta": meta} if meta else params

    # ---- idleness

    def _touch(self) -> None:
        loop = asyncio.get_running_loop()
        self._used = loop.time()
        if self._idle is None and self.definition.idle_seconds:
            self._idle = loop.call_later(self.definition.idle_seconds, self._look_idle)

    def _look_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle = None
        due = self._used + self.definition.idle_seconds
        if self.turnstile.running or self._watched or loop.time() < due:
            self._idle = loop.call_later(max(due - loop.time(), 1.0), self._look_idle)
        elif self._lasting.connected is not None:
            logger.info("%s was idle for %g s and is stopped", self.name, self.definition.idle_seconds)
            self._tasks.start(self._lasting.stop(), "stop")
