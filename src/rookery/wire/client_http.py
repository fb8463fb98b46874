"""A server behind Streamable HTTP."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from rookery.system.tasks import TaskSet
from rookery.wire import revisions
from rookery.wire.channel import ChannelClosed, Heard, Lost, NoSuchTransport
from rookery.wire.http_answer import Answer
from rookery.wire.http_request import Requests
from rookery.wire.jsonrpc import Id, Message, Response, WireError, decode
from rookery.wire.refusal import refusal
from rookery.wire.remote import EVENTS, Broken, Remote, told
from rookery.wire.sse_parser import SseParser

logger = logging.getLogger("rookery.mcp.http")

_ACCEPT = {"Accept": f"application/json, {EVENTS}", "Content-Type": "application/json"}
_RETRY_SECONDS = 1.0
_LONGEST_PAUSE = 60.0
_RESUMPTIONS = 20
_STAND_SECONDS = 1.0
_LATER = (408, 429)


@dataclass
class HttpChannel(Remote):
    cancels_by_closing: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._id: str | None = None
        self._revision = ""
        self._tasks = TaskSet("mcp http")
        self._standing: asyncio.Task[None] | None = None
        self._trouble = ""
        self._unasked = 0
        self.strays = 0

    async def open(self, heard: Heard, lost: Lost) -> None:
        """There is nothing that could be lost: each request finds its own way."""
        self._heard = heard
        try:
            self._requests = Requests(self.url, {**_ACCEPT, **self.headers})
        except ValueError as error:
            raise ChannelClosed(str(error)) from None

    async def agreed(self, revision: str) -> None:
        self._revision, self._trouble = revision, ""
        if self._standing is not None:
            self._standing.cancel()
        if self._id is None:
            return
        standing = asyncio.Event()
        self._standing = self._tasks.start(self._stand(standing), "stream")
        # Some servers ask questions only on that stream, and drop them while there is none.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STAND_SECONDS):
                await standing.wait()

    def diagnosis(self) -> str:
        return self._trouble

    async def close(self) -> None:
        await self._tasks.close()
        if self._id is not None:
            with contextlib.suppress(OSError, ValueError):
                async with asyncio.timeout(2.0):
                    with await self.exchange(self._requests, "DELETE", self._headers({})) as answer:
                        self._id = None
                        answer.leave()

    async def request(self, id_: Id, message: bytes, headers: Mapping[str, str]) -> Response:
        parser = SseParser()
        try:
            if (found := await self._post(message, headers, parser, id_)) is not None:
                return found
        except Broken:
            if parser.last_id is None:
                raise
        # The stream ended before the answer. Where events have ids, the server will go on where it stopped.
        rounds = 0
        while parser.last_id is not None and rounds < _RESUMPTIONS:
            seen = parser.last_id
            await asyncio.sleep(min(_RETRY_SECONDS if parser.retry is None else parser.retry, _LONGEST_PAUSE))
            try:
                if (found := await self._get(parser, id_)) is not None:
                    return found
            except NoSuchTransport as error:
                raise ChannelClosed(f"the answer broke off and cannot be had again: {error}") from None
            except Broken as error:
                self._trouble = str(error)
            rounds = rounds + 1 if parser.last_id == seen else 0
        raise ChannelClosed("the answer ended before it was whole")

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        await self._post(message, headers, SseParser(), None)

    def _find(self, messages: list[Message], id_: Id | None) -> Response | None:
        """The answer that is waited for; what comes before it goes where it belongs."""
        for message in messages:
            self._unasked += id_ is None
            if not isinstance(message, Response):
                self._heard(message, id_)
            elif message.id == id_:
                return message
            else:
                self.strays += 1
        return None

    async def _post(
        self, message: bytes, headers: Mapping[str, str], parser: SseParser, id_: Id | None
    ) -> Response | None:
        """Say something; the answer with this id, if it comes."""
        # Only a handshake comes without headers of its own; it belongs to no session and makes one.
        shaking = id_ is not None and not headers
        try:
            sent = {} if shaking else self._headers(headers)
            with await self.exchange(self._requests, "POST", sent, message) as answer:
                if shaking and answer.status < 400:
                    self._id = answer.header(b"mcp-session-id")
                if answer.status == 202 or answer.status == 204:
                    answer.leave()
                    return None
                if answer.status == 200 and answer.kind == EVENTS:
                    return await self._hear(answer, parser, id_)
                body = await answer.read()
            if answer.status >= 300:
                in_session, spoken = not shaking and self._id is not None, not shaking and bool(self._revision)
                if (refused := refusal(answer, body, id_, in_session=in_session, spoken=spoken)) is not None:
                    self._trouble = str(refused) or self._trouble
                    raise refused
            return self._find(decode(body), id_)
        except WireError as error:
            raise ChannelClosed(f"the answer is no message: {error.message}") from None
        except OSError as error:
            raise Broken(told(error)) from None
        except ValueError as error:
            raise ChannelClosed(str(error)) from None

    async def _get(self, parser: SseParser, id_: Id | None, answered: asyncio.Event | None = None) -> Response | None:
        more = {"Accept": EVENTS} | ({"Last-Event-ID": parser.last_id} if parser.last_id else {})
        parser.restart()
        try:
            with await self.exchange(self._requests, "GET", self._headers(more)) as answer:
                if answer.status >= 500 or answer.status in _LATER:
                    raise Broken(f"HTTP {answer.status}")
                if answer.status != 200 or answer.kind != EVENTS:
                    raise NoSuchTransport(f"HTTP {answer.status}")
                if answered is not None:
                    answered.set()
                return await self._hear(answer, parser, id_)
        except OSError as error:
            raise Broken(told(error)) from None
        except ValueError as error:
            raise ChannelClosed(str(error)) from None

    async def _hear(self, answer: Answer, parser: SseParser, id_: Id | None) -> Response | None:
        """Follow a stream to its end, or to the answer with this id."""
        while chunk := await answer.next():
            for made in parser.feed(chunk):
                if made.type != "message" or not made.data:
                    continue
                try:
                    messages = decode(made.data)
                except WireError:
                    self.strays += 1
                    continue
                if (found := self._find(messages, id_)) is not None:
                    answer.leave()
                    return found
        return None

    async def _stand(self, standing: asyncio.Event) -> None:
        """Hear what a handshake server says outside of any request; it is asked again with growing pauses."""
        parser, pause = SseParser(), _RETRY_SECONDS
        while True:
            before = self._unasked
            try:
                await self._get(parser, None, standing)
            except NoSuchTransport:
                standing.set()
                return
            except ChannelClosed as error:
                logger.debug("the stream of %s broke: %s", self.url, error)
            if self._unasked != before:
                pause = _RETRY_SECONDS
            await asyncio.sleep(min(max(parser.retry or 0.0, pause), _LONGEST_PAUSE))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        found = dict(more)
        if self._revision in revisions.HANDSHAKE:
            found.setdefault("MCP-Protocol-Version", self._revision)
        if self._id is not None:
            found["Mcp-Session-Id"] = self._id
        return found
