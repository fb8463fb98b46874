"""Files of a session's folder: whether one is there, what it says, and when that may have changed."""

import asyncio
import errno
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rookery.system.errors import RookeryError
from rookery.system.files import read_beneath
from rookery.system.filewatch import file_watch

# As much as a pattern is searched in.
_LARGEST = 1_000_000
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


@dataclass(frozen=True)
class Look:
    """`text` is None where it is no plain file, or one that is too large to be searched."""

    there: bool
    text: str | None = None
    why: str = "it is not there"


class WatchedFile:
    """`path` is relative to `folder`, or lies in it."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder.resolve()
        self.path = _inside(self._folder, path)

    @contextmanager
    def watched(self, news: asyncio.Event) -> Generator[None]:
        """`news` is set whenever it may have changed."""
        watch = file_watch(lambda _: news.set())
        watch.watch({self._folder / self.path})
        try:
            yield
        finally:
            watch.close()

    async def look(self) -> Look:
        return await asyncio.to_thread(self._look)

    def _look(self) -> Look:
        try:
            data = read_beneath(self._folder, self.path, _LARGEST)
        except OSError as error:
            if error.errno in _ABSENT:
                return Look(False)
            # A link may lead anywhere, so it is as good as nothing.
            return Look(error.errno != errno.ELOOP, why=error.strerror or str(error))
        return Look(True, data.decode("utf-8", "replace"))


def _inside(folder: Path, path: str) -> PurePosixPath:
    given = PurePosixPath(path)
    try:
        relative = given.relative_to(folder) if given.is_absolute() else given
    except ValueError:
        relative = PurePosixPath("..")
    if not path or "\0" in path or ".." in relative.parts or not relative.parts:
        message = f"{path!r} is not a file in the session's folder"
        raise RookeryError("path-outside-root", message, "give a path that is relative to it, without `..`")
    return relative
