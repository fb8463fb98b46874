"""An event bus as server-sent events. A reader that stalls is disconnected with a reason; others are not affected."""

import asyncio
from collections.abc import Callable

import msgspec
from starlette.types import Receive, Scope, Send

from rookery.system.bus import Bus, Event

_KEEP_ALIVE_SECONDS = 15.0
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class EventStream:
    """A response that lasts until the client disconnects, falls behind, or the daemon stops."""

    def __init__(self, bus: Bus, since: int | None, matches: Callable[[Event], bool] = lambda event: True) -> None:
        self._bus = bus
        self._since = since
        self._matches = matches

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body"})
            return
        reader = self._bus.subscribe(self._since)
        scope["extensions"]["rookery.on_lost"](lambda: reader.end("client-gone"))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            first = encode_event("gap", {"oldest": self._bus.oldest_id}) if reader.gap else b": hello\n\n"
            await send({"type": "http.response.body", "body": first, "more_body": True})
            while True:
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                        batch = await reader.next_batch()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
                    continue
                data = b"".join(encode_event(e.type, e.data | {"at": e.at}, e.id) for e in batch if self._matches(e))
                if reader.ended is not None:
                    data += encode_event("end", {"reason": reader.ended})
                    await send({"type": "http.response.body", "body": data})
                    return
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            reader.end("client-gone")


def encode_event(type_: str, data: object, id_: int | None = None) -> bytes:
    """Encode one server-sent event."""
    head = b"id: %d\n" % id_ if id_ is not None else b""
    return b"%bevent: %b\ndata: %b\n\n" % (head, type_.encode(), msgspec.json.encode(data))
