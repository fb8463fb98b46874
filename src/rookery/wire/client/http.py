"""Transports to a server at a URL: Streamable HTTP, and the older HTTP+SSE.

HTTP+SSE has one stream for the server's messages, and POSTs for the client's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rookery.system.tasks import TaskSet
from rookery.wire.client.remote import (
    EVENT_STREAM,
    PostedHttp,
    RemoteTransport,
    TransportBroken,
    describe_error,
    describe_redirect,
    read_challenge,
)
from rookery.wire.client.transport import (
    AuthenticationRequired,
    HandleLoss,
    HandleMessage,
    PendingResponses,
    ResponseWaiter,
    SessionLost,
    TransportClosed,
    TransportUnsupported,
)
from rookery.wire.http_client.connection import HttpResponse
from rookery.wire.http_client.request import HttpOrigin, HttpRequestWriter, strip_userinfo
from rookery.wire.http_client.sse import ServerSentEvent, SseParser
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import Message, RequestId, Response, WireError, decode_messages

# Statuses that show that the server does not speak Streamable HTTP. Others refuse this client, or this moment.
_UNSUPPORTED_STATUSES = frozenset({400, 404, 405, 406, 410, 415, 501}) | frozenset(range(300, 400))

logger = logging.getLogger("rookery.mcp.http")

_JSON = b"application/json"
_ACCEPT = {"Accept": f"application/json, {EVENT_STREAM}", "Content-Type": "application/json"}
_RETRY_SECONDS = 1.0
_LONGEST_PAUSE = 60.0
_MAX_RESUMPTIONS = 20
_STREAM_OPEN_SECONDS = 1.0
_RETRY_STATUSES = (408, 429)
_ENDPOINT_SECONDS = 10.0
# A larger body is read by a task, which limits it.
_LARGE_BYTES = 131_072
_MAX_POSTED_HEADS = 256


def interpret_http_error(
    response: HttpResponse, url: str, body: bytes, id_: RequestId | None, *, in_session: bool, spoke_before: bool
) -> Exception | None:
    """Return the exception for an HTTP error, or None if its body is a JSON-RPC error response to the request.

    `in_session` is whether a session could be lost. `spoke_before` is whether the server spoke Streamable HTTP before.
    """
    status = response.status
    text = body[:300].decode("utf-8", "replace")
    if in_session and (status == 404 or (status == 400 and "session" in text.lower())):
        return SessionLost()
    if read_challenge(response) is not None:
        return AuthenticationRequired(f"HTTP {status}: {text}")
    with contextlib.suppress(WireError):
        if any(isinstance(message, Response) and message.id == id_ for message in decode_messages(body)):
            return None
    if status == 407:
        text = "the proxy requires other credentials"
    text = describe_redirect(response, url) or text
    kind = TransportUnsupported if status in _UNSUPPORTED_STATUSES and not spoke_before else TransportClosed
    return kind(f"HTTP {status}: {text}")


@dataclass
class HttpTransport(RemoteTransport):
    """Streamable HTTP: one POST for each message, and a standing GET for messages outside of any request."""

    cancels_by_closing: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._session_id: str | None = None
        self._revision = ""
        self._tasks = TaskSet("mcp http")
        self._stream_task: asyncio.Task[None] | None = None
        self._last_problem = ""
        self._unsolicited_count = 0
        self._posted: dict[RequestId, _PostedRequest] = {}
        # Encoded once for each object with headers, of which every fast path has its own.
        self._posted_heads: dict[int, _PostedHead] = {}
        self.strays = 0

    async def open(self, on_message: HandleMessage, on_lost: HandleLoss) -> None:
        """Prepare the requests. `on_lost` is never called, as there is no permanent connection."""
        self._on_message = on_message
        try:
            self._requests = HttpRequestWriter(self.url, {**_ACCEPT, **self.headers})
        except ValueError as error:
            raise TransportClosed(str(error)) from None

    async def on_revision_agreed(self, revision: str) -> None:
        """Record the revision, and open the standing stream if the server has given a session."""
        self._revision = revision
        self._last_problem = ""
        if self._stream_task is not None:
            self._stream_task.cancel()
        if self._session_id is None:
            return
        stream_opened = asyncio.Event()
        self._stream_task = self._tasks.keep_running(lambda: self._keep_stream_open(stream_opened), "stream")
        # Some servers ask questions only on that stream, and drop them while it is not open.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STREAM_OPEN_SECONDS):
                await stream_opened.wait()

    def list_problems(self) -> list[str]:
        return [self._last_problem] if self._last_problem else []

    def diagnosis(self) -> str:
        return self._last_problem

    async def close(self) -> None:
        await self._tasks.close()
        if self._session_id is not None:
            with contextlib.suppress(OSError, ValueError):
                async with asyncio.timeout(2.0):
                    with await self.exchange(self._requests, "DELETE", self._headers({})) as response:
                        self._session_id = None
                        response.discard_rest()

    def post(self, id_: RequestId, message: bytes, waiter: ResponseWaiter, headers: Mapping[str, str]) -> bool:
        authorization = self.credentials.header() if self.credentials is not None else None
        given = (authorization, self._session_id, self._revision)
        head = self._posted_heads.get(id(headers))
        if head is None or head.headers is not headers or head.given != given:
            sent = self._headers(headers)
            if authorization is not None:
                sent["Authorization"] = authorization
            try:
                head = _PostedHead(headers, given, self._requests.write_head("POST", sent))
            except ValueError:
                return False
            if len(self._posted_heads) >= _MAX_POSTED_HEADS:
                self._posted_heads.clear()
            self._posted_heads[id(headers)] = head
        posted = _PostedRequest(self, id_, message, headers, authorization, waiter)
        if not posted.start(b"%bContent-Length: %d\r\n\r\n%b" % (head.encoded, len(message), message)):
            return False
        self._posted[id_] = posted
        return True

    # Called by a request that was posted

    @property
    def request_origin(self) -> HttpOrigin:
        return self._requests.origin

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.start(work, "request")

    def forget_posted(self, id_: RequestId) -> None:
        self._posted.pop(id_, None)

    def forget(self, id_: RequestId) -> None:
        if (posted := self._posted.pop(id_, None)) is not None:
            posted.close()

    async def request(self, id_: RequestId, message: bytes, headers: Mapping[str, str]) -> Response:
        return await self.complete(id_, message, headers, SseParser(), None)

    async def complete(
        self,
        id_: RequestId,
        message: bytes,
        headers: Mapping[str, str],
        parser: SseParser,
        posted: PostedHttp | None,
    ) -> Response:
        """Send a request, unless it was `posted`, and return its response. Resume a stream that ends before it."""
        try:
            if (response := await self._post(message, headers, parser, id_, posted)) is not None:
                return response
        except TransportBroken:
            if parser.last_id is None:
                raise
        # The stream ended before the response. If its events have ids, the server continues after the last one.
        attempts = 0
        while parser.last_id is not None and attempts < _MAX_RESUMPTIONS:
            last_id = parser.last_id
            await asyncio.sleep(min(_RETRY_SECONDS if parser.retry is None else parser.retry, _LONGEST_PAUSE))
            try:
                if (response := await self._get(parser, id_)) is not None:
                    return response
            except TransportUnsupported as error:
                raise TransportClosed(f"the response was interrupted and cannot be resumed: {error}") from None
            except TransportBroken as error:
                self._last_problem = str(error)
            attempts = attempts + 1 if parser.last_id == last_id else 0
        raise TransportClosed("the response ended before it was complete")

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        await self._post(message, headers, SseParser(), None)

    def dispatch(self, messages: list[Message], id_: RequestId | None) -> Response | None:
        """Return the response with this id, and dispatch all messages before it."""
        for message in messages:
            self._unsolicited_count += id_ is None
            if not isinstance(message, Response):
                self._on_message(message, id_)
            elif message.id == id_:
                return message
            else:
                self.strays += 1
        return None

    async def _post(
        self,
        message: bytes,
        headers: Mapping[str, str],
        parser: SseParser,
        id_: RequestId | None,
        posted: PostedHttp | None = None,
    ) -> Response | None:
        """Post a message, unless it was, and return the response with this id, if it arrives."""
        # Only a handshake has no headers of its own. It belongs to no session and creates one.
        is_handshake = id_ is not None and not headers
        try:
            sent_headers = {} if is_handshake else self._headers(headers)
            with await self.exchange(self._requests, "POST", sent_headers, message, posted) as response:
                if is_handshake and response.status < 400:
                    self._session_id = response.header(b"mcp-session-id")
                if response.status == 202 or response.status == 204:
                    response.discard_rest()
                    return None
                if response.status == 200 and response.media_type == EVENT_STREAM:
                    return await self._read_stream(response, parser, id_)
                body = await response.read()
            if response.status >= 300:
                in_session = not is_handshake and self._session_id is not None
                spoken = not is_handshake and bool(self._revision)
                if (
                    failure := interpret_http_error(
                        response, self.url, body, id_, in_session=in_session, spoke_before=spoken
                    )
                ) is not None:
                    self._last_problem = str(failure) or self._last_problem
                    raise failure
            return self.dispatch(decode_messages(body), id_)
        except WireError as error:
            raise TransportClosed(f"the response is not a valid message: {error.message}") from None
        except OSError as error:
            raise TransportBroken(describe_error(error)) from None
        except ValueError as error:
            raise TransportClosed(str(error)) from None

    async def _get(
        self, parser: SseParser, id_: RequestId | None, opened: asyncio.Event | None = None
    ) -> Response | None:
        """Open the event stream, after the last event that was received, and return the response with this id."""
        extra_headers = {"Accept": EVENT_STREAM} | ({"Last-Event-ID": parser.last_id} if parser.last_id else {})
        parser.restart()
        try:
            with await self.exchange(self._requests, "GET", self._headers(extra_headers)) as response:
                if response.status >= 500 or response.status in _RETRY_STATUSES:
                    raise TransportBroken(f"HTTP {response.status}")
                if response.status != 200 or response.media_type != EVENT_STREAM:
                    raise TransportUnsupported(f"HTTP {response.status}")
                if opened is not None:
                    opened.set()
                return await self._read_stream(response, parser, id_)
        except OSError as error:
            raise TransportBroken(describe_error(error)) from None
        except ValueError as error:
            raise TransportClosed(str(error)) from None

    async def _read_stream(
        self, http_response: HttpResponse, parser: SseParser, id_: RequestId | None
    ) -> Response | None:
        """Read a stream until it ends or the response with this id arrives."""
        while chunk := await http_response.next():
            if (response := self.read_chunk(chunk, parser, id_)) is not None:
                http_response.discard_rest()
                return response
        return None

    def read_chunk(self, chunk: bytes, parser: SseParser, id_: RequestId | None) -> Response | None:
        """Return the response with this id in a chunk of a stream, and dispatch the messages before it."""
        for event in parser.feed(chunk):
            if event.type != "message" or not event.data:
                continue
            try:
                messages = decode_messages(event.data)
            except WireError:
                self.strays += 1
                continue
            if (response := self.dispatch(messages, id_)) is not None:
                return response
        return None

    async def _keep_stream_open(self, opened: asyncio.Event) -> None:
        """Receive messages that a handshake server sends outside of any request. Reconnect with growing pauses."""
        parser = SseParser()
        pause = _RETRY_SECONDS
        while True:
            before = self._unsolicited_count
            try:
                await self._get(parser, None, opened)
            except TransportUnsupported:
                opened.set()
                return
            except TransportClosed as error:
                logger.debug("the stream of %s was interrupted: %s", strip_userinfo(self.url), error)
            if self._unsolicited_count != before:
                pause = _RETRY_SECONDS
            await asyncio.sleep(min(max(parser.retry or 0.0, pause), _LONGEST_PAUSE))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _headers(self, extra: Mapping[str, str]) -> dict[str, str]:
        headers = dict(extra)
        if self._revision in revisions.HANDSHAKE:
            headers.setdefault("MCP-Protocol-Version", self._revision)
        if self._session_id is not None:
            headers["Mcp-Session-Id"] = self._session_id
        return headers


class _PostedHead(NamedTuple):
    """The head of requests that are posted: their headers, what else it depends on, and how it is encoded."""

    headers: Mapping[str, str]
    given: tuple[str | None, str | None, str]
    encoded: bytes


class _PostedRequest:
    """A request that was sent without a task. A result that arrives as usual is passed on in the same turn.

    Anything else is left to a task: errors, redirects, large bodies, and streams that break.
    """

    __slots__ = (
        "_authorization",
        "_headers",
        "_id",
        "_message",
        "_parser",
        "_response",
        "_task",
        "_transport",
        "_waiter",
    )

    def __init__(
        self,
        transport: HttpTransport,
        id_: RequestId,
        message: bytes,
        headers: Mapping[str, str],
        authorization: str | None,
        waiter: ResponseWaiter,
    ) -> None:
        self._transport = transport
        self._id = id_
        self._message = message
        self._headers = headers
        self._authorization = authorization
        self._waiter = waiter
        self._parser: SseParser | None = None
        self._response: HttpResponse | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, request: bytes) -> bool:
        """Send the request. Return False, without any effect, if no connection is free."""
        transport = self._transport
        self._response = transport.http.try_post(transport.request_origin, request, self._on_change)
        return self._response is not None

    def close(self) -> None:
        """Close the connection unless the response was complete, and end the task."""
        if self._task is not None:
            self._task.cancel()
        elif self._response is not None:
            self._response.on_change = None
            self._response.close()

    def _on_change(self) -> None:
        try:
            self._read()
        except Exception as error:
            # Nothing may stop the connection, which reads on.
            logger.debug("a response is read by a task: %s", error)
            self._continue_in_task()

    def _read(self) -> None:
        response = self._response
        transport = self._transport
        if response is None or (response.status == 0 and response.error is None):
            return
        if response.status != 200 or response.error is not None:
            self._continue_in_task()
            return
        # Comparing the bytes first is faster.
        is_json = response.headers.get(b"content-type") == _JSON
        if self._parser is None and not is_json and response.media_type == EVENT_STREAM:
            self._parser = SseParser()
        if self._parser is not None:
            message = transport.read_chunk(response.take(), self._parser, self._id)
            if message is not None:
                response.on_change = None
                response.discard_rest()
                self._finish(message)
            elif response.complete:
                self._continue_in_task()
        elif response.complete:
            message = transport.dispatch(decode_messages(response.take()), self._id)
            if message is None:
                self._fail(TransportClosed("the response ended before it was complete"))
            else:
                self._finish(message)
        elif response.unread_bytes > _LARGE_BYTES:
            self._continue_in_task()

    def _finish(self, message: Response) -> None:
        self._transport.forget_posted(self._id)
        self._transport.challenge = None
        if not self._waiter.done():
            self._waiter.set_result(message)

    def _fail(self, error: Exception) -> None:
        self._transport.forget_posted(self._id)
        if not self._waiter.done():
            self._waiter.set_exception(error)

    def _continue_in_task(self) -> None:
        assert self._response is not None
        self._response.on_change = None
        if self._task is None:
            self._task = self._transport.start_task(self._continue(self._response))

    async def _continue(self, response: HttpResponse) -> None:
        if response.status == 0 and response.error is not None:
            error = response.error
            kind = TransportBroken if isinstance(error, OSError) else TransportClosed
            self._fail(kind(describe_error(error) if isinstance(error, OSError) else str(error)))
            return
        try:
            message = await self._transport.complete(
                self._id, self._message, self._headers, self._parser or SseParser(), (response, self._authorization)
            )
        except Exception as error:
            self._fail(error)
        else:
            self._finish(message)


@dataclass
class SseTransport(RemoteTransport):
    """HTTP+SSE: one event stream for the server's messages, which also states where to post the client's."""

    cancels_by_closing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._endpoint: asyncio.Future[HttpRequestWriter] | None = None
        # Where the stream is, after redirects.
        self._stream_url = self.url
        self._pending = PendingResponses()
        self._on_lost: HandleLoss | None = None
        self._tasks = TaskSet("mcp sse", on_crash=lambda name, error: self._fail(f"{type(error).__name__}: {error}"))

    @property
    def strays(self) -> int:
        return self._pending.strays

    async def open(self, on_message: HandleMessage, on_lost: HandleLoss) -> None:
        """Open the event stream and wait for the endpoint. Raise TransportUnsupported if it does not arrive in time."""
        self._on_message = on_message
        self._on_lost = on_lost
        self.close_reason = None
        self._endpoint = asyncio.get_running_loop().create_future()
        self._tasks.start(self._listen(), "stream")
        try:
            async with asyncio.timeout(_ENDPOINT_SECONDS):
                await asyncio.shield(self._endpoint)
        except TimeoutError:
            await self.close()
            raise TransportUnsupported("the server sent no endpoint event") from None

    async def request(self, id_: RequestId, message: bytes, headers: Mapping[str, str]) -> Response:
        return await self._pending.wait_for_response(id_, self.send(message, headers))

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        if self.close_reason is not None or self._endpoint is None:
            raise TransportClosed(self.close_reason or "not connected")
        try:
            with await self.exchange(await self._endpoint, "POST", headers, message) as response:
                if response.status >= 300:
                    text = describe_redirect(response, self.url)
                    text = text or (await response.next())[:300].decode("utf-8", "replace")
                    kind = TransportClosed if read_challenge(response) is None else AuthenticationRequired
                    raise kind(f"HTTP {response.status}: {text}")
                response.discard_rest()
        except (OSError, ValueError) as error:
            raise TransportClosed(describe_error(error)) from None

    async def on_revision_agreed(self, revision: str) -> None:
        """Do nothing: the transport does not depend on the revision."""

    def list_problems(self) -> list[str]:
        return [self.close_reason] if self.close_reason else []

    def diagnosis(self) -> str:
        return self.close_reason or ""

    async def close(self) -> None:
        self._fail("closed")
        await self._tasks.close()

    async def _listen(self) -> None:
        parser = SseParser()
        try:
            writer = HttpRequestWriter(self.url, {"Accept": EVENT_STREAM, **self.headers})
            with await self.exchange(writer, "GET", {}) as response:
                if response.status != 200 or response.media_type != EVENT_STREAM:
                    redirect = describe_redirect(response, self.url)
                    self._fail(f"HTTP {response.status}{f': {redirect}' if redirect else ''}", TransportUnsupported)
                    return
                self._stream_url = response.url
                while chunk := await response.next():
                    for event in parser.feed(chunk):
                        self._handle_event(event)
            self._fail("the stream ended")
        except (OSError, ValueError) as error:
            self._fail(describe_error(error))

    def _handle_event(self, event: ServerSentEvent) -> None:
        if event.type == "endpoint":
            self._take_endpoint(event.data.decode("utf-8", "replace").strip())
            return
        try:
            messages = decode_messages(event.data)
        except WireError:
            self._pending.strays += 1
            return
        self._pending.dispatch(messages, self._on_message)

    def _take_endpoint(self, uri: str) -> None:
        """Set where to post. Only the first endpoint counts, and it must have the same origin.

        Our headers, which may contain credentials, are sent there.
        """
        assert self._endpoint is not None
        if self._endpoint.done():
            self._pending.strays += 1
            return
        requests = HttpRequestWriter(self.url, {"Content-Type": "application/json", **self.headers})
        stream = requests.at(self._stream_url)
        endpoint = stream.at(uri) if stream is not None else None
        if endpoint is None:
            self._fail(f"the server announced an endpoint at another origin: {strip_userinfo(uri)[:200]}")
        else:
            self._endpoint.set_result(endpoint)

    def _fail(self, reason: str, kind: type[Exception] = TransportClosed) -> None:
        if self.close_reason is not None:
            return
        self.close_reason = reason
        self._pending.fail(kind(reason))
        if self._endpoint is not None and not self._endpoint.done():
            self._endpoint.set_exception(kind(reason))
            # Marks the exception as retrieved: nothing may be waiting for it.
            self._endpoint.exception()
        if self._on_lost is not None:
            self._on_lost(reason)
