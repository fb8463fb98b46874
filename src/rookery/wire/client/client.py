"""The client of one MCP server: its lists and calls, answers to its questions, and its changes.

Each request has a time limit. A request that times out is cancelled at the server as its revision requires.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.client.encode import ClientIdentity, MessageWriter, RequestTemplate
from rookery.wire.client.inflight import (
    CALL_NOTIFICATIONS,
    CONNECTION_NOTIFICATIONS,
    AnswerQuestion,
    CallListener,
    DefaultListener,
    HandleNotification,
    InFlightRequests,
    PostedRequest,
)
from rookery.wire.client.questions import ServerQuestions, answer_input_requests, decode_input_required
from rookery.wire.client.subscriptions import ServerSubscriptions, decode_subscription_id
from rookery.wire.client.transport import (
    AuthenticationRequired,
    ClientTransport,
    SessionLost,
    TransportClosed,
    TransportUnsupported,
)
from rookery.wire.protocol.messages import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Notification,
    Params,
    Request,
    RequestId,
    WireError,
    decode_object,
    encode_notification,
)

_CANCEL_SECONDS = 2.0
_SAY_SECONDS = 30.0
_NO_HEADERS: Mapping[str, str] = {}

_RequestArguments = tuple[
    str, Mapping[str, Any], float | None, str, CallListener | None, Mapping[str, Any] | None, float | None
]

logger = logging.getLogger("rookery.mcp.client")

_MAX_PAGES = 1000
_MAX_MEBIBYTES = 64
_MAX_ROUNDS = 10


class _ServerError(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = "an error without a message"
    data: Any = None


def _decode_error(raw: Raw) -> WireError:
    """Return the error of an error response."""
    try:
        error = msgspec.json.decode(raw, type=_ServerError)
    except msgspec.DecodeError:
        error = _ServerError()
    return WireError(error.code, error.message, error.data)


def _make_closed_error(method: str) -> RookeryError:
    return RookeryError("upstream-failed", f"{method}: the connection was closed")


# Requests one page, within a number of seconds.
RequestPage = Callable[[Mapping[str, Any], float], Awaitable[Raw]]


class ListedItems(list[Raw]):
    """The items of a list. `ttl_seconds` is how many seconds the server allows to cache it; None if it does not say."""

    ttl_seconds: float | None = None


async def fetch_all_pages(request_page: RequestPage, method: str, key: str, seconds: float) -> ListedItems:
    """Return all items of a list, within `seconds` for all pages.

    Raise RookeryError for a list that is too large or endless.
    """
    items = ListedItems()
    seen: set[str] = set()
    params: dict[str, Any] = {}
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    size = 0
    for _ in range(_MAX_PAGES):
        result = await request_page(params, max(0.0, end - loop.time()))
        size += len(result)
        if size > _MAX_MEBIBYTES * 1024 * 1024:
            raise RookeryError("upstream-failed", f"{method}: the list is longer than {_MAX_MEBIBYTES} MiB")
        try:
            page = msgspec.json.decode(result, type=dict[str, Raw])
            items += msgspec.json.decode(page.get(key, Raw(b"[]")), type=list[Raw])
            cursor = msgspec.json.decode(page.get("nextCursor", Raw(b"null")), type=str | None)
            ttl = msgspec.json.decode(page.get("ttlMs", Raw(b"null")), type=int | float | None)
        except msgspec.DecodeError as error:
            raise RookeryError("upstream-failed", f"{method}: the response is invalid: {error}") from None
        if ttl is not None:
            items.ttl_seconds = min(ttl / 1000, items.ttl_seconds if items.ttl_seconds is not None else ttl / 1000)
        if cursor is None:
            return items
        if cursor in seen:
            raise RookeryError("upstream-failed", f"{method}: the server returned the cursor {cursor[:80]!r} twice")
        seen.add(cursor)
        params = {"cursor": cursor}
    raise RookeryError("upstream-failed", f"{method}: more than {_MAX_PAGES} pages")


@dataclass(frozen=True)
class Timeouts:
    """Time limits in seconds.

    `startup` is for connecting, `catalog` for a list, `execution` for a call (it starts again with each progress
    notification), and `question` for the answer to a question of the server.
    """

    startup: float = 30.0
    catalog: float = 5.0
    execution: float = 300.0
    question: float = 600.0


async def _refuse_question(method: str, params: Params) -> Mapping[str, Any]:
    raise WireError(METHOD_NOT_FOUND, f"this client does not support {method}")


def _ignore_notification(notification: Notification) -> None:
    """Ignore a notification."""


class Client:
    """The client of a connected server. `connect_client` creates it and detects the era that the server speaks.

    `on_notification` receives notifications that concern the whole connection. `answer_question` answers questions for
    calls that have no listener.
    """

    def __init__(
        self,
        transport: ClientTransport,
        identity: ClientIdentity,
        timeouts: Timeouts,
        answer_question: AnswerQuestion = _refuse_question,
        on_notification: HandleNotification = _ignore_notification,
    ) -> None:
        self.transport = transport
        self.identity = identity
        self.timeouts = timeouts
        self.modern = False
        self.capabilities: Mapping[str, Any] = {}
        self.info: Mapping[str, Any] = {}
        self.instructions: str | None = None
        # Called with the reason as soon as the connection is lost, unless we closed it.
        self.on_lost: Callable[[str], None] | None = None
        # Opens a new session after the server has lost the old one.
        self.reopen_session: Callable[[], Awaitable[None]] | None = None
        self.request_numbers = itertools.count(1)
        self._default_listener = DefaultListener(answer_question, on_notification)
        self.in_flight = InFlightRequests(self._default_listener)
        self._writer = MessageWriter(identity)
        self._questions = ServerQuestions(self.in_flight, self._reply, timeouts.question)
        self._subscriptions = ServerSubscriptions(self, on_notification)
        self._strays = 0
        self._renewal_lock = asyncio.Lock()
        self._renewal_count = 0
        self._closed = False

    @property
    def revision(self) -> str:
        return self._writer.revision

    @revision.setter
    def revision(self, revision: str) -> None:
        self._writer.set_revision(revision)
        self.modern = self._writer.modern

    @property
    def strays(self) -> int:
        """How many messages arrived that nothing waits for."""
        return self._strays + self._questions.strays

    @property
    def unassigned(self) -> Mapping[str, int]:
        """How many messages of each method could not be assigned to a caller, because they name no call."""
        return self.in_flight.unassigned

    @property
    def close_reason(self) -> str | None:
        """Why the connection is closed, or None while it is open."""
        return "closed" if self._closed else self.transport.close_reason

    def list_problems(self) -> list[str]:
        """Return what this server did wrong without ending the connection, for people."""
        return [*self.transport.list_problems(), *self._describe_strays()]

    def diagnosis(self) -> str:
        """Return everything that may explain why the connection failed, for people."""
        return "; ".join(filter(None, (self.transport.diagnosis(), *self._describe_strays())))

    def _describe_strays(self) -> list[str]:
        strays = self.strays + self.transport.strays
        message = f"it sent {strays} unexpected messages: late, duplicate or unsolicited" if strays else ""
        return [line for line in (message, self.in_flight.diagnosis()) if line]

    async def open(self) -> None:
        await self.transport.open(self.on_message, self._on_lost)

    async def close(self) -> None:
        """Close the connection, which ends every running request."""
        self._closed = True
        self.in_flight.end_all()
        await self._subscriptions.close()
        await self._questions.close()
        await self.transport.close()

    # Calls and lists

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        listener: CallListener | None = None,
        *,
        rounds: bool = True,
        capabilities: Mapping[str, Any] | None = None,
        posted: PostedRequest | None = None,
    ) -> Raw:
        """Make a request that may take long and, in the modern era, may ask questions before its result.

        Without `rounds` such a question is returned as the result: the caller answers it and calls again. The first
        request may be `posted` already.
        """
        listener = listener or self._default_listener
        current = params
        for _ in range(_MAX_ROUNDS):
            result = await self.request(
                method,
                current,
                seconds=self.timeouts.execution,
                timeout_name="execution",
                listener=listener,
                capabilities=capabilities,
                posted=posted,
            )
            input_required = decode_input_required(result) if rounds and self.modern else None
            if input_required is None:
                return result
            posted = None
            current = {**params, **await answer_input_requests(input_required, listener, self.timeouts.question)}
        raise RookeryError("upstream-failed", f"{method} asked for input more than {_MAX_ROUNDS} times")

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | Raw, listener: CallListener | None = None
    ) -> Raw:
        return await self.call("tools/call", {"name": name, "arguments": arguments}, listener)

    async def list_all(self, method: str, key: str) -> ListedItems:
        """Return all pages of a list, within the catalog time-out."""
        seconds = self.timeouts.catalog

        def ask(params: Mapping[str, Any], left: float) -> Awaitable[Raw]:
            return self.request(method, params, seconds=seconds, timeout_name="catalog", remaining=left)

        items = await fetch_all_pages(ask, method, key, seconds)
        if method == "tools/list":
            items[:] = self._writer.filter_tools(items)
        return items

    async def watch(self, resources: Collection[str]) -> None:
        """Watch these resources and all lists of the server.

        `on_notification` receives their changes, and also changes that may have been missed.
        """
        await self._subscriptions.set(frozenset(resources))

    # Requests and notifications

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float | None,
        timeout_name: str,
        listener: CallListener | None = None,
        capabilities: Mapping[str, Any] | None = None,
        remaining: float | None = None,
        posted: PostedRequest | None = None,
    ) -> Coroutine[Any, Any, Raw]:
        """Return the result undecoded. Raise WireError for an error response, RookeryError for any other failure.

        `capabilities` replaces our own capabilities for a modern server. `remaining` is the remaining part of
        `seconds`. For a request that was `posted` before, only wait for the response.
        """
        arguments = (
            method,
            params,
            seconds,
            timeout_name,
            listener,
            capabilities,
            seconds if remaining is None else remaining,
        )
        # Without headers there is no session that could be lost.
        return (
            self._request_with_renewal(posted, *arguments)
            if self.transport.uses_headers
            else self._request(*arguments, posted)
        )

    async def _request_with_renewal(self, posted: PostedRequest | None, *arguments: *_RequestArguments) -> Raw:
        """Send a request, and send it once more in a new session if the server has lost the session."""
        method = arguments[0]
        renewals = self._renewal_count
        try:
            return await self._request(*arguments, posted)
        except SessionLost:
            # The server did nothing of it, so it can be repeated. No other failure allows that.
            pass
        await self._reopen_session(method, renewals)
        try:
            return await self._request(*arguments)
        except SessionLost:
            raise RookeryError("upstream-failed", f"{method}: the server loses every new session immediately") from None

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any],
        seconds: float | None,
        timeout_name: str,
        listener: CallListener | None,
        capabilities: Mapping[str, Any] | None,
        remaining: float | None,
        posted: PostedRequest | None = None,
    ) -> Raw:
        if self._closed:
            raise _make_closed_error(method)
        number: RequestId = next(self.request_numbers) if posted is None else posted.number
        try:
            if posted is not None:
                with posted.attach_task(listener):
                    response = await posted.wait_for_response()
            else:
                writer = self._writer
                progress = listener is not None and bool(listener.caller)
                message = writer.request(number, method, params, with_progress=progress, capabilities=capabilities)
                headers = self.headers(method, params)
                with self.in_flight.begin(number, seconds, remaining, listener):
                    response = await self.transport.request(number, message, headers)
        except TimeoutError:
            if self._closed:
                raise _make_closed_error(method) from None
            await self._cancel_at_server(number, method, f"{timeout_name} timeout")
            detail = self.transport.diagnosis()
            suffix = f" ({detail})" if detail else ""
            raise RookeryError(
                "timeout", f"{method}: no response within the {timeout_name} timeout of {seconds:g} s{suffix}"
            ) from None
        except asyncio.CancelledError:
            await self._cancel_at_server(number, method, "cancelled")
            raise
        except TransportClosed as error:
            code = "needs-auth" if isinstance(error, AuthenticationRequired) else "upstream-failed"
            raise RookeryError(code, f"{method}: {error}") from None
        if response.error is not None:
            raise _decode_error(response.error)
        return response.result

    def template(
        self, method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] | None
    ) -> RequestTemplate:
        """Return a template for requests like this one, which are sent by posting."""
        return self._writer.template(method, params, capabilities=capabilities)

    def headers(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the headers of requests like this one, for a transport that has them."""
        return self._writer.headers(method, params) if self.transport.uses_headers else _NO_HEADERS

    def mirrors_arguments(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether the headers of such requests depend on their arguments."""
        return self.transport.uses_headers and self._writer.mirrors_arguments(method, params)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send_one_way(
            encode_notification(method, msgspec.json.encode(params)), self._writer.headers(method, params)
        )

    async def _reply(self, message: bytes) -> None:
        await self._send_one_way(message, self._writer.headers("", {}))

    async def _send_one_way(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that gets no response. A failure is ignored: the next request will report it."""
        with contextlib.suppress(TimeoutError, TransportClosed, SessionLost, TransportUnsupported):
            async with asyncio.timeout(_SAY_SECONDS):
                await self.transport.send(message, headers)

    async def _cancel_at_server(self, number: RequestId, method: str, reason: str) -> None:
        """Notify the server that a request is cancelled, within a short time limit."""
        # A handshake must not be cancelled.
        if method == "initialize" or (self.transport.cancels_by_closing and self.modern):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.notify("notifications/cancelled", {"requestId": number, "reason": reason})

    # Sessions that the server has lost

    async def _reopen_session(self, method: str, renewals: int) -> None:
        """Open a new session, unless another request has tried to since `renewals` was read."""
        async with self._renewal_lock:
            if self._renewal_count != renewals:
                return
            self._renewal_count += 1
            try:
                if self.reopen_session is None:
                    raise TransportClosed("there was no handshake")
                await self.reopen_session()
            except (TransportClosed, TransportUnsupported, WireError, RookeryError) as error:
                raise RookeryError(
                    "upstream-failed",
                    f"{method}: the server lost the session, and a new one could not be opened: {error}",
                ) from None
            self._subscriptions.on_session_reopened()

    # Messages from the server

    def _on_lost(self, reason: str) -> None:
        if not self._closed and self.on_lost is not None:
            self.on_lost(reason)

    def on_message(self, message: Request | Notification, request_id: RequestId | None) -> None:
        """Handle a message that the server sent on its own initiative. No error in it may stop the reading."""
        try:
            if request_id is not None and request_id not in self.in_flight.requests:
                self._strays += 1
            elif isinstance(message, Request):
                self._questions.take(message, request_id)
            else:
                self._on_notification(message, request_id)
        except (WireError, msgspec.DecodeError):
            self._strays += 1
        except Exception:
            logger.exception("handling %s failed", message.method)

    def _on_notification(self, message: Notification, request_id: RequestId | None) -> None:
        method = message.method
        if method == "notifications/progress":
            params = decode_object(message.params)
            token = msgspec.json.decode(params.get("progressToken", Raw(b"null")))
            request = self.in_flight.requests.get(token) if isinstance(token, int | str) else None
            if request is None:
                self._strays += 1
            else:
                request.on_progress(params)
        elif method == "notifications/cancelled":
            self._questions.cancel(msgspec.json.decode(decode_object(message.params).get("requestId", Raw(b"null"))))
        elif method in CONNECTION_NOTIFICATIONS:
            self._default_listener.on_notification(message)
        else:
            self._dispatch(message, decode_subscription_id(message) if request_id is None else request_id)

    def _dispatch(self, message: Notification, request_id: RequestId | None) -> None:
        if request_id is None and message.method not in CALL_NOTIFICATIONS:
            self._default_listener.on_notification(message)
        elif request_id is not None and request_id not in self.in_flight.requests:
            self._strays += 1
        elif (target := self.in_flight.find_target(message.method, request_id)) is not None:
            target[0].on_notification(message)
