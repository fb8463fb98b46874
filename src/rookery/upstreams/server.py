"""One MCP server of the pool: started on first use, listed, called, stopped when idle, retried after a failure.

The helpers of a server are here too: its idle timer, liveness check, concurrency limiter, redactor and resource
subscriptions. Errors, status and log contain none of the secret values in the server's definition.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Raw

from rookery.gateway.provider import Catalog
from rookery.gateway.relay import Relay
from rookery.system.errors import RookeryError
from rookery.system.process.child import TailBuffer
from rookery.system.tasks import TaskSet
from rookery.upstreams.catalog import CatalogReview, ServeAll, ServerCatalog
from rookery.upstreams.catalog_store import StoredCatalog
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.config.redact import build_redactor
from rookery.upstreams.connect import ConnectionOpener, Connector, OtherEra
from rookery.upstreams.errors import RequiredAction, UserActionRequired
from rookery.upstreams.fastpath import NOT_STARTED, ServerFastPath, StartedCall, find_fast_path
from rookery.upstreams.starts import StartQueue
from rookery.wire.client.client import Client
from rookery.wire.client.connect import ConnectionState, Era, ReconnectingClient
from rookery.wire.protocol.messages import WireError
from rookery.wire.protocol.provider import Call

_BUSY_SECONDS = 1.0

logger = logging.getLogger("rookery.mcp.servers")

_MAX_WARNINGS = 20
_HIDDEN_STATUSES = frozenset({"failed", "backoff", "needs_approval", "needs_auth", "needs_client_registration"})


class IdleTimer:
    """Calls `on_idle` when `seconds` have passed without a `touch` and `is_busy` is False; never if `seconds` is 0."""

    def __init__(self, seconds: float, is_busy: Callable[[], bool], on_idle: Callable[[], None]) -> None:
        self._seconds = seconds
        self._busy = is_busy
        self._idle = on_idle
        self.last_used = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def touch(self) -> None:
        """Record a use, and start the timer if it is not running."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        self.last_used = loop.time()
        if self._timer is None and self._seconds:
            self._timer = loop.call_later(self._seconds, self._check)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        remaining = self.last_used + self._seconds - loop.time()
        if self._busy() or remaining > 0:
            self._timer = loop.call_later(max(remaining, _BUSY_SECONDS), self._check)
        else:
            self._idle()


FailCallback = Callable[[Client, RookeryError], Awaitable[None]]


class LivenessCheck:
    """Checks whether a server still responds after a call timed out, and fails its connection if it does not.

    `is_busy` returns whether other calls are running: a server that works on them may have no time to respond.
    """

    def __init__(self, tasks: TaskSet, is_busy: Callable[[], bool], fail: FailCallback) -> None:
        self._tasks = tasks
        self._busy = is_busy
        self._fail = fail
        self._checking = False

    def on_call_failed(self, error: RookeryError, client: Client | None) -> None:
        """Start a check if `error`, the failure of a call, is a timeout and no check is running."""
        if error.code == "timeout" and client is not None and not self._checking:
            self._checking = True
            self._tasks.start(self._check(client), "liveness")

    async def _check(self, client: Client) -> None:
        seconds = client.timeouts.catalog
        method = "server/discover" if client.modern else "ping"
        try:
            await client.request(method, {}, seconds=seconds, timeout_name="liveness")
        except WireError:
            return  # an error response also shows that the server is alive
        except RookeryError as error:
            if error.code == "timeout" and not self._busy():
                message = f"it is stuck: a call timed out, and it did not answer {method} within {seconds:g} s either"
                await self._fail(client, RookeryError("upstream-failed", message))
        finally:
            self._checking = False


