"""A call that is served without a task, from an HTTP request to a server and back, unless it turns out otherwise."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec import Raw
from starlette.types import ASGIApp

from rookery.wire.calls import finish
from rookery.wire.exchange import Exchange
from rookery.wire.http_server import ONLY_JSON
from rookery.wire.jsonrpc import Id, Request, decode, encode_result, object_of
from rookery.wire.modern import Told
from rookery.wire.provider import Call, Client
from rookery.wire.questions import inputs_asked
from rookery.wire.sent import Sent
from rookery.wire.service import Service
from rookery.wire.session import Session
from rookery.wire.traffic import Came, Traffic
from rookery.wire.way import Way

logger = logging.getLogger("rookery.mcp.wire")


class Known:
    """What is known of calls that are alike. `told` is for those of the modern era."""

    __slots__ = ("client", "owner", "told", "way")

    def __init__(self, way: Way, owner: str, client: Client, told: Told | None) -> None:
        self.way = way
        self.owner = owner
        self.client = client
        self.told = told


class Brief(Sent):
    """`app_for` has it answered in a task, where that is needed after all."""

    __slots__ = ("_app_for", "_exchange", "_id", "_known", "_service", "body", "came", "session")

    def __init__(
        self,
        app_for: Callable[["Brief"], ASGIApp],
        service: Service,
        known: Known,
        session: Session | None,
        id_: Id,
        body: bytes,
        exchange: Exchange,
    ) -> None:
        self._app_for = app_for
        self._service = service
        self._known = known
        self.session = session
        self._id = id_
        self.body = body
        self._exchange = exchange

    def send(self, arguments: Raw) -> bool:
        """Whether it is under way."""
        if not self._known.way.send(arguments, self):
            return False
        if self.session is not None:
            self.session.calls[self._id] = self
        else:
            self._service.calls.add(self)
        traffic = self._service.traffic
        self.came = self._noted(traffic) if traffic is not None else None
        self._exchange.on_lost(self.go_on)
        return True

    def request(self) -> Request:
        (request,) = decode(self.body)
        assert isinstance(request, Request)
        return request

    def _noted(self, traffic: Traffic) -> Came:
        if self.session is None:
            traffic.saw((self._known.owner, self.told.who))
        request = self.request()
        return traffic.came(request, object_of(request.params))

    @property
    def caller(self) -> str:
        """Each modern request is one of its own."""
        return self.session.id if self.session is not None else f"brief {self.number}"

    @property
    def told(self) -> Told:
        assert self._known.told is not None
        return self._known.told

    def handle(self, call: Call) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        return self._known.way.handle(call, self)

    def leave(self) -> None:
        """It is no longer what is to be cancelled."""
        if self.session is not None:
            self.session.calls.pop(self._id, None)
        else:
            self._service.calls.discard(self)

    def finishes(self, result: Raw) -> bool:
        known = self._known
        try:
            if known.way.rounds and inputs_asked(result) is not None:
                return False
            message = encode_result(self._id, finish(result, "tools/call", known.client, self._service.provider))
        except Exception:  # whatever it is, a task tells it better
            return False
        self.release()
        self.leave()
        known.way.answered()
        if self.came is not None and self._service.traffic is not None:
            self._service.traffic.went(self.came, message, 0)
        try:
            self._exchange.answer(200, ONLY_JSON, message)
        except Exception:  # the reading of other answers must not end with this one
            logger.exception("an answer could not be written")
            self._exchange.connection.abort()
        return True

    def call_task(self) -> None:
        self._exchange.app = self._app_for(self)
        self._exchange.connection.start(self._exchange)
