"""Requests over one channel: written, waited for within their time, and given up in the proper way."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.asking import Listener, Ourselves
from rookery.wire.channel import Channel, ChannelClosed, NoSuchTransport, NotSignedIn, SessionLost
from rookery.wire.jsonrpc import INTERNAL_ERROR, Id, WireError, encode_notification
from rookery.wire.running import InFlight
from rookery.wire.sent import Sent
from rookery.wire.writing import Identity, Writer, Written

_CANCEL_SECONDS = 2.0
_SAY_SECONDS = 30.0
_NO_HEADERS: Mapping[str, str] = {}

_Asked = tuple[str, Mapping[str, Any], float | None, str, Listener | None, Mapping[str, Any] | None, float | None]


class Requester:
    """What a client is made of that does not know what it asks for."""

    def __init__(self, channel: Channel, identity: Identity, ourselves: Ourselves) -> None:
        self.channel = channel
        self.identity = identity
        # Makes a lost session anew.
        self.renew: Callable[[], Awaitable[None]] | None = None
        self._renewing = asyncio.Lock()
        self._renewals = 0
        self.numbers = itertools.count(1)
        self._writer = Writer(identity)
        self.in_flight = InFlight(ourselves)
        self._closed = False
        self.modern = False

    @property
    def revision(self) -> str:
        return self._writer.revision

    @revision.setter
    def revision(self, revision: str) -> None:
        self._writer.speak(revision)
        self.modern = self._writer.modern

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float | None,
        what: str,
        listener: Listener | None = None,
        capabilities: Mapping[str, Any] | None = None,
        left: float | None = None,
        sent: Sent | None = None,
    ) -> Coroutine[Any, Any, Raw]:
        """The result, as it came. Raises WireError for an error answer, RookeryError for anything else that fails.

        `capabilities` is what a modern server is told instead of our own. `left` is what is left of `seconds`. One
        that was `sent` before is only waited for.
        """
        asked = method, params, seconds, what, listener, capabilities, seconds if left is None else left
        # Without headers there is no session that could be lost.
        return self._request_again(*asked) if self.channel.uses_headers else self._request(*asked, sent)

    async def _request_again(self, *asked: *_Asked) -> Raw:
        method = asked[0]
        renewals = self._renewals
        try:
            return await self._request(*asked)
        except SessionLost:
            # Nothing of it was done, so that it can be said again; anything else that breaks is not repeated.
            pass
        await self._make_session_anew(method, renewals)
        try:
            return await self._request(*asked)
        except SessionLost:
            raise RookeryError("upstream-failed", f"{method}: the server forgets every session at once") from None

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any],
        seconds: float | None,
        what: str,
        listener: Listener | None,
        capabilities: Mapping[str, Any] | None,
        left: float | None,
        sent: Sent | None = None,
    ) -> Raw:
        if self._closed:
            raise _closed(method)
        number: Id = next(self.numbers) if sent is None else sent.number
        try:
            if sent is not None:
                with sent.attended(listener):
                    response = await sent.answered()
            else:
                writer = self._writer
                progress = listener is not None and bool(listener.caller)
                message = writer.request(number, method, params, with_progress=progress, capabilities=capabilities)
                headers = writer.headers(method, params) if self.channel.uses_headers else _NO_HEADERS
                with self.in_flight.begin(number, seconds, left, listener):
                    response = await self.channel.request(number, message, headers)
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
            code = "needs-auth" if isinstance(error, NotSignedIn) else "upstream-failed"
            raise RookeryError(code, f"{method}: {error}") from None
        if response.error is not None:
            raise _wire_error(response.error)
        return response.result

    def template(self, method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] | None) -> Written:
        """Writes requests like this one, to be posted."""
        return self._writer.template(method, params, capabilities=capabilities)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._say(encode_notification(method, msgspec.json.encode(params)), self._writer.headers(method, params))

    async def _reply(self, message: bytes) -> None:
        await self._say(message, self._writer.headers("", {}))

    async def _say(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send what gets no answer. Where it does not arrive, the next request finds out why."""
        with contextlib.suppress(TimeoutError, ChannelClosed, SessionLost, NoSuchTransport):
            async with asyncio.timeout(_SAY_SECONDS):
                await self.channel.send(message, headers)

    async def _give_up(self, number: Id, method: str, reason: str) -> None:
        """Tell the server that nobody waits any more, but do not wait for long to do so."""
        # A handshake must not be cancelled.
        if method == "initialize" or (self.channel.cancels_by_closing and self.modern):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.notify("notifications/cancelled", {"requestId": number, "reason": reason})

    # ---- lost sessions

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
            self._renewed()

    def _renewed(self) -> None:
        """The server knows nothing any more of what it was told."""


class _Error(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = "an error without a message"
    data: Any = None


def _wire_error(raw: Raw) -> WireError:
    """The error of an answer."""
    try:
        found = msgspec.json.decode(raw, type=_Error)
    except msgspec.DecodeError:
        found = _Error()
    return WireError(found.code, found.message, found.data)


def _closed(method: str) -> RookeryError:
    return RookeryError("upstream-failed", f"{method}: the connection was closed")
