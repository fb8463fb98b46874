"""Calls of tools that come as others did before them are sent on and answered without a task."""

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Raw
from starlette.types import ASGIApp

from rookery.wire import modern, revisions
from rookery.wire.brief import Brief, Known
from rookery.wire.exchange import Exchange
from rookery.wire.head import Head
from rookery.wire.jsonrpc import Request, WireError, check, decode
from rookery.wire.service import Service
from rookery.wire.session import Session
from rookery.wire.way import Ways

# So many calls pass before one that found no way is looked at again: twice as many each time, up to the most.
_MOST_REST = 1024
_MOST_KNOWN = 256

# The tool, what `_meta` says, and the level of log that the session wants.
_Key = tuple[str, bytes, str | None]


class _Params(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: Raw
    meta: Raw = msgspec.field(default=Raw(), name="_meta")


class _Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The usual call. One that has more to say is none for a lane."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _Params


_decode = msgspec.json.Decoder(_Message).decode


class Lane:
    """For requests with one and the same head. `holds` tells whether they still lead here."""

    __slots__ = (
        *("_app_for", "_head", "_holds", "_known", "_owner", "_rests", "_service", "_session", "_version", "_ways"),
        "lapsed",
    )

    def __init__(
        self,
        app_for: Callable[[Brief], ASGIApp],
        service: Service,
        ways: Ways,
        head: Head,
        owner: str,
        holds: Callable[[], bool],
    ) -> None:
        self.lapsed = False
        self._app_for = app_for
        self._service = service
        self._ways = ways
        self._head = head
        self._owner = owner
        self._holds = holds
        self._version, session = (_text(head, name) for name in (b"mcp-protocol-version", b"mcp-session-id"))
        self._session = None if self._version in revisions.MODERN else session or ""
        self._known: dict[_Key, Known] = {}
        # How many calls are to pass before the next look, and how many passed before the last one.
        self._rests: dict[_Key, tuple[int, int]] = {}

    def take(self, body: bytes, exchange: Exchange) -> bool:
        """Whether this is a call that is under way now; nothing has happened if it is not."""
        service = self._service
        if service.closing or not self._holds():
            self.lapsed = True
            return False
        try:
            check(body)
            found = _decode(body)
        except (WireError, msgspec.DecodeError, RecursionError):
            return False
        session, level = None, None
        if self._session is not None:
            session = service.sessions.find(self._session, self._owner)
            if session is None or found.id in session.calls:
                return False
            level = session.log_level
        params = found.params
        key = params.name, bytes(params.meta), level
        known = self._known.get(key)
        if known is None or not known.way.holds():
            known = self._look(key, body, session)
            if known is None:
                return False
        return Brief(self._app_for, service, known, session, found.id, body, exchange).send(params.arguments)

    def _look(self, key: _Key, body: bytes, session: Session | None) -> Known | None:
        """For a way. Not at the first call: perhaps no other will be like it."""
        left, before = self._rests.get(key, (1, 1)) if key not in self._known else (0, 1)
        if left:
            if len(self._rests) >= _MOST_KNOWN:
                self._rests.clear()
            self._rests[key] = left - 1, before
            return None
        try:
            known = self._found(key[0], body, session)
        except Exception:  # whatever it is, a task tells it better
            known = None
        if known is None:
            self._known.pop(key, None)
            again = min(2 * before, _MOST_REST)
            self._rests[key] = again, again
            return None
        self._rests.pop(key, None)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = known
        return known

    def _found(self, name: str, body: bytes, session: Session | None) -> Known | None:
        (request,) = decode(body)
        if not isinstance(request, Request) or not self._is_clear(request):
            return None
        service, told = self._service, None
        if session is not None:
            call = service.handshake_call(session, request, _say_nothing)
        else:
            told, params = modern.classify(request, self._head, service.provider, service.declarations)
            call = service.modern_call(request, told, params, self._owner, _say_nothing)
            schema = service.provider.input_schema(name)
            if schema is not None and service.declarations.of(name, schema):
                return None  # arguments that are to stand in headers too
        # Whoever wants to hear of progress is served by a task from the beginning.
        way = self._ways.way(call) if "progressToken" not in call.meta else None
        return Known(way, self._owner, call.client, told) if way is not None else None

    def _is_clear(self, request: Request) -> bool:
        """Whether the head alone tells the era, and the body says nothing else."""
        if self._version is None:
            return not modern.has_envelope(request)
        return self._version in revisions.ALL


async def _say_nothing(message: bytes) -> None:
    """It is only looked at, and never made."""


def _text(head: Head, name: bytes) -> str | None:
    found = head.first(name)
    return found.decode("latin-1").strip() if found is not None else None
