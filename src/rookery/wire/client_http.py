"""A server behind Streamable HTTP."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

import aiohttp

from rookery.system.tasks import TaskSet
from rookery.wire import revisions
from rookery.wire.channel import ChannelClosed, Heard, Lost, NoSuchTransport, SessionLost
from rookery.wire.jsonrpc import Id, Message, Response, WireError, decode
from rookery.wire.remote import Remote, told, whole_body
from rookery.wire.sse_parser import SseParser

logger = logging.getLogger("rookery.mcp.http")

_ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_RETRY_SECONDS = 1.0
_LONGEST_PAUSE = 60.0
_RESUMPTIONS = 20
_STAND_SECONDS = 1.0
# Says that the server does not speak Streamable HTTP, unlike those that say: not you, or not now.
_FOREIGN = frozenset({400, 404, 405, 406, 410, 415, 501}) | frozenset(range(300, 400))
_LATER = (408, 429)


class _Broken(ChannelClosed):
    """The connection broke; what it carried may be had over another one."""


@dataclass
class HttpChannel(Remote):
    cancels_by_closing: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._id: str | None = None
        self._revision = ""
        self._tasks = TaskSet("mcp http")
        self._standing: asyncio.Task[None] | None = None
        self._trouble = ""
        self.strays = 0

    async def open(self, heard: Heard, lost: Lost) -> None:
        """There is nothing that could be lost: each request finds its own way."""
        self._heard = heard

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
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with asyncio.timeout(2.0), self.exchange("DELETE", self.url, self._headers({})):
                    self._id = None

    async def request(self, id_: Id, message: bytes, headers: Mapping[str, str]) -> Response:
        parser = SseParser()
        try:
            if (answer := await self._find(self._post(message, headers, parser, id_), id_)) is not None:
                return answer
        except _Broken:
            if parser.last_id is None:
                raise
        # The stream ended before the answer. Where events have ids, the server will go on where it stopped.
        rounds = 0
        while parser.last_id is not None and rounds < _RESUMPTIONS:
            seen = parser.last_id
            await asyncio.sleep(min(_RETRY_SECONDS if parser.retry is None else parser.retry, _LONGEST_PAUSE))
            try:
                if (answer := await self._find(self._get(parser), id_)) is not None:
                    return answer
            except NoSuchTransport as error:
                raise ChannelClosed(f"the answer broke off and cannot be had again: {error}") from None
            except _Broken as error:
                self._trouble = str(error)
            rounds = rounds + 1 if parser.last_id == seen else 0
        raise ChannelClosed("the answer ended before it was whole")

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        await self._find(self._post(message, headers, SseParser(), None), None)

    async def _find(self, messages: AsyncGenerator[Message], id_: Id | None) -> Response | None:
        """The answer with this id among what comes; the rest goes where it belongs."""
        async with contextlib.aclosing(messages):
            async for found in messages:
                if (answer := self._sort(found, id_)) is not None:
                    return answer
        return None

    def _sort(self, message: Message, id_: Id | None) -> Response | None:
        """The answer that is waited for; anything else goes where it belongs."""
        if isinstance(message, Response):
            if message.id == id_:
                return message
            self.strays += 1
        else:
            self._heard(message, id_)
        return None

    async def _post(
        self, message: bytes, headers: Mapping[str, str], parser: SseParser, id_: Id | None
    ) -> AsyncGenerator[Message]:
        # Only a handshake comes without headers of its own; it belongs to no session and makes one.
        shaking = id_ is not None and not headers
        try:
            sent = {**_ACCEPT, **self.headers} if shaking else self._headers(headers)
            async with self.exchange("POST", self.url, sent, message) as response:
                if shaking and response.ok:
                    self._id = response.headers.get("Mcp-Session-Id")
                if response.status == 202 or response.status == 204:
                    return
                if response.content_type == "text/event-stream" and response.status == 200:
                    async for found in self._events(response, parser):
                        yield found
                    return
                body = await whole_body(response)
                if response.status >= 300:
                    self._refused(response, body, id_, shaking)
                for found in decode(body):
                    yield found
        except WireError as error:
            raise ChannelClosed(f"the answer is no message: {error.message}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Broken(told(error)) from None
        except ValueError as error:
            raise ChannelClosed(str(error)) from None

    def _refused(self, response: aiohttp.ClientResponse, body: bytes, id_: Id | None, shaking: bool) -> None:
        """An HTTP error. A JSON-RPC error in its body is the answer, except where it says that the session is lost."""
        status, text = response.status, body[:300].decode("utf-8", "replace")
        if self._id is not None and not shaking and (status == 404 or (status == 400 and "session" in text.lower())):
            raise SessionLost
        with contextlib.suppress(WireError):
            if any(isinstance(one, Response) and one.id == id_ for one in decode(body)):
                return
        if "Location" in response.headers:
            text = f"redirects are not followed; this one is to {response.headers['Location'][:200]}"
        self._trouble = f"HTTP {status}: {text}"
        if status in _FOREIGN and (shaking or not self._revision):
            raise NoSuchTransport(self._trouble)
        raise ChannelClosed(self._trouble)

    async def _get(self, parser: SseParser, answered: asyncio.Event | None = None) -> AsyncGenerator[Message]:
        more = {"Accept": "text/event-stream"} | ({"Last-Event-ID": parser.last_id} if parser.last_id else {})
        parser.restart()
        try:
            async with self.exchange("GET", self.url, self._headers(more)) as response:
                if response.status >= 500 or response.status in _LATER:
                    raise _Broken(f"HTTP {response.status}")
                if response.status != 200 or response.content_type != "text/event-stream":
                    raise NoSuchTransport(f"HTTP {response.status}")
                if answered is not None:
                    answered.set()
                async for found in self._events(response, parser):
                    yield found
        except (aiohttp.ClientError, OSError) as error:
            raise _Broken(told(error)) from None
        except ValueError as error:
            raise ChannelClosed(str(error)) from None

    async def _events(self, response: aiohttp.ClientResponse, parser: SseParser) -> AsyncGenerator[Message]:
        async for chunk in response.content.iter_any():
            for made in parser.feed(chunk):
                if made.type != "message" or not made.data:
                    continue
                try:
                    messages = decode(made.data)
                except WireError:
                    self.strays += 1
                    continue
                for found in messages:
                    yield found

    async def _stand(self, standing: asyncio.Event) -> None:
        """Hear what a handshake server says outside of any request; it is asked again with growing pauses."""
        parser, pause = SseParser(), _RETRY_SECONDS
        while True:
            try:
                async for found in self._get(parser, standing):
                    pause = _RETRY_SECONDS
                    self._sort(found, None)
            except NoSuchTransport:
                standing.set()
                return
            except ChannelClosed as error:
                logger.debug("the stream of %s broke: %s", self.url, error)
            await asyncio.sleep(min(max(parser.retry or 0.0, pause), _LONGEST_PAUSE))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        found = {**_ACCEPT, **self.headers, **more}
        if self._revision in revisions.HANDSHAKE:
            found.setdefault("MCP-Protocol-Version", self._revision)
        if self._id is not None:
            found["Mcp-Session-Id"] = self._id
        return found
