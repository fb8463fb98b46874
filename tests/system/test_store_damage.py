"""The store with other processes, damaged files and other schemas."""

import asyncio
import contextlib
import logging
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest

from rookery.system import store as module
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from tests.support.requirements import requirement
from tests.support.store import LIMIT, LOCK_HOLDER, Child, add, examine, names_in, opened, refused, side, version_of

pytestmark = [pytest.mark.anyio, requirement("house.store.safe")]


@pytest.fixture
def path(state: Path) -> Path:
    return state / "rookery.db"


# E15: other processes


async def test_e15_a_file_locked_by_another_process_is_busy_and_works_once_it_is_free(path: Path) -> None:
    async with opened(path, busy_seconds=0.1) as store:
        await add(store, "a")
        with Child(LOCK_HOLDER, path, "for writing") as holder:
            holder.wait_for(1)
            with pytest.raises(RookeryError) as caught:
                await add(store, "b")
            assert caught.value.code == "store-busy"
            assert str(path) in caught.value.message
            assert caught.value.remedy
            assert await store.read(names_in) == ["a"]
        await add(store, "c")
        assert await store.read(names_in) == ["a", "c"]
        assert store.problems == []


async def test_e15_opening_a_locked_file_is_busy_and_never_takes_it_for_damaged(path: Path, state: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
    store = Store(path, busy_seconds=0.1)
    with Child(LOCK_HOLDER, path, "wholly") as holder:
        holder.wait_for(1)
        assert (await refused(store)).code == "store-busy"
    async with asyncio.timeout(LIMIT):
        await store.open()
        assert await store.read(names_in) == ["a"]
        await store.close()
    assert store.problems == []
    assert sorted(file.name for file in state.iterdir()) == ["rookery.db"]


@pytest.mark.parametrize("gone", [("",), ("", "-wal", "-shm"), ("-wal",), ("-wal", "-shm")], ids="+".join)
async def test_e15_what_was_deleted_while_open_is_written_anew_with_every_row(
    path: Path, state: Path, gone: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        await add(store, "a", "b")
        for suffix in gone:
            side(path, suffix).unlink()
        await add(store, "c")
        assert examine(path) == ["a", "b", "c"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await add(store, "d")
        assert len(store.problems) == 1
        assert str(path) in store.problems[0]
    assert [record.levelno for record in caplog.records if record.name == "rookery.store"] == [logging.ERROR]
    assert examine(path) == ["a", "b", "c", "d"]
    assert [file.name for file in state.iterdir()] == ["rookery.db"]


async def test_e15_what_was_deleted_before_closing_is_written_anew(path: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
        path.unlink()
    assert examine(path) == ["a"]


@pytest.mark.parametrize("parts", [("",), ("", "-wal")], ids=["alone", "with its log"])
async def test_e15_a_file_put_in_the_place_of_the_open_one_is_kept_beside_it(
    path: Path, state: Path, parts: tuple[str, ...]
) -> None:
    other = state / "other.db"
    async with opened(other) as store:
        await add(store, "in the file")
    async with opened(path) as store, opened(other) as stranger:
        await add(store, "a")
        await add(stranger, "in the log")
        for suffix in parts:
            shutil.copyfile(side(other, suffix), state / "copy")
            (state / "copy").replace(side(path, suffix))
        await add(store, "b")
        (problem,) = store.problems
    assert examine(path) == ["a", "b"]
    (replaced,) = (file for file in state.glob("rookery.db.replaced-*") if not file.name.endswith("-wal"))
    assert str(replaced) in problem
    assert examine(replaced) == ["in the file", "in the log"][: len(parts)]


async def test_e15_without_its_folder_writes_fail_and_nothing_is_lost_once_it_is_back(path: Path, state: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
        shutil.rmtree(state)
        with pytest.raises(RookeryError) as caught:
            await add(store, "b")
        assert caught.value.code == "store-failed"
        assert await store.read(names_in) == ["a"]
        state.mkdir()
        await add(store, "c")
    assert examine(path) == ["a", "c"]


async def test_a_store_whose_folder_is_gone_can_be_closed(
    path: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path):
        shutil.rmtree(state)
    assert [record.levelno for record in caplog.records if record.name == "rookery.store"] == [logging.ERROR]


# E15: damage


@pytest.mark.parametrize("damage", ["header", "text", "short", "page"])
async def test_e15_a_damaged_file_is_set_aside_loudly_and_a_new_store_is_begun(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        await add(store, *(f"{number:0100}" for number in range(200)))
    whole = path.read_bytes()
    broken = {
        "header": b"\xff" * 16 + whole[16:],
        "text": b"not a database\n" * 100,
        "short": whole[:50],
        "page": whole[: 4096 * 6] + b"\xa5" * 4096 + whole[4096 * 7 :],
    }[damage]
    path.write_bytes(broken)
    async with opened(path) as store:
        assert await store.read(names_in) == []
        await add(store, "new")
        (problem,) = store.problems
    (aside,) = (file for file in path.parent.glob("rookery.db.corrupt-*") if not file.name.endswith(("-wal", "-shm")))
    assert aside.read_bytes() == broken
    assert str(path) in problem
    assert str(aside) in problem
    assert [record.levelno for record in caplog.records if record.name == "rookery.store"] == [logging.ERROR]
    assert examine(path) == ["new"]


async def test_e15_damage_that_shows_while_open_is_told_and_set_aside_by_the_next_start(path: Path) -> None:
    async with opened(path) as store:
        await add(store, *(f"{number:0100}" for number in range(200)))
    async with opened(path) as store:
        with path.open("r+b") as file:
            file.seek(4096 * 6)
            file.write(b"\xa5" * (path.stat().st_size - file.tell()))
        with pytest.raises(RookeryError) as caught:
            await store.read(names_in)
        assert caught.value.code == "store-failed"
        assert "restart Rookery" in caught.value.remedy
    async with opened(path) as store:
        assert len(store.problems) == 1


async def test_e15_the_log_of_a_damaged_file_goes_with_it_unchanged(path: Path) -> None:
    path.write_bytes(b"nonsense" * 100)
    side(path, "-wal").write_bytes(b"log")
    side(path, "-shm").write_bytes(b"index")
    async with opened(path) as store:
        assert len(store.problems) == 1
    found = {file.name.partition("Z")[2]: file.read_bytes() for file in path.parent.glob("rookery.db.corrupt-*")}
    assert found == {"": b"nonsense" * 100, "-wal": b"log", "-shm": b"index"}


async def test_e15_a_store_with_a_foreign_wal_is_set_aside_with_it_and_both_unchanged(path: Path, state: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
    whole = path.read_bytes()
    other = state / "other.db"
    async with opened(other) as store:
        await add(store, *(f"{number:0100}" for number in range(200)))
    async with opened(other) as store:
        await add(store, *(f"{number:0100}" for number in range(200, 240)))
        shutil.copyfile(side(other, "-wal"), side(path, "-wal"))
    log = side(path, "-wal").read_bytes()
    async with opened(path) as store:
        assert len(store.problems) == 1
    (aside,) = (file for file in state.glob("rookery.db.corrupt-*") if not file.name.endswith(("-wal", "-shm")))
    assert aside.read_bytes() == whole
    assert side(aside, "-wal").read_bytes() == log


@pytest.mark.parametrize("left", ["missing", "empty"])
async def test_e15_a_log_without_its_file_is_set_aside_and_not_thrown_away(path: Path, left: str) -> None:
    side(path, "-wal").write_bytes(b"rows that somebody may want back")
    if left == "empty":
        path.touch()
    async with opened(path) as store:
        assert len(store.problems) == 1
    (log,) = path.parent.glob("rookery.db.corrupt-*-wal")
    assert log.read_bytes() == b"rows that somebody may want back"


async def test_files_set_aside_at_the_same_moment_do_not_overwrite_each_other(path: Path) -> None:
    class Stopped:
        def monotonic(self) -> float:
            return 0.0

        def wall(self) -> float:
            return 0.0

        def uptime(self) -> tuple[str, float]:
            return "boot", 0.0

    for text in ("one", "two"):
        path.write_text(text)
        store = Store(path, clock=Stopped())
        await store.open()
        await store.close()
    assert {file.read_text() for file in path.parent.glob("rookery.db.corrupt-1970*")} == {"one", "two"}


async def test_e15_any_wrong_byte_in_the_header_ends_in_a_working_store_or_in_a_told_error(path: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
    whole = path.read_bytes()
    outcomes: set[str] = set()
    for place in range(100):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            async with opened(path) as store:
                await store.write(lambda db: db.execute("INSERT OR REPLACE INTO ports VALUES ('b', 1)"))
                outcomes.add("set aside" if store.problems else "unharmed")
        except RookeryError as error:
            outcomes.add(error.code)
            assert path.exists(), "a file that is refused stays"
    assert (
        {"unharmed", "set aside", "store-too-new"}
        <= outcomes
        <= {
            "unharmed",
            "set aside",
            "store-too-new",
            "store-failed",
        }
    )


async def test_a_big_file_is_opened_without_reading_all_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(path) as store:
        await add(store, "a")
    monkeypatch.setattr(module, "MAX_CHECKED_BYTES", 4096)
    monkeypatch.setattr(module, "QUICK_CHECK", "SELECT 'read it all'")
    async with opened(path) as store:
        assert await store.read(names_in) == ["a"]
        assert store.problems == []


# E15: schemas


async def test_e15_a_newer_schema_is_refused_and_its_file_stays_as_it_was(path: Path, state: Path) -> None:
    async with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    error = await refused(Store(path))
    assert error.code == "store-too-new"
    assert all(word in error.message for word in (str(path), "99"))
    assert error.remedy
    assert path.read_bytes() == before
    assert [file.name for file in state.iterdir()] == ["rookery.db"]


async def test_e15_a_newer_schema_that_is_still_in_the_log_is_refused_and_stays_as_it_was(path: Path) -> None:
    source = path.with_name("source.db")
    async with opened(source) as store:
        await store.write(lambda db: db.execute("PRAGMA user_version=99"))
        for suffix in ("", "-wal"):
            shutil.copyfile(side(source, suffix), side(path, suffix))
    before = path.read_bytes(), side(path, "-wal").read_bytes()
    assert (await refused(Store(path))).code == "store-too-new"
    assert (path.read_bytes(), side(path, "-wal").read_bytes()) == before


async def test_e15_an_older_schema_is_migrated_with_its_rows(
    path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        await add(store, "a")
    monkeypatch.setattr(module, "SCHEMA", shutil.copytree(module.SCHEMA, state / "schema"))
    newest = max(int(file.name[:4]) for file in module.SCHEMA.iterdir())
    (module.SCHEMA / f"{newest + 1:04}_more.sql").write_text("ALTER TABLE ports ADD COLUMN note TEXT")
    (module.SCHEMA / f"{newest + 2:04}_most.sql").write_text("UPDATE ports SET note = 'migrated';")
    async with opened(path) as store:
        assert await store.read(lambda db: db.execute("SELECT * FROM ports").fetchall()) == [("a", 1, "migrated")]
    assert version_of(path) == newest + 2


async def test_e15_a_migration_that_fails_changes_nothing(
    path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        await add(store, "a")
    before = version_of(path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "SCHEMA", shutil.copytree(module.SCHEMA, state / "schema"))
        (module.SCHEMA / "9999_bad.sql").write_text(
            "DELETE FROM ports; CREATE TABLE half (n TEXT); INSERT INTO nowhere"
        )
        assert (await refused(Store(path))).code == "store-failed"
    assert version_of(path) == before
    async with opened(path) as store:
        assert await store.read(names_in) == ["a"]
        assert store.problems == []


async def test_migrations_are_numbered_without_gaps_and_begin_with_the_house(path: Path) -> None:
    numbers = [int(file.name[:4]) for file in sorted(module.SCHEMA.glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))
    async with opened(path) as store:
        tables = await store.read(lambda db: db.execute("SELECT name, strict FROM pragma_table_list").fetchall())
    assert {("projects", 1), ("ports", 1)} <= set(tables)
    assert version_of(path) == numbers[-1]
