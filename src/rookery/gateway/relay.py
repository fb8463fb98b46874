"""One call on its way to a server behind us, and everything that comes back for it before its answer."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from rookery.gateway.able import able
from rookery.gateway.legs import asked, is_known, told, with_meta, without_rounds
from rookery.system import metrics
from rookery.system.tasks import TaskSet
from rookery.wire import revisions
from rookery.wire.client import Client as Server
from rookery.wire.jsonrpc import METHOD_NOT_FOUND, Notification, Params, WireError
from rookery.wire.provider import Ask, Call, wants_log
from rookery.wire.sent import Sent

T = TypeVar("T")

logger = logging.getLogger("rookery.mcp.gateway")

DROPPED = metrics.counter("rookery_relayed_dropped_total", "Notifications that a slow client did not take in time.")

_tasks = TaskSet("relay")
_QUESTION = "question"
_MOST_WAITING = 1000
_MOST_BYTES = 4 * 1024 * 1024


def roots(folder: Path | None) -> Mapping[str, Any]:
    """What a server may work on: the workspace. Without one nothing: servers take this for more than a hint."""
    return {"roots": [{"uri": folder.as_uri()}] if folder is not None else []}


class Relay:
    """Hears what a server says while it works on one call, and hands it to the client that called, in order."""

    __slots__ = ("_asking", "_bytes", "_call", "_dropped", "_lacks", "_root", "_sending", "_waiting", "caller")

    def __init__(self, call: Call, root: Path | None) -> None:
        self.caller = call.caller
        self._call = call
        self._root = root
        self._waiting: deque[tuple[str, Mapping[str, Any] | Raw, int]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._sending: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[Any] | None] = set()
        # What its client could not be asked.
        self._lacks: str | None = None

    def progressed(self, params: Params) -> None:
        token = self._call.meta.get("progressToken")
        if token is not None:
            size = sum(map(len, params.values()))
            self._pass_on("notifications/progress", {**params, "progressToken": token}, size)

    def notified(self, message: Notification) -> None:
        if message.method == "notifications/message" and not self._wants_log(message.params):
            return
        if not is_known(self._call, message.method):
            return
        self._pass_on(message.method, message.params, len(message.params))

    async def answer(self, method: str, params: Params) -> Mapping[str, Any] | Raw:
        """A question of the server's. A client that cannot be asked is answered for."""
        call = self._call
        if method not in revisions.CAPABILITY_OF:
            raise WireError(METHOD_NOT_FOUND, f"there is nobody here to answer {method}")
        if not call.askable or not able(call, method, params):
            return self._answer_for(method)
        task = asyncio.current_task()
        self._asking.add(task)
        try:
            await self.flush()
            return (await call.ask_raw({_QUESTION: Ask(method, asked(call, method, params))}))[_QUESTION]
        finally:
            self._asking.discard(task)

    def _answer_for(self, method: str) -> Mapping[str, Any]:
        if method == "roots/list":
            return roots(self._root)
        if method == "elicitation/create":
            return {"action": "cancel"}
        self._lacks = revisions.CAPABILITY_OF[method]
        raise WireError(METHOD_NOT_FOUND, "the client of this call cannot sample")

    async def call(self, server: Server, params: Mapping[str, Any], sent: Sent | None = None) -> Raw:
        """Make the call, or wait for it where it was sent already."""
        call = self._call
        work = server.call(
            call.method,
            with_meta(call, without_rounds(params) if call.client.modern and not server.modern else params, server),
            listener=self,
            capabilities=call.client.capabilities,
            # What a modern server asks in its result a modern client answers itself, unless we asked it before that.
            rounds=call.resumed or not call.client.modern,
            sent=sent,
        )
        return await self.run(work)

    async def run(self, work: Awaitable[T]) -> T:
        """Wait for the answer, an error too, and for everything that was said before it to be handed over."""
        try:
            try:
                result = await work
            except Exception as error:
                await self.flush()
                raise told(error, self._call, self._lacks) from None
            if self._sending is not None:
                await self.flush()
            return result
        finally:
            if self._asking:
                await self._take_back()
            if self._sending is not None:
                self._sending.cancel()
            if self._dropped:
                logger.warning("a client read too slowly: %d notifications of its call were dropped", self._dropped)

    async def _take_back(self) -> None:
        """Its client need not trouble anybody for what the server no longer waits for, and is told so in time."""
        asking = [task for task in self._asking if task is not None]
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)

    async def flush(self) -> None:
        while self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    def _pass_on(self, method: str, params: Mapping[str, Any] | Raw, size: int) -> None:
        self._bytes += size
        while self._waiting and (len(self._waiting) >= _MOST_WAITING or self._bytes > _MOST_BYTES):
            # The client reads slower than the server talks; the newest tell more than the oldest.
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
