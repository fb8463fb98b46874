"""One call to a server behind the gateway, and everything that the server sends for it before the result.

Client and server may be of different protocol eras: `_meta`, questions and errors are translated between them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from rookery.system import metrics
from rookery.system.ids import new_id
from rookery.system.tasks import TaskSet
from rookery.wire.client.client import Client as Server
from rookery.wire.client.inflight import PostedRequest
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    Notification,
    Params,
    WireError,
)
from rookery.wire.protocol.provider import Call, ClientQuestion, wants_log
from rookery.wire.server.call import to_handshake_result

_FORMS = frozenset({"form"})

logger = logging.getLogger("rookery.mcp.gateway")

# Members of `_meta` that belong to one connection, and not to the call.
_CONNECTION_META = frozenset(
    {"progressToken", revisions.META_VERSION, revisions.META_CLIENT, revisions.META_CAPABILITIES}
)
# Notifications of a call that clients of 2026-07-28 do not know.
_HANDSHAKE_ONLY_NOTIFICATIONS = frozenset({"notifications/elicitation/complete"})
# The error code of handshake revisions for a resource that does not exist.
_NO_RESOURCE = -32002
T = TypeVar("T")
DROPPED = metrics.counter("rookery_relayed_dropped_total", "Notifications dropped because a client read too slowly.")
_QUESTION = "question"
_MAX_WAITING = 1000
_MAX_BYTES = 4 * 1024 * 1024


def can_ask_client(call: Call, method: str, params: Params) -> bool:
    """Return whether the client has declared that it can be asked this. Elicitation without modes means forms."""
    capability: Any = call.client.capabilities.get(revisions.REQUIRED_CAPABILITIES[method])
    if capability is None:
        return False
    if method != "elicitation/create":
        return True
    modes = cast(Mapping[str, Any], capability) if capability and isinstance(capability, Mapping) else _FORMS
    return elicitation_mode(params) in modes


def elicitation_mode(params: Params) -> str:
    """Return how a user must be asked, by default with a form."""
    try:
        return msgspec.json.decode(params["mode"], type=str)
    except (KeyError, msgspec.DecodeError):
        return "form"


def add_caller_meta(call: Call, params: Mapping[str, Any], server: Server) -> Mapping[str, Any]:
    """Return the parameters with the caller's `_meta` for the server: traces, and the log level that it wants."""
    meta: dict[str, Any] = {key: value for key, value in call.meta.items() if key not in _CONNECTION_META}
    if server.modern and not call.client.modern and call.log_level is not None:
        meta[revisions.META_LOG_LEVEL] = call.log_level
    elif not server.modern:
        meta.pop(revisions.META_LOG_LEVEL, None)
    return {**params, "_meta": meta} if meta else params


