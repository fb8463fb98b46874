"""How one request of either era is served, whatever brought it, and what all transports of an endpoint share."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rookery.wire import headers as mirrored, modern, revisions
from rookery.wire.calls import CANCELLED, RunningCall, answer, finish, params_of
from rookery.wire.head import Head
from rookery.wire.jsonrpc import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Params,
    Request,
    WireError,
    encode_notification,
    encode_result,
    object_of,
)
from rookery.wire.provider import Client, Provider
from rookery.wire.sealing import Seal
from rookery.wire.session import Session
from rookery.wire.sessions import Sessions
from rookery.wire.streams import Beat, News, Sender, relay

Task = asyncio.Task[Any]
# Whether the client is.
Lost = Callable[[], bool]

SHUTTING_DOWN = WireError(CONNECTION_CLOSED, "shutting down")


class Service:
    """One provider, its sessions, and everything that is under way."""

    def __init__(self, provider: Provider, sessions: Sessions | None = None, seal: Seal | None = None) -> None:
        self.provider = provider
        self.sessions = sessions if sessions is not None else Sessions(provider)
        self.closing = False
        self._goodbye = SHUTTING_DOWN
        # Called when it closes, by connections that are to say goodbye.
        self.on_close: set[Callable[[], object]] = set()
        self._seal = seal or Seal()
        self._declarations = mirrored.Declarations()
        self._calls: set[Task] = set()
        self._subscriptions: set[News] = set()

    @property
    def idle(self) -> bool:
        """Whether nobody would miss it."""
        return not (len(self.sessions) or self._calls or self._subscriptions or self.on_close)

    def under_way(self) -> set[Task]:
        """The calls that somebody waits for."""
        return self._calls | self.sessions.calls()

    def close(self, reason: str = SHUTTING_DOWN.message) -> None:
        """End every call with the reason as its error, every subscription with its result, and every connection."""
        self.closing = True
        self._goodbye = WireError(CONNECTION_CLOSED, reason)
        self.sessions.close_all()
        for task in self._calls:
            task.cancel(reason)
        for news in self._subscriptions:
            news.end()
        for call in list(self.on_close):
            call()

    # ---- the handshake era

    async def handshake(
        self, session: Session, request: Request, send: Sender, ask: Sender, lost: Lost, task: Task | None = None
    ) -> bytes:
        """The answer to a call of a handshake client, whatever happens to it; but none once the client is lost."""
        if request.id in session.calls:
            return in_use(request).encoded(request.id)
        if session.ended:
            return WireError(CONNECTION_CLOSED, "the session has ended").encoded(request.id)
        task = session.calls[request.id] = task or current_task()
        try:
            if _connection_answers(session, request):
                return encode_result(request.id, b"{}")
            params, meta = params_of(request.params)
            question = functools.partial(session.question, ask)
            call = RunningCall(
                request.id,
                request.method,
                params,
                meta,
                session.client,
                session.log_level,
                send,
                self._seal,
                session.owner,
                session.id,
                question,
            )
            return (await answer(self.provider, call))[0]
        except WireError as error:
            return error.encoded(request.id)
        except asyncio.CancelledError:
            return self._cancelled(task, lost()).encoded(request.id)
        finally:
            session.calls.pop(request.id, None)

    # ---- the modern era

    async def modern(
        self,
        request: Request,
        head: Head | None,
        owner: str,
        send: Sender,
        *,
        lost: Lost,
        still_here: Beat | None = None,
        task: Task | None = None,
    ) -> tuple[bytes, int]:
        """The answer to a modern request, and the code of its error, 0 for none. No headers where there are none."""
        task = task or current_task()
        self._calls.add(task)
        try:
            told, params = modern.classify(request, head, self.provider, self._declarations)
            if request.method == "server/discover":
                return self._finished(request, told.client, modern.discovered(self.provider))
            if request.method == "subscriptions/listen":
                self._calls.discard(task)  # it has an end of its own
                return await self._listen(request, told.client, params, send, still_here)
            about = told.meta.copy(), told.client, told.log_level  # of which others may have been told the same
            call = RunningCall(request.id, request.method, params, *about, send, self._seal, owner)
            return await answer(self.provider, call)
        except WireError as error:
            return error.encoded(request.id), error.code
        except asyncio.CancelledError:
            error = self._cancelled(task, lost())
            return error.encoded(request.id), error.code
        finally:
            self._calls.discard(task)

    async def _listen(
        self, request: Request, client: Client, params: Params, send: Sender, still_here: Beat | None
    ) -> tuple[bytes, int]:
        """A subscription: acknowledged first, then every change that was asked for, until one side ends it."""
        asked, honoured = modern.filter_of(params, self.provider)
        news = News()
        tag = {"_meta": {revisions.META_SUBSCRIPTION: request.id}}

        def tell(method: str, params: Mapping[str, Any]) -> None:
            news.push(encode_notification(method, msgspec.json.encode({**params, **tag})))

        def changed(method: str, uri: str | None) -> None:
            if asked.wants(method, uri):
                tell(method, {"uri": uri} if uri is not None else {})

        tell("notifications/subscriptions/acknowledged", {"notifications": honoured})
        watched = set(asked.resource_subscriptions)
        self.provider.changes.watch(*watched)
        stop = self.provider.changes.listen(changed)
        self._subscriptions.add(news)
        try:
            await relay(news, send, still_here)
            return self._finished(request, client, tag)
        finally:
            stop()
            self.provider.changes.unwatch(*watched)
            self._subscriptions.discard(news)

    def _finished(self, request: Request, client: Client, result: Mapping[str, Any]) -> tuple[bytes, int]:
        return encode_result(request.id, finish(result, request.method, client, self.provider)), 0

    def _cancelled(self, task: Task, lost: bool) -> WireError:
        """What a cancelled call is answered with. Where nobody is left to answer to, it stays cancelled."""
        if lost or task.uncancel() > 0:
            raise asyncio.CancelledError
        return self._goodbye if self.closing else WireError(CANCELLED, "cancelled")


def in_use(request: Request) -> WireError:
    return WireError(INVALID_REQUEST, f"id {request.id!r} is in use by another request")


def current_task() -> Task:
    task = asyncio.current_task()
    assert task is not None
    return task


def _connection_answers(session: Session, request: Request) -> bool:
    """Do what belongs to the connection and not to the provider."""
    if request.method in revisions.ONLY_MODERN:
        raise WireError(METHOD_NOT_FOUND, f"{session.client.revision} has no method {request.method}")
    if request.method == "logging/setLevel":
        session.set_log_level(object_of(request.params))
    elif request.method in ("resources/subscribe", "resources/unsubscribe"):
        session.subscribe(object_of(request.params), request.method == "resources/subscribe")
    return request.method in revisions.ONLY_HANDSHAKE
