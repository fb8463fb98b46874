"""A bus as server-sent events. A reader that stalls is cut off with a reason, at nobody else's cost."""

import asyncio
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError

_KEEP_ALIVE_SECONDS = 15.0
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


def since_of(request: Request) -> int | None:
    """Where to go on: the header by which a browser reconnects, to the URL it began with, or that URL's `?since=`."""
    asked = request.headers.get("last-event-id") or request.query_params.get("since")
    if not asked:
        return None
    if not asked.isascii() or not asked.isdigit() or len(asked) > 18:
        raise RookeryError(
            "invalid-input", f"since={asked[:40]!r} is not an event id", "send the id of the last event seen"
        )
    return int(asked)


class EventStream:
    """An answer that lasts until the client goes, falls behind, or the daemon stops."""

    def __init__(self, bus: Bus, since: int | None, keep: Callable[[Event], bool] = lambda event: True) -> None:
        self._bus = bus
        self._since = since
        self._keep = keep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body"})
            return
        reader = self._bus.subscribe(self._since)
        scope["extensions"]["rookery.on_lost"](lambda: reader.end("client-gone"))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            first = frame("gap", {"oldest": self._bus.oldest_id}) if reader.gap else b": hello\n\n"
            await send({"type": "http.response.body", "body": first, "more_body": True})
            while True:
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                        batch = await reader.next_batch()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
                    continue
                data = b"".join(frame(e.type, e.data | {"at": e.at}, e.id) for e in batch if self._keep(e))
                if reader.ended is not None:
                    data += frame("end", {"reason": reader.ended})
                    await send({"type": "http.response.body", "body": data})
                    return
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            reader.end("client-gone")


def frame(type_: str, data: object, id_: int | None = None) -> bytes:
    head = b"id: %d\n" % id_ if id_ is not None else b""
    return b"%bevent: %b\ndata: %b\n\n" % (head, type_.encode(), msgspec.json.encode(data))
