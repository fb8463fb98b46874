"""The one interface between the wire and whatever answers: a toolset, a server behind the gateway, a test's fixture."""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Raw

from rookery.wire import revisions
from rookery.wire.jsonrpc import METHOD_NOT_FOUND, MISSING_CAPABILITY, Params, WireError, value_of

Change = Literal["tools", "prompts", "resources"]


class Client(msgspec.Struct, frozen=True):
    """Who is calling, as far as it has said so."""

    revision: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any]
    # Follows from the revision; asked for several times a call.
    modern: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "modern", self.revision in revisions.MODERN)

    def must_have(self, method: str) -> None:
        """Refuse to ask a client what it has not said it can answer."""
        capability = revisions.CAPABILITY_OF.get(method)
        if capability is None:
            raise WireError(METHOD_NOT_FOUND, f"no client is asked {method}")
        if capability not in self.capabilities:
            raise WireError(
                MISSING_CAPABILITY,
                f"this needs a client with the capability {capability}",
                {"requiredCapabilities": {capability: {}}},
            )


@dataclass(frozen=True)
class Ask:
    """A question to the client: elicitation/create, sampling/createMessage or roots/list."""

    method: str
    params: Mapping[str, Any] | Raw


class InputNeeded(Exception):
    """Ends a modern call: the client is to answer and to call again, and carries the answers that it gave before."""

    def __init__(self, asks: Mapping[str, Ask], answers: Mapping[str, Raw]) -> None:
        super().__init__("input needed")
        self.asks = dict(asks)
        self.answers = dict(answers)


class Call(Protocol):
    """One request that is being worked on. It is cancelled as the task that works on it."""

    method: str
    params: Params
    meta: Params
    client: Client
    log_level: str | None
    # Equal for all calls of one client, as far as clients can be told apart: each modern request is one of its own.
    caller: str
    # The id of the handshake session.
    session: str | None
    # By whose token it comes: `owner`, or the name of a workspace's own.
    owner: str
    # What it came over, where its client is gone for good when that ends; one request of HTTP is no such thing.
    connection: object | None
    # Whether it goes on with a request of its client's that is not its first.
    resumed: bool

    @property
    def askable(self) -> bool:
        """Whether its client can be asked while it goes on, and not only by ending it."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | Raw) -> None:
        """Send something that belongs to this call before its answer."""
        ...

    async def ask(self, asks: Mapping[str, Ask]) -> Mapping[str, Any]:
        """Ask the client; the answers by the same keys.

        A modern client answers by calling again, with a new call that runs from its beginning: do nothing before
        this that must not be done twice. Its `inputResponses` and `requestState` are opened here and not before: who
        relays the questions of another server leaves them unopened, and answers with that server's own result.
        """
        ...

    async def ask_raw(self, asks: Mapping[str, Ask]) -> Mapping[str, Raw]:
        """The same, with the answers as they came."""
        ...


async def report_progress(call: Call, progress: float, total: float | None = None, message: str | None = None) -> None:
    """Tell a client that asked for it how far a call is."""
    token = call.meta.get("progressToken")
    if token is None:
        return
    params: dict[str, Any] = {"progressToken": value_of(token, "progressToken"), "progress": progress}
    if total is not None:
        params["total"] = total
    if message is not None:
        params["message"] = message
    await call.notify("notifications/progress", params)


def wants_log(call: Call, level: str) -> bool:
    """Whether the client wants log messages of this level."""
    levels = revisions.LOG_LEVELS
    return call.log_level is not None and levels.index(level) >= levels.index(call.log_level)


async def report_log(call: Call, level: str, data: Any, logger: str | None = None) -> None:
    """Send a log message to a client that wants messages of this level."""
    if not wants_log(call, level):
        return
    params = {"level": level, "data": data} | ({"logger": logger} if logger else {})
    await call.notify("notifications/message", params)


@dataclass
class Changes:
    """Tells whoever listens that a list or a resource is no longer what it was; and the provider, what is watched."""

    # Called with all resources that any client watches, whenever these have changed.
    on_watched: Callable[[frozenset[str]], None] | None = None
    _listeners: set[Callable[[str, str | None], None]] = field(default_factory=set[Callable[[str, str | None], None]])
    _watchers: Counter[str] = field(default_factory=Counter[str])

    def listen(self, call: Callable[[str, str | None], None]) -> Callable[[], None]:
        """`call` gets the method of the notification and, for a resource, its URI; answers how to stop listening."""
        self._listeners.add(call)
        return lambda: self._listeners.discard(call)

    def list_changed(self, kind: Change) -> None:
        self._tell(f"notifications/{kind}/list_changed", None)

    def resource_updated(self, uri: str) -> None:
        self._tell("notifications/resources/updated", uri)

    @property
    def watched(self) -> frozenset[str]:
        return frozenset(self._watchers)

    def is_watched(self, uri: str) -> bool:
        return uri in self._watchers

    def watch(self, *uris: str) -> None:
        """One client more is interested in these."""
        before = len(self._watchers)
        self._watchers.update(uris)
        if self.on_watched is not None and len(self._watchers) > before:
            self.on_watched(self.watched)

    def unwatch(self, *uris: str) -> None:
        """One client less."""
        before = len(self._watchers)
        for uri in uris:
            self._watchers[uri] -= 1
            if self._watchers[uri] <= 0:
                del self._watchers[uri]
        if self.on_watched is not None and len(self._watchers) < before:
            self.on_watched(self.watched)

    def _tell(self, method: str, uri: str | None) -> None:
        for listener in list(self._listeners):
            listener(method, uri)


class Provider(Protocol):
    """What answers requests. The wire itself answers what belongs to the connection: handshake, ping, subscriptions."""

    @property
    def info(self) -> Mapping[str, Any]:
        """name and version, and what else serverInfo may have."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]: ...

    @property
    def instructions(self) -> str | None: ...

    @property
    def changes(self) -> Changes: ...

    def handle(self, call: Call) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        """The result: the bytes of an object as they came from elsewhere, or one to be written. Or a WireError."""
        ...

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments, where it is at hand: headers are checked against it."""
        ...
