"""An event stream for any number of readers: numbered events, a bounded history, and no reader slows it down."""

import asyncio
from collections import deque
from typing import Any

import msgspec

from rookery.system import metrics
from rookery.system.clock import SYSTEM_CLOCK, Clock

PUBLISHED = metrics.counter("rookery_events_published_total", "Events published on a bus.", "bus")
READERS_CUT = metrics.counter("rookery_event_readers_cut_total", "Readers cut off because they did not keep up.", "bus")


class Event(msgspec.Struct, frozen=True):
    """One event; `at` is the wall-clock time in seconds."""

    id: int
    type: str
    at: float
    data: dict[str, Any]


class Subscription:
    """The queue of one reader. When it ends, `ended` is set to the reason."""

    def __init__(self, bus: "Bus", history: list[Event], gap: bool) -> None:
        self.gap = gap
        self.ended: str | None = None
        self._bus = bus
        self._queue: deque[Event] = deque(history)
        self._wake = asyncio.Event()
        if history:
            self._wake.set()

    async def next_batch(self) -> list[Event]:
        """Wait for events and return all that are queued; empty once the subscription has ended."""
        await self._wake.wait()
        self._wake.clear()
        batch = list(self._queue)
        self._queue.clear()
        if self.ended is not None:
            self._wake.set()
        return batch

    def push(self, event: Event) -> None:
        """Queue an event; end the subscription if its queue is full."""
        if len(self._queue) >= self._bus.max_queue:
            # The reader can get missed events again with `since`; delivering the queue would only delay the reason.
            self._queue.clear()
            READERS_CUT.add(self._bus.name)
            self.end("slow-reader")
            return
        self._queue.append(event)
        self._wake.set()

    def end(self, reason: str) -> None:
        """Stop delivery; the reader sees the reason in `ended`."""
        if self.ended is None:
            self.ended = reason
            self._bus.remove(self)
        self._wake.set()


class Bus:
    """A numbered stream of events with a bounded history. Publish from the loop's thread only."""

    def __init__(self, name: str, *, history: int = 1000, max_queue: int = 1000, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.max_queue = max_queue
        self._clock = clock
        # Ids keep growing across restarts, so that an old `since` is recognised as a gap and never as a future id.
        self._last_id = int(clock.wall() * 1_000_000)
        self._history: deque[Event] = deque(maxlen=history)
        self._last_dropped = self._last_id
        self._readers: set[Subscription] = set()
        self._end_reason: str | None = None

    @property
    def last_id(self) -> int:
        return self._last_id

    @property
    def oldest_id(self) -> int:
        """The id of the oldest event in the history, or of the next event if the history is empty."""
        return self._history[0].id if self._history else self._last_id + 1

    def id_before_last(self, count: int) -> int:
        """Return the id to pass as `since` to get the last `count` events of the history."""
        return max(self.oldest_id, self._last_id + 1 - count) - 1

    @property
    def reader_count(self) -> int:
        return len(self._readers)

    def publish(self, type_: str, **data: Any) -> Event:
        """Add an event to the history, send it to all readers and return it."""
        self._last_id += 1
        event = Event(self._last_id, type_, self._clock.wall(), data)
        if len(self._history) == self._history.maxlen and self._history:
            self._last_dropped = self._history[0].id
        elif self._history.maxlen == 0:
            self._last_dropped = event.id
        self._history.append(event)
        PUBLISHED.add(self.name)
        for reader in list(self._readers):
            reader.push(event)
        return event

    def subscribe(self, since: int | None = None) -> Subscription:
        """Subscribe to future events, or to all after `since`; `gap` is set if some of those are no longer kept."""
        past = [event for event in self._history if since is not None and event.id > since]
        gap = since is not None and not self._last_dropped <= since <= self._last_id
        reader = Subscription(self, past, gap)
        self._readers.add(reader)
        if self._end_reason is not None:
            reader.end(self._end_reason)
        return reader

    def remove(self, reader: Subscription) -> None:
        """Remove a reader without ending its subscription."""
        self._readers.discard(reader)

    def end_all(self, reason: str) -> None:
        """End every subscription, and each later one as soon as it has delivered the history."""
        self._end_reason = reason
        for reader in list(self._readers):
            reader.end(reason)
