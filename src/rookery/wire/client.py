"""The client role: requests to one server, with time-outs, progress, cancellation and answers to its questions."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire import headers as mirrored, revisions
from rookery.wire.channel import Channel, ChannelClosed, NoSuchTransport, SessionLost
from rookery.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Id,
    Notification,
    Params,
    Request,
    WireError,
    encode_notification,
    encode_request,
    encode_result,
    object_of,
)

logger = logging.getLogger("rookery.mcp.client")

_ROUNDS = 10
_PAGES = 1000
_CANCEL_SECONDS = 2.0
_SAY_SECONDS = 30.0

Answerer = Callable[[str, Params], Awaitable[Mapping[str, Any]]]
Progress = Callable[[Params], None]


@dataclass(frozen=True)
class Timeouts:
    """Seconds. `startup` is for connecting, `catalog` for a list, `execution` for a call; progress resets the last."""

    startup: float = 30.0
    catalog: float = 5.0
    execution: float = 300.0


@dataclass(frozen=True)
class Identity:
    """How we present ourselves, and what we can be asked."""

    info: Mapping[str, Any]
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class _Running:
    """A request that is waited for."""

    limit: asyncio.Timeout
    seconds: float
    told: Progress | None

    def allow(self, seconds: float) -> None:
        """End it in so many seconds from now, unless it is ending already."""
        if not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def progressed(self, params: Params) -> None:
        self.allow(self.seconds)
        if self.told is not None:
            self.told(params)


async def _answer_nothing(method: str, params: Params) -> Mapping[str, Any]:
    raise WireError(METHOD_NOT_FOUND, f"there is nobody here to answer {method}")


class Client:
    """A connected server. Made by `connect.connect`, which finds out what it speaks."""

    def __init__(
        self,
        channel: Channel,
        identity: Identity,
        timeouts: Timeouts,
        answerer: Answerer = _answer_nothing,
        notified: Callable[[Notification], None] = lambda notification: None,
    ) -> None:
        self.channel = channel
        self.identity = identity
        self.timeouts = timeouts
        self.revision = ""
        self.capabilities: Mapping[str, Any] = {}
        self.info: Mapping[str, Any] = {}
        self.instructions: str | None = None
        self.strays = 0
        # Makes a lost session anew.
        self.renew: Callable[[], Awaitable[None]] | None = None
        self._renewing = asyncio.Lock()
        self._renewals = 0
        self._answerer = answerer
        self._notified = notified
        self._numbers = itertools.count(1)
        self._running: dict[Id, _Running] = {}
        self._closed = False
        self._mirrored: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        self._tasks = TaskSet("mcp client")
        self._answering: dict[Id, asyncio.Task[None]] = {}

    @property
    def modern(self) -> bool:
        return self.revision in revisions.MODERN

    async def close(self) -> None:
        """Ends every request that still runs."""
        self._closed = True
        for running in self._running.values():
            running.allow(0)
        await self._tasks.close()
        await self.channel.close()

    # ---- asking

    async def request(
        self, method: str, params: Mapping[str, Any], *, seconds: float, what: str, on_progress: Progress | None = None
    ) -> Raw:
        """The result, as it came. Raises WireError for an error answer, RookeryError for anything else that fails."""
        renewals = self._renewals
        try:
            return await self._request(method, params, seconds, what, on_progress)
        except SessionLost:
            # Nothing of it was done, so that it can be said again; anything else that breaks is not repeated.
            pass
        await self._make_session_anew(method, renewals)
        try:
            return await self._request(method, params, seconds, what, on_progress)
        except SessionLost:
            raise RookeryError("upstream-failed", f"{method}: the server forgets every session at once") from None

    async def _make_session_anew(self, method: str, renewals: int) -> None:
        """Unless another request has tried since `renewals` was read."""
        async with self._renewing:
            if self._renewals != renewals:
                return
            self._renewals += 1
            try:
                if self.renew is None:
                    raise ChannelClosed("there was no handshake")
                await self.renew()
            except (ChannelClosed, NoSuchTransport, WireError, RookeryError) as error:
                raise RookeryError(
                    "upstream-failed", f"{method}: the server forgot the session, and there is no new one: {error}"
                ) from None

    async def _request(
        self, method: str, params: Mapping[str, Any], seconds: float, what: str, on_progress: Progress | None
    ) -> Raw:
        if self._closed:
            raise _closed(method)
        number = next(self._numbers)
        message, headers = self._write(number, method, params, with_progress=on_progress is not None)
        try:
            async with asyncio.timeout(seconds) as limit:
                self._running[number] = _Running(limit, seconds, on_progress)
                try:
                    response = await self.channel.request(number, message, headers)
                finally:
                    del self._running[number]
        except TimeoutError:
            if self._closed:
                raise _closed(method) from None
            await self._give_up(number, method, f"{what} time-out")
            detail = self.channel.diagnosis()
            more = f" ({detail})" if detail else ""
            raise RookeryError(
                "timeout", f"{method}: no answer within the {what} time-out of {seconds:g} s{more}"
            ) from None
        except asyncio.CancelledError:
            await self._give_up(number, method, "cancelled")
            raise
        except ChannelClosed as error:
            raise RookeryError("upstream-failed", f"{method}: {error}") from None
        if response.error is not None:
            raise wire_error(response.error)
        return response.result

    async def call(self, method: str, params: Mapping[str, Any], on_progress: Progress | None = None) -> Raw:
        """A request that may take long and, in the modern era, ask back before it answers."""
        given = dict(params)
        for _ in range(_ROUNDS):
            result = await self.request(
                method, given, seconds=self.timeouts.execution, what="execution", on_progress=on_progress
            )
            if not self.modern or b"input_required" not in bytes(result):
                return result
            members = object_of(result, "result")
            if members.get("resultType") != Raw(b'"input_required"'):
                return result
            given = dict(params) | {"inputResponses": await self._inputs(members)}
            if "requestState" in members:
                given["requestState"] = members["requestState"]
        raise RookeryError("upstream-failed", f"{method} asked for input more than {_ROUNDS} times")

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | Raw, on_progress: Progress | None = None
    ) -> Raw:
        return await self.call("tools/call", {"name": name, "arguments": arguments}, on_progress)

    async def list_all(self, method: str, key: str) -> list[Raw]:
        """All pages of a list; a cursor that comes again, or never ends, is an error."""
        found: list[Raw] = []
        seen: set[str] = set()
        params: dict[str, Any] = {}
        for _ in range(_PAGES):
            result = await self.request(method, params, seconds=self.timeouts.catalog, what="catalog")
            try:
                page = msgspec.json.decode(result, type=dict[str, Raw])
                found += msgspec.json.decode(page.get(key, Raw(b"[]")), type=list[Raw])
                cursor = msgspec.json.decode(page.get("nextCursor", Raw(b"null")), type=str | None)
            except msgspec.DecodeError as error:
                raise RookeryError("upstream-failed", f"{method}: the answer does not fit: {error}") from None
            if cursor is None:
                return self._usable(found) if method == "tools/list" else found
            if cursor in seen:
                raise RookeryError("upstream-failed", f"{method}: the cursor {cursor[:80]!r} came twice")
            seen.add(cursor)
            params = {"cursor": cursor}
        raise RookeryError("upstream-failed", f"{method}: more than {_PAGES} pages")

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._say(encode_notification(method, msgspec.json.encode(params)), self._headers(method, params))

    async def _say(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send what gets no answer. Where it does not arrive, the next request finds out why."""
        with contextlib.suppress(TimeoutError, ChannelClosed, SessionLost, NoSuchTransport):
            async with asyncio.timeout(_SAY_SECONDS):
                await self.channel.send(message, headers)

    def _usable(self, tools: list[Raw]) -> list[Raw]:
        """Remember which arguments are repeated in headers; a tool that asks for that wrongly is left out."""
        kept: list[Raw] = []
        self._mirrored.clear()
        for tool in tools:
            try:
                found = msgspec.json.decode(tool, type=_Tool)
                wanted = [(place, header) for place, header, _ in mirrored.declared(found.inputSchema)]
            except ValueError as error:
                logger.warning("a tool was left out: %s", error)
                continue
            if wanted:
                self._mirrored[found.name] = wanted
            kept.append(tool)
        return kept

    def _write(
        self, number: Id, method: str, params: Mapping[str, Any], *, with_progress: bool
    ) -> tuple[bytes, dict[str, str]]:
        meta: dict[str, Any] = dict(params.get("_meta", {}))
        if self.modern:
            meta |= {
                revisions.META_VERSION: self.revision,
                revisions.META_CAPABILITIES: self.identity.capabilities,
                revisions.META_CLIENT: self.identity.info,
            }
        if with_progress:
            meta["progressToken"] = number
        whole = {**params, "_meta": meta} if meta else dict(params)
        return encode_request(number, method, msgspec.json.encode(whole)), self._headers(method, params)

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers by which a modern message can be routed; a handshake has none."""
        if not self.revision or method == "initialize":
            return {}
        found = {"MCP-Protocol-Version": self.revision}
        if not self.modern:
            return found
        found["Mcp-Method"] = method
        named_by = revisions.NAMED_BY.get(method)
        if named_by is None or named_by not in params:
            return found
        found["Mcp-Name"] = mirrored.encode_value(str(params[named_by]))
        wanted = self._mirrored.get(str(params[named_by]), []) if method == "tools/call" else []
        if wanted:
            given = params.get("arguments", {})
            arguments = msgspec.json.decode(given) if isinstance(given, Raw) else given
            for place, header in wanted:
                text = mirrored.render(mirrored.at(arguments, place))
                if text is not None:
                    found[f"Mcp-Param-{header}"] = mirrored.encode_value(text)
        return found

    async def _give_up(self, number: Id, method: str, reason: str) -> None:
        """Tell the server that nobody waits any more, but do not wait for long to do so."""
        # A handshake must not be cancelled.
        if method == "initialize" or (self.channel.cancels_by_closing and self.modern):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.notify("notifications/cancelled", {"requestId": number, "reason": reason})

    # ---- being asked

    def heard(self, message: Request | Notification) -> None:
        """Something that the server says of its own accord. Nothing in it may end the reading."""
        try:
            self._hear(message)
        except (WireError, msgspec.DecodeError):
            self.strays += 1
        except Exception:
            logger.exception("%s was not taken in", message.method)

    def _hear(self, message: Request | Notification) -> None:
        if isinstance(message, Request):
            if message.id in self._answering:
                self.strays += 1
                return
            self._answering[message.id] = self._tasks.start(self._answer(message), message.method)
            return
        if message.method == "notifications/progress":
            params = object_of(message.params)
            token = msgspec.json.decode(params.get("progressToken", Raw(b"null")))
            running = self._running.get(token) if isinstance(token, int | str) else None
            if running is None:
                self.strays += 1
            else:
                running.progressed(params)
            return
        if message.method == "notifications/cancelled":
            number = msgspec.json.decode(object_of(message.params).get("requestId", Raw(b"null")))
            task = self._answering.get(number) if isinstance(number, int | str) else None
            if task is not None:
                task.cancel()
            return
        self._notified(message)

    async def _answer(self, request: Request) -> None:
        try:
            if request.method == "ping":
                made = encode_result(request.id, b"{}")
            else:
                made = encode_result(request.id, msgspec.json.encode(await self._ask(request.method, request.params)))
        except WireError as error:
            made = error.encoded(request.id)
        except Exception:
            logger.exception("answering %s failed", request.method)
            made = WireError(INTERNAL_ERROR, "could not be answered").encoded(request.id)
        finally:
            self._answering.pop(request.id, None)
        await self._say(made, self._headers("", {}))

    async def _ask(self, method: str, params: Raw) -> Mapping[str, Any]:
        return await self._answerer(method, object_of(params))

    async def _inputs(self, members: Params) -> dict[str, Any]:
        asked = object_of(members.get("inputRequests", Raw(b"{}")), "inputRequests")
        answers: dict[str, Any] = {}
        for key, raw in asked.items():
            one = object_of(raw, key)
            try:
                method = msgspec.json.decode(one.get("method", Raw(b"null")), type=str)
            except msgspec.DecodeError:
                raise WireError(INVALID_PARAMS, f"inputRequests.{key} has no method") from None
            answers[key] = await self._ask(method, one.get("params", Raw(b"{}")))
        return answers


class _Tool(msgspec.Struct):
    name: str
    inputSchema: Any = None


class _Error(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = "an error without a message"
    data: Any = None


def _closed(method: str) -> RookeryError:
    return RookeryError("upstream-failed", f"{method}: the connection was closed")


def wire_error(raw: Raw) -> WireError:
    """The error of an answer."""
    try:
        found = msgspec.json.decode(raw, type=_Error)
    except msgspec.DecodeError:
        found = _Error()
    return WireError(found.code, found.message, found.data)