class ConcurrencyLimiter:
    """Admits up to `max_calls` calls at a time and queues up to `max_waiting` more.

    With `exclusive`, all calls that run at the same time come from one caller.
    """

    def __init__(self, name: str, max_calls: int, max_waiting: int, *, exclusive: bool = False) -> None:
        self.name = name
        self.running = 0
        self._most = max_calls
        self._queue = max_waiting
        self.exclusive = exclusive
        self._running_by_caller: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def try_enter(self, caller: str) -> bool:
        """Admit `caller` if it need not wait, and return whether it was. An admitted caller must call `leave`."""
        if self._waiting or self.running >= self._most or (self.exclusive and not self._can_enter(caller)):
            return False
        self.running += 1
        if self.exclusive:
            self._running_by_caller[caller] += 1
        return True

    async def enter(self, caller: str) -> None:
        """Wait until `caller` is admitted. Raise `server-busy` if the queue is full."""
        if self.try_enter(caller):
            return
        if len(self._waiting) >= self._queue:
            raise RookeryError(
                "server-busy",
                f'MCP server "{self.name}" is running {self.running} calls and {len(self._waiting)} are waiting',
                "try again later, or raise `calls` or `queue` in its definition",
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((caller, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(caller)
            elif (caller, turn) in self._waiting:  # unless `_admit` has skipped it already
                self._waiting.remove((caller, turn))
                self._admit()
            raise

    def leave(self, caller: str) -> None:
        """Release the slot of `caller`, and admit waiting calls."""
        self.running -= 1
        if self.exclusive:
            self._running_by_caller[caller] -= 1
            if not self._running_by_caller[caller]:
                del self._running_by_caller[caller]
        if self._waiting:
            self._admit()

    def _can_enter(self, caller: str) -> bool:
        return self.running < self._most and (
            not self.exclusive or not self._running_by_caller or caller in self._running_by_caller
        )

    def _count_entry(self, caller: str) -> None:
        self.running += 1
        if self.exclusive:
            self._running_by_caller[caller] += 1

    def _admit(self) -> None:
        """Admit waiting calls in order of arrival. A call that must wait holds up those behind it."""
        while self._waiting and self._can_enter(self._waiting[0][0]):
            caller, turn = self._waiting.popleft()
            if not turn.done():
                self._count_entry(caller)
                turn.set_result(None)


class ServerRedactor:
    """Removes the secret values of a definition from what its server reports, on stderr or in a response."""

    def __init__(self, definition: Definition) -> None:
        self.name = definition.name
        self.clean = build_redactor(definition).clean
        # The most recent problems with the server's output.
        self.warnings: deque[str] = deque(maxlen=_MAX_WARNINGS)

    def warn(self, message: str) -> None:
        self.warnings.append(self.clean(message))
        self.log(message)

    def log(self, message: str) -> None:
        logger.warning("%s: %s", self.name, self.clean(message))

    @contextmanager
    def clean_errors(self, prefix: str = "") -> Generator[None]:
        """Remove secrets from each error raised in the block, and put `prefix` in front of its message."""
        try:
            yield
        except RookeryError as error:
            raise self.clean_error(error, prefix) from None

    def clean_error(self, error: RookeryError, prefix: str = "") -> RookeryError:
        return RookeryError(error.code, self.clean(prefix + error.message), self.clean(error.remedy))


class ResourceSubscriptions:
    """The resources of one server that watchers have subscribed to."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._by_watcher: dict[int, frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_watcher)

    def set(self, watcher: object, uris: frozenset[str]) -> bool:
        """Set the URIs of `watcher`. Return False if it had none and gets none."""
        if not uris:
            return self._by_watcher.pop(id(watcher), None) is not None
        self._by_watcher[id(watcher)] = uris
        return True

    async def subscribe(self, client: Client) -> None:
        """Subscribe `client` to the URIs of all watchers; a failure becomes a warning."""
        try:
            await client.watch(frozenset[str]().union(*self._by_watcher.values()))
        except (WireError, RookeryError) as error:
            self._warn(f"changes are not reported: {error}")


def _ignore(server: "Server") -> None:
    """Do nothing."""


class Server:
    """One MCP server, a provider of views.

    `on_status_changed` is called whenever its status changes, `on_listed` when it was listed. `stored` is what it
    listed before Rookery started; it is shown until the server is connected. `review` decides what is shown.
    """

    is_builtin = False

    def __init__(
        self,
        definition: Definition,
        directory: Path,
        connector: Connector,
        on_status_changed: Callable[["Server"], None],
        checkout: Path | None = None,
        *,
        starts: StartQueue | None = None,
        stored: StoredCatalog | None = None,
        on_listed: Callable[["Server"], None] = _ignore,
        review: CatalogReview | None = None,
    ) -> None:
        self.name = definition.name
        self.definition = definition
        self.directory = directory
        self.status: ConnectionState | RequiredAction = "pending"
        self.error: str | None = None
        self.is_disconnected = False
        self.stderr = TailBuffer()
        self.redactor = ServerRedactor(definition)
        self.limiter = ConcurrencyLimiter(
            definition.name, definition.calls, definition.queue, exclusive=definition.exclusive
        )
        # The revision of the last connection, or the name of the older transport.
        self.era: str | None = stored.revision if stored is not None else None
        self._last_client: Client | None = None
        self._last_problems: list[str] = []
        self._opener = ConnectionOpener(connector, definition, directory, checkout, self.stderr)
        self._required_action: RequiredAction | None = None
        self._hidden = False
        self._on_status_changed = on_status_changed
        self._tasks = TaskSet(f"server {definition.name}")
        known_era = stored.era if stored is not None else None
        self._connection = ReconnectingClient(self._connect, self._state_changed, known_era=known_era)
        self._other_era = OtherEra(
            definition.name, self._open_other_era, self.redactor.clean, has_root=self._opener.root is not None
        )
        self._starts = starts or StartQueue()
        self._is_urgent = False
        self._connected_at = 0.0
        self._on_listed = on_listed
        self._review = review or ServeAll()
        self._server_catalog = ServerCatalog(
            self.redactor.warn,
            self._tasks,
            self._connection.fail,
            lambda: self._on_listed(self),
            self.redactor.log,
            stored,
            self._review,
        )
        self.changes = self._server_catalog.changes
        self._start_task: asyncio.Task[bool] | None = None
        self._watchers = ResourceSubscriptions(self.redactor.warn)
        self._idle_timer = IdleTimer(definition.idle_seconds, self._is_busy, self._on_idle)
        self.touch = self._idle_timer.touch
        self._liveness = LivenessCheck(self._tasks, lambda: bool(self.limiter.running), self._fail)

    # Interface for views

    @property
    def catalog(self) -> Catalog | None:
        return None if self.is_disconnected or self._hidden else self._server_catalog.catalog

    @property
    def listed(self) -> Catalog | None:
        """What the server listed last, with what is withheld; None while its catalog must not be shown."""
        return self._server_catalog.listed if self.catalog is not None else None

    @property
    def client(self) -> Client | None:
        return self._connection.connected

    def has_client(self, client: Client) -> bool:
        """Return whether `client` is connected to this server."""
        return client is self._connection.connected or client is self._other_era.connected

    @property
    def is_starting(self) -> bool:
        return self.status == "pending" and self._is_start_running()

    @property
    def connection_era(self) -> Era | None:
        return self._connection.era

    def use(self, *, current: bool = False) -> asyncio.Future[bool] | None:
        """Start the server if necessary. Return what to wait for until it can be listed, None if it can be now.

        A server that starts shows its last catalog at once; if the new one differs, the views are notified. With
        `current` that does not suffice, and the start is not delayed by others.
        """
        self.touch()
        if self._connection.connected is not None:
            return self._server_catalog.refresh()
        if self.is_disconnected or self._connection.is_paused:
            return None
        if current:
            self._hurry()
        if not self._is_start_running():
            self._start_task = self._tasks.start(self._connection.can_connect(), "start")
        return None if self.catalog is not None and not current else self._start_task

    @property
    def may_ask(self) -> bool:
        """Whether it may ask something during a call."""
        return self.client is None or not self.client.modern

    def fast_path(self, call: Call, params: Mapping[str, Any]) -> ServerFastPath | None:
        """Return the fast path for calls like `call`, or None if there is none."""
        client = self._connection.connected
        if client is not None and self._other_era.is_needed(call, client, self._connection.era):
            client = self._other_era.connected
        return find_fast_path(self, client, call, params)

    async def handle(
        self, call: Call, params: Mapping[str, Any], started: StartedCall = NOT_STARTED
    ) -> Raw | Mapping[str, Any]:
        """Relay a call to the server and return the result. `started` is a call that has been sent already."""
        client, sent = started
        if sent is None and not self.limiter.try_enter(call.caller):
            await self.limiter.enter(call.caller)
        try:
            if self.is_disconnected and sent is None:  # it may have been disconnected while this call waited
                raise RookeryError("server-unavailable", "it is disconnected", f"rookery mcp connect {self.name}")
            client = client or await self._find_client(call)
            return await Relay(call, self._opener.root).call(client, params, sent)
        except RookeryError as error:
            self._liveness.on_call_failed(error, client or self._connection.connected)
            if client is not None and error.code == "needs-auth":
                error = self._on_refused(client, error)
            raise self.redactor.clean_error(error, f'MCP server "{self.name}": ') from None
        finally:
            self.limiter.leave(call.caller)
            self.touch()

    def list_problems(self) -> list[str]:
        """Return which definitions of the server were repaired or left out, and why."""
        catalog = self._server_catalog.catalog
        found = catalog.problems.values() if catalog is not None else ()
        return [self.redactor.clean(problem) for problems in found for problem in problems]

    def list_findings(self) -> list[str]:
        """Return what the scanner found in the definitions of the server."""
        return [self.redactor.clean(finding) for finding in self._review.list_findings()]

    def diagnosis(self) -> list[str]:
        """Return the warnings, and the problems of its lists and of the current or the last connection."""
        troubles = self._last_client.list_problems() if self._last_client is not None else self._last_problems
        return [*self.redactor.warnings, *self.list_problems(), *map(self.redactor.clean, troubles)]

    def failure(self) -> RookeryError:
        """Return the error that says why the server cannot be used now."""
        message = f'MCP server "{self.name}" failed: {self.error or self.status}'
        return RookeryError("upstream-failed", message, f"rookery mcp get {self.name}")

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        """Replace the resources that `watcher` is subscribed to."""
        if self._watchers.set(watcher, uris):
            for client in (self._connection.connected, self._other_era.connected):
                if client is not None:
                    self._tasks.start(self._watchers.subscribe(client), "watch")

    # Lifecycle

    async def review_again(self) -> None:
        """Decide again what is served of the catalog, after a decision of the user."""
        if await self._server_catalog.review_again():
            self._on_status_changed(self)

    async def connect(self) -> None:
        """Connect now, regardless of earlier failures. Raise the error if that fails."""
        self.is_disconnected = False
        self._connection.retry_now()
        self.touch()
        with self.redactor.clean_errors():
            await self._get_client()

    async def disconnect(self) -> None:
        """Stop the server, and keep it stopped until `connect` is called."""
        self.is_disconnected = True
        await self._stop_connections()
        self._server_catalog.publish(visible=False)

    def retire(self) -> None:
        """Stop reporting status changes, because the server was replaced or removed."""
        self._on_status_changed = _ignore

    async def close(self) -> None:
        self._idle_timer.close()
        await self._tasks.close()
        await asyncio.gather(self._connection.close(), self._other_era.close())

    async def on_sign_in_changed(self, keep_connection: bool) -> None:
        """Reconnect, if necessary, after the sign-in changed.

        With `keep_connection`, an existing connection is kept.
        """
        if self._connection.connected is not None and not keep_connection:
            await self._stop_connections()
        elif self.is_disconnected or self._connection.connected is not None or self._required_action is None:
            return  # the next request uses the new sign-in
        self._connection.retry_now()
        await self._connection.can_connect()

    # Connecting

    def _is_start_running(self) -> bool:
        return self._start_task is not None and not self._start_task.done()

    async def _get_client(self) -> Client:
        """Return the connected client. A start is not delayed by others."""
        self._hurry()
        return await self._connection.get_client()

    async def _find_client(self, call: Call) -> Client:
        """Return the client for a call, connected: that of the main connection, unless the call needs another era."""
        main = self._connection.connected or await self._get_client()
        if self._other_era.is_needed(call, main, self._connection.era):
            return await self._other_era.get_client(main) or main
        return main

    async def _fail(self, client: Client, error: RookeryError) -> None:
        """Disconnect a client that is unusable."""
        await self._connection.fail(client, error)
        await self._other_era.fail(client, error)

    async def _stop_connections(self) -> None:
        await asyncio.gather(self._connection.stop(), self._other_era.stop())

    def _hurry(self) -> None:
        self._is_urgent = True
        self._starts.hurry(self)

    async def _connect(self, known: Era | None) -> tuple[Client, Era]:
        self._required_action = None
        # A remote server costs this machine next to nothing.
        async with self._starts.slot(self, urgent=self._is_urgent or self.definition.kind == "remote"):
            return await self._open(known)

    async def _open(self, known: Era | None) -> tuple[Client, Era]:
        try:
            client, era = await self._opener.open(known, self._server_catalog.on_notification)
        except UserActionRequired as error:
            self._required_action = error.status
            raise
        self._tasks.start(self._opener.enable_logs(client), "logs")
        try:
            await self._server_catalog.list_all(client)
            await self._watchers.subscribe(client)
        except BaseException:
            await client.close()
            raise
        return client, era

    async def _open_other_era(self, era: Literal["modern", "handshake"]) -> Client:
        """Open a second connection, in this era. What it reports of lists and resources counts as well."""
        async with self._starts.slot(self._other_era, urgent=True):
            client, _ = await self._opener.open(None, self._server_catalog.on_notification, era)
        self._tasks.start(self._opener.enable_logs(client), "logs")
        self._tasks.start(self._watchers.subscribe(client), "watch")
        if self._connection.era == "modern":
            self._connection.era = "both"
            self._on_listed(self)
        return client

    def _on_refused(self, client: Client, error: RookeryError) -> UserActionRequired:
        refusal = self._opener.sign_in_error(error)
        if refusal.blocks_server:
            self._required_action = refusal.status
            self._tasks.start(self._fail(client, refusal), "refused")
        return refusal

    def _state_changed(self, state: ConnectionState, error: str | None) -> None:
        # The first failure is shown as "failed", repeated ones as "backoff".
        self.status = "failed" if state == "backoff" and self._connection.failures < 2 else state
        if self._required_action is not None and self.status in _HIDDEN_STATUSES:
            self.status = self._required_action
        self.error = self.redactor.clean(error) if error is not None else None
        is_restarted = self._is_worth_restarting()
        # During a retry the visibility of the last attempt remains, and after a crash that of the server before it.
        if state != "pending" and not is_restarted:
            self._hidden = self.status in _HIDDEN_STATUSES
            self._server_catalog.publish(visible=self.catalog is not None)
        self._server_catalog.set_client(self._connection.connected)
        if state != "pending":
            self._is_urgent = False
        if (client := self._connection.connected) is not None:
            self.touch()  # starting may have taken longer than the idle limit
            self._connected_at = self._idle_timer.last_used
            self._last_client = client
            self.era = "HTTP+SSE" if self._connection.era == "sse" else client.revision
            self._on_listed(self)
        elif self._last_client is not None:
            self._last_client, self._last_problems = None, self._last_client.list_problems()
        self._on_status_changed(self)
        if is_restarted:
            self.redactor.warn(f"it was started again, because it ended: {error}")
            self._connection.retry_now()
            self._start_task = self._tasks.start(self._connection.can_connect(), "restart")

    def _is_worth_restarting(self) -> bool:
        """Return whether the server has just crashed for the first time in a row, and was used since it started."""
        crashed = self._last_client is not None and self._last_client.close_reason is not None
        is_used = self.limiter.running > 0 or self._idle_timer.last_used > self._connected_at
        return (
            self._connection.connected is None
            and self.status == "failed"
            and crashed
            and is_used
            and not self.is_disconnected
        )

    def _is_busy(self) -> bool:
        return bool(self.limiter.running or self._watchers)

    def _on_idle(self) -> None:
        if self._connection.connected is not None:
            logger.info("%s was idle for %g s and was stopped", self.name, self.definition.idle_seconds)
            self._tasks.start(self._stop_connections(), "stop")
