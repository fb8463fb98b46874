"""The store on a full, broken or read-only disk, and after crashes and power failures."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.requirements import requirement
from tests.support.small_disk import SmallDisk
from tests.support.store import (
    CRASH_IN_ROLLBACK_MODE,
    FAILING_FSYNC,
    FAILING_WRITE,
    FULL_DISK,
    LIMIT,
    READ_ONLY_DISK,
    WRITER,
    Child,
    add,
    examine,
    names_in,
    opened,
    side,
)

pytestmark = [pytest.mark.anyio, requirement("house.store.safe")]


@pytest.fixture
def path(state: Path) -> Path:
    return state / "rookery.db"


@pytest.fixture
def first_fsync_fails() -> tuple[str, ...]:
    """Words before a command, in which the first fsync of every thread fails."""
    words = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync")
    words += ("-e", "inject=fsync,fdatasync:error=EIO:when=1")
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=LIMIT)
    except FileNotFoundError as error:
        pytest.skip(f"cannot make fsync fail: {error}")
    if tried.returncode != 0:
        pytest.skip(f"cannot make fsync fail: {tried.stderr.strip()}")
    return words


# E12 and E13: the disk


def test_e12_a_full_disk_fails_the_write_keeps_every_acknowledged_row_and_heals(
    small_disk: SmallDisk,
) -> None:
    path, inside = small_disk.folder / "rookery.db", small_disk.words
    with Child(FULL_DISK, path, inside=inside) as child:
        facts = child.facts()
    acknowledged = facts["acknowledged"]
    assert 10 < acknowledged < 1000
    assert [facts[which]["code"] for which in ("failed", "again", "opened")] == ["store-failed"] * 3
    assert "full" in facts["failed"]["message"]
    assert facts["failed"]["remedy"]
    assert facts["seen"] == facts["kept"] == [acknowledged, acknowledged * 20_000]
    assert facts["names"] == ["first", "after"]
    assert facts["integrity"] == "ok"


def test_e13_a_read_only_disk_is_told_and_opening_works_once_it_can_be_written(
    small_disk: SmallDisk,
) -> None:
    path, inside = small_disk.folder / "rookery.db", small_disk.words
    with Child(READ_ONLY_DISK, path, inside=inside) as child:
        facts = child.facts()
    assert facts["failed"]["code"] == "store-failed"
    assert facts["names"] == ["before", "after"]
    assert facts["problems"] == []


async def test_e13_a_failing_fsync_fails_the_write_and_memory_is_not_ahead_of_the_disk(
    path: Path, first_fsync_fails: tuple[str, ...]
) -> None:
    async with opened(path) as store:
        await add(store, "before")
    with Child(FAILING_FSYNC, path, inside=first_fsync_fails) as child:
        facts = child.facts()
    assert facts["failed"]["code"] == "store-failed"
    assert facts["seen"] == ["before"]
    assert facts["names"] == ["before", "after"]
    assert examine(path) == ["before", "after"]


def test_e13_a_failed_write_raises_and_memory_does_not_get_ahead_of_the_disk(path: Path) -> None:
    with Child(FAILING_WRITE, path) as child:
        facts = child.facts()
    assert facts["failed"]["code"] == "store-failed"
    assert facts["seen"] == facts["kept"] == ["before"]
    assert facts["names"] == ["before", "after"]


# E14: crashes and power cuts


def test_e14_copies_taken_while_writing_are_whole_and_hold_every_acknowledged_row(path: Path, state: Path) -> None:
    with Child(WRITER, path, "durable") as child:
        for turn in range(12):
            child.wait_for(len(child.told()) + random.randint(1, 150))
            child.pause()
            acknowledged = child.told()
            copy = state / f"copy-{turn}" / "rookery.db"
            copy.parent.mkdir()
            for suffix in ("", "-wal"):
                shutil.copyfile(side(path, suffix), side(copy, suffix))
            child.resume()
            kept = examine(copy)
            assert kept[: len(acknowledged)] == acknowledged
            assert len(kept) <= len(acknowledged) + 1


@pytest.mark.parametrize("how", ["durable", "not durable"])
async def test_e14_a_killed_writer_loses_no_acknowledged_row(path: Path, how: str) -> None:
    with Child(WRITER, path, how) as child:
        child.wait_for(random.randint(1, 300))
        child.kill()
        acknowledged = child.told()
    async with opened(path) as store:
        kept = await store.read(names_in)
        assert kept[: len(acknowledged)] == acknowledged
        assert len(kept) <= len(acknowledged) + 1
        assert store.problems == []
        await add(store, "after")


async def test_e14_a_crash_while_the_file_was_being_made_is_rolled_back(path: Path) -> None:
    with Child(CRASH_IN_ROLLBACK_MODE, path) as child:
        child.process.wait(LIMIT)
    assert side(path, "-journal").stat().st_size
    async with opened(path) as store:
        await add(store, "a")
        assert store.problems == []
