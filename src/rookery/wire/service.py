"""How one request of either era is served, whatever brought it, and what all transports of an endpoint share."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rookery.wire import headers as mirrored, modern, revisions
from rookery.wire.attendance import SHUTTING_DOWN as SHUTTING_DOWN, Attendance, Task
from rookery.wire.calls import CANCELLED, Questioner, RunningCall, answer, finish, params_of
from rookery.wire.head import Head
from rookery.wire.jsonrpc import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Params,
    Request,
    WireError,
    encode_result,
    object_of,
)
from rookery.wire.listening import Subscription
from rookery.wire.modern import Told
from rookery.wire.provider import Client, Provider
from rookery.wire.sealing import Seal
from rookery.wire.session import Session
from rookery.wire.sessions import Sessions
from rookery.wire.streams import Beat, Sender
from rookery.wire.traffic import Came, Traffic, Who

if TYPE_CHECKING:
    from rookery.wire.brief import Brief

# Whether the client is.
Lost = Callable[[], bool]


class Service(Attendance):
    """One provider, its sessions, and everything that is under way."""

    def __init__(
        self,
        provider: Provider,
        sessions: Sessions | None = None,
        seal: Seal | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        super().__init__(provider, sessions, traffic)
        self._seal = seal or Seal()
        self.declarations = mirrored.Declarations()

    # ---- the handshake era

    async def handshake(
        self,
        session: Session,
        request: Request,
        send: Sender,
        ask: Sender,
        lost: Lost,
        task: Task | None = None,
        brief: "Brief | None" = None,
    ) -> bytes:
        """The answer to a call of a handshake client, whatever happens to it; but none once the client is lost."""
        if brief is None and request.id in session.calls:
            return in_use(request).encoded(request.id)
        if brief is None and session.ended:
            return WireError(CONNECTION_CLOSED, "the session has ended").encoded(request.id)
        task = session.calls[request.id] = task or current_task()
        came: Came | None = None
        try:
            if _connection_answers(session, request):
                self.mention(request, made := encode_result(request.id, b"{}"))
                return made
            call = self.handshake_call(session, request, send, functools.partial(session.question, ask))
            came = self._came(request, call.params) if brief is None else brief.came
            made, code = await answer(self.provider, call, brief)
        except WireError as error:
            made, code = error.encoded(request.id), error.code
            self.mention(request, made, code)
        except asyncio.CancelledError:
            error = self._cancelled(task, lost())
            made, code = error.encoded(request.id), error.code
        finally:
            session.calls.pop(request.id, None)
        if came is not None and self.traffic is not None:
            self.traffic.went(came, made, code)
        return made

    def handshake_call(
        self, session: Session, request: Request, send: Sender, question: Questioner | None = None
    ) -> RunningCall:
        about = session.client, session.log_level, send, self._seal, session.owner, session.id, question
        return RunningCall(request.id, request.method, *params_of(request.params), *about)

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
        brief: "Brief | None" = None,
        connection: object | None = None,
    ) -> tuple[bytes, int]:
        """The answer to a modern request, and the code of its error, 0 for none. No headers where there are none."""
        task = task or current_task()
        self.calls.add(task)
        came: Came | None = None
        try:
            if brief is None:
                told, params = modern.classify(request, head, self.provider, self.declarations)
            else:
                told, params = brief.told, object_of(request.params)
            who = (owner, told.who) if head is not None else None
            if self.traffic is not None and who is not None:
                self.traffic.saw(who)
            if request.method == "server/discover":
                return self._finished(request, told.client, modern.discovered(self.provider))
            if request.method == "subscriptions/listen":
                self.calls.discard(task)  # it has an end of its own
                return await self._listen(request, told.client, params, send, still_here, who)
            call = self.modern_call(request, told, params, owner, send, connection)
            came = self._came(request, params) if brief is None else brief.came
            made, code = await answer(self.provider, call, brief)
        except WireError as error:
            made, code = error.encoded(request.id), error.code
            self.mention(request, made, code)
        except asyncio.CancelledError:
            error = self._cancelled(task, lost())
            made, code = error.encoded(request.id), error.code
        finally:
            self.calls.discard(task)
        if came is not None and self.traffic is not None:
            self.traffic.went(came, made, code)
        return made, code

    def modern_call(
        self, request: Request, told: Told, params: Params, owner: str, send: Sender, connection: object | None = None
    ) -> RunningCall:
        about = told.meta.copy(), told.client, told.log_level  # of which others may have been told the same
        return RunningCall(request.id, request.method, params, *about, send, self._seal, owner, connection=connection)

    def _came(self, request: Request, params: Params) -> Came | None:
        return self.traffic.came(request, params) if self.traffic is not None else None

    async def _listen(
        self,
        request: Request,
        client: Client,
        params: Params,
        send: Sender,
        still_here: Beat | None,
        who: Who | None,
    ) -> tuple[bytes, int]:
        made = Subscription(self.provider, request.id, params)
        self.subscriptions[made.news] = who
        self.changed()
        try:
            return self._finished(request, client, await made.serve(send, still_here))
        finally:
            del self.subscriptions[made.news]
            self.changed()

    def _finished(self, request: Request, client: Client, result: Mapping[str, Any]) -> tuple[bytes, int]:
        made = encode_result(request.id, finish(result, request.method, client, self.provider))
        self.mention(request, made)
        return made, 0

    def _cancelled(self, task: Task, lost: bool) -> WireError:
        """What a cancelled call is answered with. Where nobody is left to answer to, it stays cancelled."""
        if lost or task.uncancel() > 0:
            raise asyncio.CancelledError
        return self.goodbye if self.closing else WireError(CANCELLED, "cancelled")


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
