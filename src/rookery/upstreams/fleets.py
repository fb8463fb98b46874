"""The fleets of all directories that are in use: made when somebody first asks, until the directory is let go."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from rookery.upstreams.fleet import Fleet


class Fleets:
    """None is the directory of what is app-wide."""

    def __init__(self, make: Callable[[Path | None], Fleet]) -> None:
        self._make = make
        self._known: dict[Path | None, Fleet] = {}
        self._opening: defaultdict[Path | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __iter__(self) -> Iterator[Fleet]:
        yield from list(self._known.values())

    def find(self, directory: Path | None) -> Fleet | None:
        return self._known.get(directory)

    async def get(self, directory: Path | None) -> Fleet:
        if directory in self._known:
            return self._known[directory]
        # One for each: nobody waits for what the files of another directory name.
        async with self._opening[directory]:
            if directory not in self._known:
                made = self._make(directory)
                await made.refresh()
                self._known[directory] = made
            return self._known[directory]

    async def let_go(self, directory: Path | None) -> bool:
        """Stop the servers of a directory, and wait until they have ended; whether there were any."""
        async with self._opening[directory]:
            fleet = self._known.pop(directory, None)
            closing = fleet.close() if fleet is not None else []
            if closing:
                await asyncio.wait(closing)
        return bool(closing)

    def close(self) -> None:
        for fleet in self:
            fleet.close()
        self._known.clear()
