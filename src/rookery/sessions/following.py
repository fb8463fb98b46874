"""Waits until something of a session holds: looks, follows what changes, and tells how it goes meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rookery.sessions.changes import Changes
from rookery.sessions.finding import Found
from rookery.sessions.records import Change, Progress
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

LONGEST_SECONDS = 86_400.0
# Whoever waits is told how it goes: no more often than this where much happens, and so often where nothing does.
_APART_SECONDS = 1.0
_SILENT_SECONDS = 5.0
# What is there already counts, also for those who do not want to wait.
_LOOK_SECONDS = 10.0

T = TypeVar("T")


def require_seconds(seconds: float) -> None:
    if not 0 <= seconds <= LONGEST_SECONDS:
        message = f"a time limit of {seconds:g} s cannot be kept"
        raise RookeryError("invalid-input", message, f"give one from 0 to {LONGEST_SECONDS:g} s")


def require_count(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise RookeryError("invalid-input", f"a limit of {limit} shows nothing", "give 1 or more")


class Following:
    def __init__(self, changes: Changes, clock: Clock) -> None:
        self._changes, self._clock = changes, clock

    async def until(
        self,
        found: Found,
        look: Callable[[], Awaitable[T | None]],
        seconds: float,
        *,
        doing: Callable[[], str],
        progress: Progress | None = None,
        news: asyncio.Event | None = None,
    ) -> T | None:
        """What `look` finds at first or after a change; None if time runs out. `news` is set by other changes too."""
        require_seconds(seconds)
        news = news or asyncio.Event()
        stop = self._changes.listen(lambda changes: news.set() if _concerns(found, changes) else None)
        teller = _Teller(progress, doing, self._clock)
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout(max(seconds, _LOOK_SECONDS)) as limit:
                while True:
                    news.clear()
                    if (hit := await look()) is not None:
                        return hit
                    limit.reschedule(until)
                    await teller.wait(news)
        except TimeoutError:
            return None
        finally:
            stop()


class _Teller:
    def __init__(self, progress: Progress | None, doing: Callable[[], str], clock: Clock) -> None:
        self._progress, self._doing, self._clock = progress, doing, clock
        self._told = clock.monotonic()

    async def wait(self, news: asyncio.Event) -> None:
        if self._progress is None:
            await news.wait()
            return
        while not news.is_set():
            left = self._told + _SILENT_SECONDS - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(left, 0)):
                    await news.wait()
            except TimeoutError:
                await self._tell(self._progress)
        if self._clock.monotonic() - self._told >= _APART_SECONDS:
            await self._tell(self._progress)

    async def _tell(self, progress: Progress) -> None:
        self._told = self._clock.monotonic()
        await progress(self._doing())


def _concerns(found: Found, changes: frozenset[Change]) -> bool:
    return any(one.workspace == found.room.path and one.session in (None, found.id) for one in changes)
