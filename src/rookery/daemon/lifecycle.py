"""Services start in the order of what each needs and stop in reverse, each within a time limit."""

import asyncio
import graphlib
import logging
from collections.abc import Sequence
from typing import Protocol

from rookery.system.clock import SYSTEM_CLOCK

logger = logging.getLogger("rookery.services")
_START_SECONDS = 60.0


class Service(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> Sequence[str]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def start_order(services: Sequence[Service]) -> list[Service]:
    """Needs first; among equals the given order. A need that nobody fulfils, or a circle, is an error."""
    by_name = {service.name: service for service in services}
    if len(by_name) != len(services):
        raise ValueError("two services have the same name")
    for service in services:
        missing = [need for need in service.needs if need not in by_name]
        if missing:
            raise ValueError(f"service {service.name} needs {', '.join(missing)}, which does not exist")
    order = graphlib.TopologicalSorter({service.name: service.needs for service in services}).static_order()
    return [by_name[name] for name in order]


class Runner:
    """Runs a set of services. A start that fails stops what had started."""

    def __init__(self, services: Sequence[Service], stop_seconds: float) -> None:
        self._order = start_order(services)
        self._stop_seconds = stop_seconds
        self._running: list[Service] = []

    async def start(self) -> None:
        for service in self._order:
            began = SYSTEM_CLOCK.monotonic()
            # Noted before it runs, so that one which fails or is cancelled half-way is stopped too.
            self._running.append(service)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await service.start()
            except BaseException:
                await self.stop()
                raise
            logger.debug("%s is up (%.0f ms)", service.name, (SYSTEM_CLOCK.monotonic() - began) * 1000)

    async def stop(self) -> None:
        """Stop all in reverse order; one that fails or hangs is named and does not keep the others from stopping."""
        while self._running:
            service = self._running.pop()
            try:
                async with asyncio.timeout(self._stop_seconds):
                    await service.stop()
            except TimeoutError:
                logger.error("%s did not stop within %g s", service.name, self._stop_seconds)
            except Exception:
                logger.exception("%s failed to stop", service.name)
            else:
                logger.debug("%s has stopped", service.name)
