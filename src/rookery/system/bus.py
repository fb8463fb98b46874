"""One stream of events for everyone who watches: numbered, with a bounded past, and never slowed by a reader."""

import asyncio
from collections import deque
from typing import Any

import msgspec

from rookery.system import metrics
from rookery.system.clock import SYSTEM_CLOCK, Clock

PUBLISHED = metrics.counter("rookery_events_published_total", "Events published on a bus.", "bus")
CUT = metrics.counter("rookery_event_readers_cut_total", "Readers cut off because they did not keep up.", "bus")


class Event(msgspec.Struct, frozen=True):
    id: int
    type: str
    at: float
    data: dict[str, Any]


class Subscription:
    """One reader's queue. It ends with `ended` set to the reason."""

    def __init__(self, bus: "Bus", past: list[Event], gap: bool) -> None:
        self.gap = gap
        self.ended: str | None = None
        self._bus = bus
        self._queue: deque[Event] = deque(past)
        self._wake = asyncio.Event()
        if past:
            self._wake.set()

    async def next_batch(self) -> list[Event]:
        """All events waiting, at least one; empty once the subscription has ended."""
        await self._wake.wait()
        self._wake.clear()
        batch = list(self._queue)
        self._queue.clear()
        if self.ended is not None:
            self._wake.set()
        return batch

    def push(self, event: Event) -> None:
        if len(self._queue) >= self._bus.queue:
            # What it missed can be read again with `since`; what it holds would only delay the reason.
            self._queue.clear()
            CUT.add(self._bus.name)
            self.end("slow-reader")
            return
        self._queue.append(event)
        self._wake.set()

    def end(self, reason: str) -> None:
        """Stop delivery; the reader is told why."""
        if self.ended is None:
            self.ended = reason
            self._bus.forget(self)
        self._wake.set()


class Bus:
    """Publish from the loop's thread only."""

    def __init__(self, name: str, *, history: int = 1000, queue: int = 1000, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.queue = queue
        self._clock = clock
        # Ids go on growing over a restart, so that an old `since` is recognised as a gap and never as the future.
        self._last = int(clock.wall() * 1_000_000)
        self._history: deque[Event] = deque(maxlen=history)
        self._forgotten = self._last
        self._readers: set[Subscription] = set()
        self._over: str | None = None

    @property
    def last_id(self) -> int:
        return self._last

    @property
    def oldest_id(self) -> int:
        """The first event that is still known, or the next one."""
        return self._history[0].id if self._history else self._last + 1

    def before(self, count: int) -> int:
        """The id to resume from to get the last `count` events that are still known."""
        return max(self.oldest_id, self._last + 1 - count) - 1

    @property
    def readers(self) -> int:
        return len(self._readers)

    def publish(self, type_: str, **data: Any) -> Event:
        self._last += 1
        event = Event(self._last, type_, self._clock.wall(), data)
        if len(self._history) == self._history.maxlen and self._history:
            self._forgotten = self._history[0].id
        elif self._history.maxlen == 0:
            self._forgotten = event.id
        self._history.append(event)
        PUBLISHED.add(self.name)
        for reader in list(self._readers):
            reader.push(event)
        return event

    def subscribe(self, since: int | None = None) -> Subscription:
        """Events from now on, or those after `since`; `gap` tells that some of them are no longer known."""
        past = [event for event in self._history if since is not None and event.id > since]
        gap = since is not None and not self._forgotten <= since <= self._last
        reader = Subscription(self, past, gap)
        self._readers.add(reader)
        if self._over is not None:
            reader.end(self._over)
        return reader

    def forget(self, reader: Subscription) -> None:
        self._readers.discard(reader)

    def end_all(self, reason: str) -> None:
        """End every reader, and whoever comes later as soon as it has the past."""
        self._over = reason
        for reader in list(self._readers):
            reader.end(reason)
