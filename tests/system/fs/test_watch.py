"""Created, deleted and changed files are reported, with both ways of watching and on both loops."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

import pytest

from rookery.system.fs import watch as filewatch
from rookery.system.fs.watch import FilesChanged, FileWatch, InotifyFileWatch, PollingFileWatch, watch_files

pytestmark = pytest.mark.anyio

WAYS: dict[str, Callable[[FilesChanged], FileWatch]] = {
    "inotify": InotifyFileWatch,
    "polling": lambda told: PollingFileWatch(told, 0.02),
}


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return "asyncio", {"use_uvloop": request.param}


class Heard:
    """What a watch tells, and the waiting for it."""

    def __init__(self, make: Callable[[FilesChanged], FileWatch]) -> None:
        self._files: set[Path] = set()
        self._event = asyncio.Event()
        self.watch = make(self._told)

    def _told(self, files: Set[Path]) -> None:
        self._files |= files
        self._event.set()

    async def only(self, *files: Path) -> bool:
        """Wait until these have been told since the last time; whether no others were."""
        async with asyncio.timeout(10):
            while not self._files >= set(files):
                self._event.clear()
                await self._event.wait()
        told, self._files = self._files, set()
        return told == set(files)


@pytest.fixture(params=WAYS)
async def told(request: pytest.FixtureRequest) -> Any:
    one = Heard(WAYS[request.param])
    yield one
    one.watch.close()


async def test_a_file_is_told_when_it_comes_changes_is_replaced_and_goes(told: Heard, tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    told.watch.watch({file})
    file.write_text("1")
    assert await told.only(file)
    file.write_text("22")
    assert await told.only(file)
    other.write_text("333")
    other.rename(file)
    assert await told.only(file)
    file.unlink()
    assert await told.only(file)


async def test_a_file_is_told_whose_folders_come_and_go(told: Heard, tmp_path: Path) -> None:
    near, far = tmp_path / "sub" / "a", tmp_path / "sub" / "deep" / "b"
    told.watch.watch({near, far})
    far.parent.mkdir(parents=True)
    far.write_text("1")
    near.write_text("1")
    assert await told.only(near, far)
    far.write_text("22")
    assert await told.only(far)
    far.parent.parent.rename(tmp_path / "away")
    assert await told.only(near, far)
    (tmp_path / "away").rename(tmp_path / "sub")
    assert await told.only(near, far)
    near.write_text("22")
    assert await told.only(near)


async def test_what_is_no_longer_watched_is_not_told(told: Heard, tmp_path: Path) -> None:
    one, two = tmp_path / "x" / "one", tmp_path / "y" / "two"
    for file in (one, two):
        file.parent.mkdir()
    told.watch.watch({one, two})
    told.watch.watch({two})
    one.write_text("1")
    two.write_text("1")
    assert await told.only(two)


async def test_a_folder_that_is_a_link_is_not_watched_behind_its_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    file = tmp_path / "link" / "a"
    one = Heard(InotifyFileWatch)
    try:
        one.watch.watch({file})
        (tmp_path / "real" / "a").write_text("1")
        (tmp_path / "link").unlink()
        (tmp_path / "link").mkdir()
        assert await one.only(file)
        file.write_text("1")
        assert await one.only(file)
    finally:
        one.watch.close()


async def test_when_too_much_happened_to_be_told_everything_is(tmp_path: Path) -> None:
    one, file = Heard(InotifyFileWatch), tmp_path / "a"
    try:
        one.watch.watch({file})
        most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        for number in range(most // 2 + 10):  # each gives at least two events, and none is read meanwhile
            (tmp_path / str(number % 7)).touch()
            (tmp_path / str(number % 7)).unlink()
        assert await one.only(file)
    finally:
        one.watch.close()


async def test_nothing_stays_behind_when_a_watch_is_closed(tmp_path: Path) -> None:
    before = len(list(Path("/dev/fd").iterdir())), threading.active_count()
    for _ in range(3):
        one = Heard(InotifyFileWatch)
        one.watch.watch({tmp_path / "a" / "b"})
        one.watch.close()
    assert (len(list(Path("/dev/fd").iterdir())), threading.active_count()) == before


@pytest.fixture
def no_inotify(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(told: FilesChanged) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(filewatch, "InotifyFileWatch", refuse)
    yield


@pytest.mark.usefixtures("no_inotify")
async def test_without_inotify_files_are_looked_at_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        watch = watch_files(lambda files: None)
    watch.close()
    assert isinstance(watch, PollingFileWatch)
    assert "inotify is not available (Too many open files)" in caplog.text


async def test_a_folder_that_may_not_be_watched_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = Heard(InotifyFileWatch)

    class NoSpace:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return lambda *args: -1

    inotify: Any = one.watch
    inotify._libc, inotify._errno = NoSpace(), lambda: 28
    with caplog.at_level(logging.WARNING):
        one.watch.watch({tmp_path / "a"})
    one.watch.close()
    assert f"cannot watch {tmp_path} for changes: {os.strerror(28)}" in caplog.text
