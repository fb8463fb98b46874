"""Hears every event of a bus, one after the other."""

from collections.abc import Awaitable, Callable

from rookery.system.bus import Bus, Event


async def follow(bus: Bus, take: Callable[[Event], Awaitable[None]]) -> None:
    """Until the bus ends. Whoever takes too long misses some events, and hears those that come later."""
    while True:
        reader = bus.subscribe()
        try:
            while batch := await reader.next_batch():
                for event in batch:
                    await take(event)
        finally:
            reader.end("done")
        if reader.ended != "slow-reader":
            return
