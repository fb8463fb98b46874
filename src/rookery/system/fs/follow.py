"""Follow a log file that grows and is rotated. Blocks; for the command line."""

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from rookery.system.fs.watch import watch_files


class GrowingFile:
    """Reads each line of a file once, and then those of the file that replaces it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = self._offset = 0
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Yield the lines since the last call; a line without an end is left for the next call."""
        try:
            with os.fdopen(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                # Of the open file: another one may be at the path by now.
                file_stat = os.fstat(file.fileno())
                if not stat.S_ISREG(file_stat.st_mode):
                    return
                if file_stat.st_ino != self._inode or file_stat.st_size < self._offset:
                    self._inode = file_stat.st_ino
                    self._offset = 0
                    self._rest = b""
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines)


def follow_lines(path: Path, last: int, on_line: Callable[[str], None]) -> None:
    """Call `on_line` with the `last` lines of a file, and then with each new line, for ever."""
    asyncio.run(_follow(path.resolve(), last, on_line))


async def _follow(path: Path, last: int, on_line: Callable[[str], None]) -> None:
    changed = asyncio.Event()
    watch = watch_files(lambda files: changed.set())
    try:
        watch.watch({path})
        growing = GrowingFile(path)
        for line in deque(growing.lines(), maxlen=last):
            on_line(line)
        while True:
            await changed.wait()
            changed.clear()
            for line in growing.lines():
                on_line(line)
    finally:
        watch.close()
