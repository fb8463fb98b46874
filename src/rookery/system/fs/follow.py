"""Follows a log that grows and is moved aside when it is full. Blocks, for the command line."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from rookery.system.filewatch import file_watch


class Growing:
    """The lines of a file, each once, and then those of the file that takes its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = self._read = 0
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Those that came since the last look; one that has no end yet is left for later."""
        try:
            with self._path.open("rb") as file:
                found = self._path.stat()
                if found.st_ino != self._place or found.st_size < self._read:
                    self._place, self._read, self._rest = found.st_ino, 0, b""
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        self._read += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)


def follow(path: Path, last: int, tell: Callable[[str], None]) -> None:
    """Tell the `last` lines that are there, and then each one that comes, for ever."""
    asyncio.run(_follow(path.resolve(), last, tell))


async def _follow(path: Path, last: int, tell: Callable[[str], None]) -> None:
    changed = asyncio.Event()
    watch = file_watch(lambda files: changed.set())
    try:
        watch.watch({path})
        growing = Growing(path)
        for line in deque(growing.lines(), maxlen=last):
            tell(line)
        while True:
            await changed.wait()
            changed.clear()
            for line in growing.lines():
                tell(line)
    finally:
        watch.close()
