"""Folders of several owners on one watch."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rookery.system.fs.watch import TreeWatch, WatchLimitReached

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return "asyncio", {"use_uvloop": request.param}


class Heard:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[str, bytes, bool]] = asyncio.Queue()
        self.watch = TreeWatch(self._told)

    def _told(self, owner: str, name: bytes, folders: bool) -> None:
        self.queue.put_nowait((owner, name, folders))

    async def until(self, owner: str, name: bytes) -> bool:
        """Wait until a name was told to an owner; answers whether as a folder."""
        async with asyncio.timeout(10):
            while True:
                told = await self.queue.get()
                if told[:2] == (owner, name):
                    return told[2]


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    one = Heard()
    yield one
    one.watch.close()


async def test_each_owner_is_told_of_its_own_folders(heard: Heard, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        heard.watch.add(name, os.fsencode(tmp_path / name))
    heard.watch.add("two", os.fsencode(tmp_path / "one"))
    (tmp_path / "one" / "file").touch()
    assert not await heard.until("two", b"file")
    (tmp_path / "two" / "folder").mkdir()
    assert await heard.until("two", b"folder")
    assert all(owner != "one" or name == b"file" for owner, name, _ in heard.queue._queue)  # type: ignore[attr-defined]


async def test_a_file_that_is_being_written_has_changed_already(heard: Heard, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        heard.watch.add("me", os.fsencode(tmp_path))
        file.write("text")
        file.flush()
        assert not await heard.until("me", b"file")


async def test_what_is_dropped_or_gone_is_told_no_more(heard: Heard, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    heard.watch.add("me", os.fsencode(tmp_path / "gone"))
    heard.watch.add("me", os.fsencode(tmp_path / "never"))
    (tmp_path / "gone").rmdir()
    assert await heard.until("me", b"")
    heard.watch.add("other", os.fsencode(tmp_path))
    heard.watch.add("last", os.fsencode(tmp_path))
    heard.watch.drop("other")
    (tmp_path / "file").touch()
    assert not await heard.until("last", b"file")
    assert all(owner == "last" for owner, name, _ in heard.queue._queue if name == b"file")  # type: ignore[attr-defined]


async def test_a_limit_that_is_reached_is_said(heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    class Full:
        def inotify_add_watch(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(heard.watch, "_libc", Full())
    monkeypatch.setattr(heard.watch, "_errno", lambda: errno.ENOSPC)
    with pytest.raises(WatchLimitReached):
        heard.watch.add("me", os.fsencode(tmp_path))
