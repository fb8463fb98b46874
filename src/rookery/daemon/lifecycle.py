"""Starts services in the order of their dependencies and stops them in reverse, each within a time limit.

`follow_bus` calls a function with every event of a bus, one after the other.
"""

import asyncio
import graphlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from rookery.system.bus import Bus, Event
from rookery.system.causes import explain_os_error
from rookery.system.clock import SYSTEM_CLOCK

logger = logging.getLogger("rookery.services")
_START_SECONDS = 60.0


class Service(Protocol):
    """A part of the daemon that is started after the services named in `needs`, and stopped before them."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> Sequence[str]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def order_services(services: Sequence[Service]) -> list[Service]:
    """Return services after those that they need, else in the given order. Raise on a missing need or a cycle."""
    by_name = {service.name: service for service in services}
    if len(by_name) != len(services):
        raise ValueError("two services have the same name")
    for service in services:
        missing = [need for need in service.needs if need not in by_name]
        if missing:
            raise ValueError(f"service {service.name} needs {', '.join(missing)}, which does not exist")
    order = graphlib.TopologicalSorter({service.name: service.needs for service in services}).static_order()
    return [by_name[name] for name in order]


class ServiceRunner:
    """Runs a set of services.

    A start that fails stops the services that had started; further failures are added to its error as notes.
    """

    def __init__(self, services: Sequence[Service], stop_seconds: float) -> None:
        self._order = order_services(services)
        self._stop_seconds = stop_seconds
        self._running: list[Service] = []

    async def start(self) -> None:
        for service in self._order:
            started_at = SYSTEM_CLOCK.monotonic()
            # Recorded before the start, so that a service that fails or is cancelled half-way is stopped too.
            self._running.append(service)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await service.start()
            except BaseException as error:
                # Notes come after the cause, since these failures are often its consequence.
                async for failure, _ in self._stop_all():
                    error.add_note(failure)
                raise
            logger.debug("%s is up (%.0f ms)", service.name, (SYSTEM_CLOCK.monotonic() - started_at) * 1000)

    async def stop(self) -> None:
        """Stop all services in reverse order; one that fails or hangs is logged and does not block the others."""
        async for failure, error in self._stop_all():
            logger.error("%s", failure, exc_info=error)

    async def _stop_all(self) -> AsyncGenerator[tuple[str, Exception | None]]:
        """Stop all services in reverse order; yield each failure, with its error unless the text explains it."""
        while self._running:
            service = self._running.pop()
            try:
                async with asyncio.timeout(self._stop_seconds):
                    await service.stop()
            except TimeoutError:
                yield f"{service.name} did not stop within {self._stop_seconds:g} s", None
            except Exception as error:
                explained = explain_os_error(error) if isinstance(error, OSError) else None
                why = explained.message if explained is not None else f"{type(error).__name__}: {error}"
                yield f"{service.name} failed to stop: {why}", error if explained is None else None
            else:
                logger.debug("%s has stopped", service.name)


def follow_bus(bus: Bus, handle: Callable[[Event], Awaitable[None]]) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return work for `TaskSet.keep_running` that passes every event from now on to `handle`, until the bus ends.

    When `handle` raises, the next run continues with the event after the one that it raised for.
    """
    last = bus.last_id

    async def run() -> None:
        nonlocal last
        while True:
            reader = bus.subscribe(since=last)
            try:
                while batch := await reader.next_batch():
                    for event in batch:
                        last = event.id
                        await handle(event)
            finally:
                reader.end("done")
            if reader.ended != "slow-reader":
                return
            last = bus.last_id

    return run
