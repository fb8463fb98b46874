"""Lists that come in pages."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError

_PAGES = 1000
_MEBIBYTES = 64

# Asks for one page, within so many seconds.
Asks = Callable[[Mapping[str, Any], float], Awaitable[Raw]]


class Listed(list[Raw]):
    """`lives` is for how many seconds the server lets it be kept; None where it does not say."""

    lives: float | None = None


async def all_pages(ask: Asks, method: str, key: str, seconds: float) -> Listed:
    """All that a list has; one that is too big, or has no end, is an error. `seconds` are for all pages."""
    found = Listed()
    seen: set[str] = set()
    params: dict[str, Any] = {}
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    size = 0
    for _ in range(_PAGES):
        result = await ask(params, max(0.0, end - loop.time()))
        size += len(result)
        if size > _MEBIBYTES * 1024 * 1024:
            raise RookeryError("upstream-failed", f"{method}: the list is longer than {_MEBIBYTES} MiB")
        try:
            page = msgspec.json.decode(result, type=dict[str, Raw])
            found += msgspec.json.decode(page.get(key, Raw(b"[]")), type=list[Raw])
            cursor = msgspec.json.decode(page.get("nextCursor", Raw(b"null")), type=str | None)
            ttl = msgspec.json.decode(page.get("ttlMs", Raw(b"null")), type=int | float | None)
        except msgspec.DecodeError as error:
            raise RookeryError("upstream-failed", f"{method}: the answer does not fit: {error}") from None
        if ttl is not None:
            found.lives = min(ttl / 1000, found.lives if found.lives is not None else ttl / 1000)
        if cursor is None:
            return found
        if cursor in seen:
            raise RookeryError("upstream-failed", f"{method}: the cursor {cursor[:80]!r} came twice")
        seen.add(cursor)
        params = {"cursor": cursor}
    raise RookeryError("upstream-failed", f"{method}: more than {_PAGES} pages")
