"""The handshake era: a client says hello once, and the server remembers it by a session."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.wire import revisions
from rookery.wire.jsonrpc import CONNECTION_CLOSED, INVALID_PARAMS, Params, WireError, text_of
from rookery.wire.provider import Client, Provider
from rookery.wire.sent import Sent
from rookery.wire.session import Session
from rookery.wire.streams import News


class Sessions:
    """All sessions of one endpoint: capped in number, and forgotten when idle for long, but never while busy."""

    def __init__(
        self,
        provider: Provider,
        *,
        cap: int = 10_000,
        idle_seconds: float = 1800.0,
        clock: Clock = SYSTEM_CLOCK,
        on_end: Callable[[Session], None] | None = None,
    ) -> None:
        # Called once for each session, whatever ended it; an idle one ends when the next client comes, or by `expire`.
        self.on_end = on_end
        self._provider = provider
        self._cap = cap
        self._idle_seconds = idle_seconds
        self._clock = clock
        # The one used longest ago first.
        self._known: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id_: str) -> bool:
        return id_ in self._known

    @property
    def on_connections(self) -> int:
        """How many are those of connections that carry messages both ways, and end with them."""
        return sum(isinstance(session.standing, News) for session in self._known.values())

    def calls(self) -> set[asyncio.Task[Any] | Sent]:
        """Those of all sessions that are under way."""
        return {task for session in self._known.values() for task in session.calls.values()}

    def open(self, params: Params, owner: str) -> tuple[Session, dict[str, Any]]:
        """Answer `initialize`: the session, and the result."""
        self.expire()
        if len(self._known) >= self._cap:
            raise WireError(CONNECTION_CLOSED, f"there are {self._cap} sessions already; end one, or try again later")
        wanted = text_of(params, "protocolVersion")
        revision = wanted if wanted in revisions.HANDSHAKE else revisions.LATEST_HANDSHAKE
        try:
            capabilities = msgspec.json.decode(params.get("capabilities", b"{}"), type=dict[str, Any])
            info = msgspec.json.decode(params.get("clientInfo", b"{}"), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise WireError(INVALID_PARAMS, f"initialize does not fit: {error}") from None
        session = Session(Client(revision, capabilities, info), owner, self._provider, self._clock.monotonic())
        self._known[session.id] = session
        return session, hello(self._provider, revision)

    def find(self, id_: str, owner: str) -> Session | None:
        """A session by its id, which is worth nothing without the credential it was opened with."""
        now = self.expire()
        session = self._known.get(id_)
        if session is None or session.owner != owner:
            return None
        session.used = now
        self._known.move_to_end(id_)
        return session

    def close(self, session: Session) -> None:
        """End a session, if nothing has ended it already."""
        if self._known.pop(session.id, None) is None:
            return
        session.end()
        if self.on_end is not None:
            self.on_end(session)

    def expire(self) -> float:
        """Forget what has been idle for too long; a look at the oldest is enough in most cases. Answers the time."""
        now = self._clock.monotonic()
        while self._known:
            session = next(iter(self._known.values()))
            if session.used + self._idle_seconds > now:
                break
            if session.busy:
                session.used = now
                self._known.move_to_end(session.id)
            else:
                self.close(session)
        return now

    def close_all(self) -> None:
        for session in list(self._known.values()):
            self.close(session)


def hello(provider: Provider, revision: str) -> dict[str, Any]:
    """The result of `initialize`."""
    found: dict[str, Any] = {
        "protocolVersion": revision,
        "capabilities": provider.capabilities,
        "serverInfo": provider.info,
    }
    return found | ({"instructions": provider.instructions} if provider.instructions else {})
