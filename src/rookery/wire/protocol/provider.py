"""The interface between the MCP transports and the providers that handle requests.

Providers are toolsets, servers behind the gateway, and fixtures of tests.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Raw

from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import METHOD_NOT_FOUND, MISSING_CAPABILITY, Params, WireError, decode_value

ListKind = Literal["tools", "prompts", "resources"]


class ClientProfile(msgspec.Struct, frozen=True):
    """What the client of a call has said about itself."""

    revision: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any]
    # Derived from the revision, and stored because it is read several times per call.
    modern: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "modern", self.revision in revisions.MODERN)

    def require_capability(self, method: str) -> None:
        """Raise WireError unless the client has the capability that a question of this method requires."""
        capability = revisions.REQUIRED_CAPABILITIES.get(method)
        if capability is None:
            raise WireError(METHOD_NOT_FOUND, f"{method} is not a request to a client")
        if capability not in self.capabilities:
            raise WireError(
                MISSING_CAPABILITY,
                f"the client must have the capability {capability}",
                {"requiredCapabilities": {capability: {}}},
            )


@dataclass(frozen=True)
class ClientQuestion:
    """A question to the client: elicitation/create, sampling/createMessage or roots/list."""

    method: str
    params: Mapping[str, Any] | Raw


class InputNeeded(Exception):
    """Ends a modern call with questions to the client.

    The client answers by calling again. It also carries the answers that it gave before.
    """

    def __init__(self, questions: Mapping[str, ClientQuestion], answers: Mapping[str, Raw]) -> None:
        super().__init__("input needed")
        self.questions = dict(questions)
        self.answers = dict(answers)


class Call(Protocol):
    """One request that a provider handles. It is cancelled by cancelling the task that handles it."""

    method: str
    params: Params
    meta: Params
    client: ClientProfile
    log_level: str | None
    # Equal for all calls of one client, as far as clients can be identified. Each modern request has its own value.
    caller: str
    # The id of the handshake session, if there is one.
    session: str | None
    # The principal whose token the call used: `owner`, or the name of a workspace.
    owner: str
    # The session of an agent in which the call is made, as its program says; None if it does not say.
    conversation: str | None
    # The connection of the call, if the client is gone for good when it ends. None for a single HTTP request.
    connection: object | None
    # Whether this call continues an earlier request of the client.
    resumed: bool

    @property
    def can_ask(self) -> bool:
        """Whether the client can be asked while the call runs, and not only by ending the call."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | Raw) -> None:
        """Send a notification that belongs to this call before its response."""
        ...

    async def ask(self, questions: Mapping[str, ClientQuestion]) -> Mapping[str, Any]:
        """Ask the client, and return the decoded answers by the same keys.

        A modern client answers by calling again, with a new call that runs from its beginning: do nothing before `ask`
        that must not be done twice. Only this method opens the `inputResponses` and `requestState` of such a call. A
        provider that relays the questions of another server leaves them unopened, and returns that server's own result.
        """
        ...

    async def ask_raw(self, questions: Mapping[str, ClientQuestion]) -> Mapping[str, Raw]:
        """Ask the client like `ask`, and return the answers undecoded."""
        ...


async def report_progress(call: Call, progress: float, total: float | None = None, message: str | None = None) -> None:
    """Send a progress notification, if the client asked for progress of this call."""
    token = call.meta.get("progressToken")
    if token is None:
        return
    params: dict[str, Any] = {"progressToken": decode_value(token, "progressToken"), "progress": progress}
    if total is not None:
        params["total"] = total
    if message is not None:
        params["message"] = message
    await call.notify("notifications/progress", params)


def wants_log(call: Call, level: str) -> bool:
    """Return whether the client wants log messages of this level."""
    levels = revisions.LOG_LEVELS
    return call.log_level is not None and levels.index(level) >= levels.index(call.log_level)


async def report_log(call: Call, level: str, data: Any, logger: str | None = None) -> None:
    """Send a log message, if the client wants messages of this level."""
    if not wants_log(call, level):
        return
    params = {"level": level, "data": data} | ({"logger": logger} if logger else {})
    await call.notify("notifications/message", params)


@dataclass
class ChangeNotifier:
    """Notifies listeners of changed lists and resources.

    It also notifies the provider of which resources are watched.
    """

    # Called with all watched resources whenever that set has changed.
    on_watched_changed: Callable[[frozenset[str]], None] | None = None
    _listeners: set[Callable[[str, str | None], None]] = field(default_factory=set[Callable[[str, str | None], None]])
    _watchers: Counter[str] = field(default_factory=Counter[str])

    def listen(self, listener: Callable[[str, str | None], None]) -> Callable[[], None]:
        """Add a listener and return a function that removes it.

        `listener` gets the method of the notification and, for a resource, its URI.
        """
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def list_changed(self, kind: ListKind) -> None:
        self._notify(f"notifications/{kind}/list_changed", None)

    def resource_updated(self, uri: str) -> None:
        self._notify("notifications/resources/updated", uri)

    @property
    def watched(self) -> frozenset[str]:
        return frozenset(self._watchers)

    def is_watched(self, uri: str) -> bool:
        return uri in self._watchers

    def watch(self, *uris: str) -> None:
        """Count one more client that watches these resources."""
        before = len(self._watchers)
        self._watchers.update(uris)
        if self.on_watched_changed is not None and len(self._watchers) > before:
            self.on_watched_changed(self.watched)

    def unwatch(self, *uris: str) -> None:
        """Count one client less that watches these resources."""
        before = len(self._watchers)
        for uri in uris:
            self._watchers[uri] -= 1
            if self._watchers[uri] <= 0:
                del self._watchers[uri]
        if self.on_watched_changed is not None and len(self._watchers) < before:
            self.on_watched_changed(self.watched)

    def _notify(self, method: str, uri: str | None) -> None:
        for listener in list(self._listeners):
            listener(method, uri)


class Provider(Protocol):
    """Handles MCP requests.

    The transports themselves handle the requests that belong to a connection: handshake, ping and subscriptions.
    """

    @property
    def info(self) -> Mapping[str, Any]:
        """The `serverInfo`: name and version, and optional members."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]: ...

    @property
    def instructions(self) -> str | None: ...

    @property
    def changes(self) -> ChangeNotifier: ...

    def handle(self, call: Call) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        """Return the result of a call: raw bytes of an object as received elsewhere, or an object to encode.

        Raise WireError to respond with an error.
        """
        ...

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's arguments, if it is available: headers are checked against it."""
        ...
