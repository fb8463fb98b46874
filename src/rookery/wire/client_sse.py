"""A server behind the older HTTP+SSE: one stream for what it says, posts for what we say."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from rookery.system.tasks import TaskSet
from rookery.wire.channel import ChannelClosed, Heard, Lost, NoSuchTransport, NotSignedIn
from rookery.wire.http_request import Requests
from rookery.wire.jsonrpc import Id, Response, WireError, decode
from rookery.wire.pending import Pending
from rookery.wire.remote import EVENTS, Remote, challenge_of, told
from rookery.wire.sse_parser import ServerSentEvent, SseParser

_ENDPOINT_SECONDS = 10.0


@dataclass
class SseChannel(Remote):
    cancels_by_closing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._endpoint: asyncio.Future[Requests] | None = None
        self._pending = Pending()
        self._lost: Lost | None = None
        self._tasks = TaskSet("mcp sse")

    @property
    def strays(self) -> int:
        return self._pending.strays

    async def open(self, heard: Heard, lost: Lost) -> None:
        self._heard, self._lost = heard, lost
        self.gone = None
        self._endpoint = asyncio.get_running_loop().create_future()
        self._tasks.start(self._listen(), "stream")
        try:
            async with asyncio.timeout(_ENDPOINT_SECONDS):
                await asyncio.shield(self._endpoint)
        except TimeoutError:
            await self.close()
            raise NoSuchTransport("no endpoint event came") from None

    async def request(self, id_: Id, message: bytes, headers: Mapping[str, str]) -> Response:
        return await self._pending.answer(id_, self.send(message, headers))

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        if self.gone is not None or self._endpoint is None:
            raise ChannelClosed(self.gone or "not connected")
        try:
            with await self.exchange(await self._endpoint, "POST", headers, message) as answer:
                if answer.status >= 300:
                    text = (await answer.next())[:300].decode("utf-8", "replace")
                    kind = ChannelClosed if challenge_of(answer) is None else NotSignedIn
                    raise kind(f"HTTP {answer.status}: {text}")
                answer.leave()
        except (OSError, ValueError) as error:
            raise ChannelClosed(told(error)) from None

    async def agreed(self, revision: str) -> None:
        """Nothing changes."""

    def diagnosis(self) -> str:
        return self.gone or ""

    async def close(self) -> None:
        self._fail("closed")
        await self._tasks.close()

    async def _listen(self) -> None:
        parser = SseParser()
        try:
            streams = Requests(self.url, {"Accept": EVENTS, **self.headers})
            with await self.exchange(streams, "GET", {}) as answer:
                if answer.status != 200 or answer.kind != EVENTS:
                    self._fail(f"HTTP {answer.status}", NoSuchTransport)
                    return
                while chunk := await answer.next():
                    for made in parser.feed(chunk):
                        self._take(made)
            self._fail("the stream ended")
        except (OSError, ValueError) as error:
            self._fail(told(error))

    def _take(self, made: ServerSentEvent) -> None:
        if made.type == "endpoint":
            self._take_endpoint(made.data.decode("utf-8", "replace").strip())
            return
        try:
            messages = decode(made.data)
        except WireError:
            self._pending.strays += 1
            return
        self._pending.take(messages, self._heard)

    def _take_endpoint(self, given: str) -> None:
        """Where to post. It must be at the same origin, and counts once: our headers go there."""
        assert self._endpoint is not None
        target = urljoin(self.url, given)
        if self._endpoint.done():
            self._pending.strays += 1
        elif urlsplit(target)[:2] != urlsplit(self.url)[:2]:
            self._fail(f"it wants our messages at another origin: {target[:200]}")
        else:
            self._endpoint.set_result(Requests(target, {"Content-Type": "application/json", **self.headers}))

    def _fail(self, reason: str, kind: type[Exception] = ChannelClosed) -> None:
        if self.gone is not None:
            return
        self.gone = reason
        self._pending.fail(kind(reason))
        if self._endpoint is not None and not self._endpoint.done():
            self._endpoint.set_exception(kind(reason))
            # Nobody may be waiting for it any more.
            self._endpoint.exception()
        if self._lost is not None:
            self._lost(reason)