def drop_round_trip_params(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters for a server without round trips. Raise if they contain a state: it is not the server's."""
    if "requestState" in params:
        raise WireError(INVALID_PARAMS, "requestState was not issued by Rookery, or was changed")
    if "inputResponses" not in params:
        return params
    return {key: value for key, value in params.items() if key != "inputResponses"}


def is_known_notification(call: Call, method: str) -> bool:
    """Return whether the client's era has such a notification."""
    return not call.client.modern or method not in _HANDSHAKE_ONLY_NOTIFICATIONS


def translate_question(call: Call, method: str, params: Params) -> Params:
    """Return a question of the server in the client's era: before 2026-07-28 a page to open has an id."""
    if (
        call.client.modern
        or method != "elicitation/create"
        or elicitation_mode(params) != "url"
        or "elicitationId" in params
    ):
        return params
    return {**params, "elicitationId": Raw(msgspec.json.encode(new_id()))}


def translate_error(error: Exception, call: Call, missing_capability: str | None) -> Exception:
    """Return an error of the server in the client's era.

    `missing_capability` is the capability that the client does not have.
    """
    if not isinstance(error, WireError) or not call.client.modern:
        return error
    if missing_capability is not None:
        message = f"this needs a client with the capability {missing_capability}"
        return WireError(MISSING_CAPABILITY, message, {"requiredCapabilities": {missing_capability: {}}})
    if error.code == _NO_RESOURCE and call.method == "resources/read":
        return WireError(INVALID_PARAMS, error.message, error.data)
    return error


_tasks = TaskSet("relay")


def answer_roots(folder: Path | None) -> Mapping[str, Any]:
    """Return what a server may work on: the workspace, or else nothing. Servers take this for more than a hint."""
    return {"roots": [{"uri": folder.as_uri()}] if folder is not None else []}


class Relay:
    """Receives what a server sends during one call, and passes it to the client that called, in order."""

    __slots__ = (
        "_bytes",
        "_call",
        "_dropped",
        "_missing_capability",
        "_question_tasks",
        "_root",
        "_sending",
        "_waiting",
        "caller",
    )

    def __init__(self, call: Call, root: Path | None) -> None:
        self.caller = call.caller
        self._call = call
        self._root = root
        self._waiting: deque[tuple[str, Mapping[str, Any] | Raw, int]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._sending: asyncio.Task[None] | None = None
        self._question_tasks: set[asyncio.Task[Any] | None] = set()
        # The capability that the client would have needed to be asked.
        self._missing_capability: str | None = None

    def on_progress(self, params: Params) -> None:
        token = self._call.meta.get("progressToken")
        if token is not None:
            size = sum(map(len, params.values()))
            self._pass_on("notifications/progress", {**params, "progressToken": token}, size)

    def on_notification(self, message: Notification) -> None:
        if message.method == "notifications/message" and not self._wants_log(message.params):
            return
        if not is_known_notification(self._call, message.method):
            return
        self._pass_on(message.method, message.params, len(message.params))

    async def answer(self, method: str, params: Params) -> Mapping[str, Any] | Raw:
        """Return the client's answer to a question of the server. If the client cannot be asked, answer for it."""
        call = self._call
        if method not in revisions.REQUIRED_CAPABILITIES:
            raise WireError(METHOD_NOT_FOUND, f"no client can answer {method}")
        if not call.can_ask or not can_ask_client(call, method, params):
            return self._answer_for(method)
        task = asyncio.current_task()
        self._question_tasks.add(task)
        try:
            await self.flush()
            return (await call.ask_raw({_QUESTION: ClientQuestion(method, translate_question(call, method, params))}))[
                _QUESTION
            ]
        finally:
            self._question_tasks.discard(task)

    def _answer_for(self, method: str) -> Mapping[str, Any]:
        if method == "roots/list":
            return answer_roots(self._root)
        if method == "elicitation/create":
            return {"action": "cancel"}
        self._missing_capability = revisions.REQUIRED_CAPABILITIES[method]
        raise WireError(METHOD_NOT_FOUND, "the client of this call does not support sampling")

    async def call(self, server: Server, params: Mapping[str, Any], sent: PostedRequest | None = None) -> Raw:
        """Make the call, or wait for its result if it was sent already."""
        call = self._call
        work = server.call(
            call.method,
            add_caller_meta(
                call, drop_round_trip_params(params) if call.client.modern and not server.modern else params, server
            ),
            listener=self,
            capabilities=call.client.capabilities,
            # A modern client answers the questions in a result itself, unless Rookery has asked the client before.
            rounds=call.resumed or not call.client.modern,
            posted=sent,
        )
        result = await self.run(work)
        return to_handshake_result(result) if server.modern and not call.client.modern else result

    async def run(self, work: Awaitable[T]) -> T:
        """Wait for the result or the error, and until everything that was sent before it has been passed on."""
        try:
            try:
                result = await work
            except Exception as error:
                await self.flush()
                raise translate_error(error, self._call, self._missing_capability) from None
            if self._sending is not None:
                await self.flush()
            return result
        finally:
            if self._question_tasks:
                await self._cancel_questions()
            if self._sending is not None:
                self._sending.cancel()
            if self._dropped:
                logger.warning("a client read too slowly: %d notifications of its call were dropped", self._dropped)

    async def _cancel_questions(self) -> None:
        """Cancel the questions that the server no longer waits for, so that the client need not ask its user."""
        tasks = [task for task in self._question_tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def flush(self) -> None:
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    def _pass_on(self, method: str, params: Mapping[str, Any] | Raw, size: int) -> None:
        self._bytes += size
        while self._waiting and (len(self._waiting) >= _MAX_WAITING or self._bytes > _MAX_BYTES):
            # The client reads more slowly than the server sends; the newest notifications matter more than the oldest.
            DROPPED.add()
            self._dropped += 1
            self._bytes -= self._waiting.popleft()[2]
        self._waiting.append((method, params, size))
        if self._sending is None or self._sending.done():
            self._sending = _tasks.start(self._send(), "notifications of a call")

    async def _send(self) -> None:
        while self._waiting:
            method, params, size = self._waiting.popleft()
            self._bytes -= size
            await self._call.notify(method, params)

    def _wants_log(self, params: Raw) -> bool:
        try:
            return wants_log(self._call, msgspec.json.decode(params, type=_Log).level)
        except (msgspec.DecodeError, ValueError):
            return False


class _Log(msgspec.Struct):
    level: str
