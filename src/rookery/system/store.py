"""What must outlive the daemon: one SQLite file with one writer thread. What was answered has been kept."""

import asyncio
import contextlib
import logging
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rookery.system import files
from rookery.system.clock import SYSTEM_CLOCK, Clock, iso
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.store")

SCHEMA = Path(__file__).with_name("schema")
CHECKED_BYTES = 64 * 2**20
QUICK_CHECK = "PRAGMA quick_check(1)"
SCHEMA_CHECK = "SELECT 'ok', count(*) FROM sqlite_schema"
HEADER_BYTES = 100
MAGIC = b"SQLite format 3\0"
SIDE_FILES = ("-wal", "-shm", "-journal")
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
FAILED = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN} | DAMAGED

T = TypeVar("T")


class Store:
    """`problems` holds what a person has to know about the file, for status and doctor."""

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK, busy_seconds: float = 5.0) -> None:
        self.path = path
        self.problems: list[str] = []
        self._clock = clock
        self._busy_seconds = busy_seconds
        # Read once: an update of the package must not change what the running program migrates to.
        self._migrations = _migrations()
        self._thread: ThreadPoolExecutor | None = None
        # Touched by the store's thread only.
        self._db: sqlite3.Connection | None = None
        self._standing: list[tuple[int, int] | None] = []

    async def open(self) -> None:
        """Open the file, making or migrating it; a damaged one is set aside, a newer one refused untouched."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            await self._call(self._open)
        except Exception:
            self._thread.shutdown(wait=False)
            self._thread = None
            raise

    async def close(self) -> None:
        """Finish what was asked for, fold the log into the file and close it. Calling it again does no harm."""
        thread, self._thread = self._thread, None
        if thread is not None:
            closing = asyncio.get_running_loop().run_in_executor(thread, self._close)
            thread.shutdown(wait=False)
            await asyncio.shield(closing)

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """Run `fn` in a transaction of its own; the answer comes after the commit, and means that it is kept.

        Without `durable`, a power cut (but no crash of the program) may still undo it. What `fn` raises undoes it all.
        Whoever is cancelled while waiting does not know whether it happened.
        """
        return await self._call(lambda: self._write(fn, durable))

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn` on what has been committed; it cannot change anything, and lets no cursor out."""
        return await self._call(lambda: self._read(fn))

    async def _call(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise RookeryError("store-closed", f"the store {self.path} is not open")

        def run() -> T:
            try:
                return work()
            except StopIteration as error:
                # No future can carry one: whoever awaits it would wait for ever.
                raise RuntimeError("a function given to the store raised StopIteration") from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _write(self, fn: Callable[[sqlite3.Connection], T], durable: bool) -> T:
        try:
            db = self._db = self._kept(self._opened())
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from error
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        return self._run(db, "BEGIN IMMEDIATE", fn)

    def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        db = self._opened()
        db.execute("PRAGMA query_only=ON")
        try:
            return self._run(db, "BEGIN", fn)
        finally:
            db.execute("PRAGMA query_only=OFF")

    def _run(self, db: sqlite3.Connection, begin: str, fn: Callable[[sqlite3.Connection], T]) -> T:
        try:
            db.execute(begin)
            result = fn(db)
            db.execute("COMMIT")
            return result
        except sqlite3.Error as error:
            if _code(error) in BUSY | FAILED:
                raise self._explained(error) from error
            raise
        finally:
            # Not always: a full disk has undone the transaction already.
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            raise RookeryError("store-closed", f"the store {self.path} is not open")
        return self._db

    def _open(self) -> None:
        if self._db is not None:
            return
        try:
            if damage := self._damage():
                self._set_aside(damage)
            self._db = self._connect()
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from error

    def _set_aside(self, damage: str) -> None:
        aside = self._free_name("corrupt")
        # The database goes first: a log that a crash in between leaves alone is recognised as damage again.
        for suffix in ("", *SIDE_FILES):
            with contextlib.suppress(FileNotFoundError):
                files.move_aside(_beside(self.path, suffix), _beside(aside, suffix))
        self._report(f"{self.path} was damaged ({damage}); it is now {aside}, and a new store was begun")

    def _damage(self) -> str:
        """What is wrong with the file, or nothing. Only looks, so that a file to refuse or to rescue stays as it is."""
        try:
            found = self.path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise RookeryError("store-failed", f"{self.path} is not a file", "move it away")
            with self.path.open("rb") as file:
                header = file.read(HEADER_BYTES)
        except FileNotFoundError:
            found, header = None, b""
        if found is None or not header:
            log = _beside(self.path, "-wal")
            return "only its log is there" if log.exists() and log.stat().st_size else ""
        # Left by a crash before there was a log: nothing can be told before the journal is rolled back.
        journal = _beside(self.path, "-journal").exists()
        if not journal and (len(header) < HEADER_BYTES or not header.startswith(MAGIC)):
            return "it does not begin like a database"
        self._refuse_newer(int.from_bytes(header[60:64], "big"))
        # Closing a connection that may write would fold the log in.
        uri = f"{self.path.absolute().as_uri()}?mode={'rw' if journal else 'ro'}"
        check = QUICK_CHECK if found.st_size <= CHECKED_BYTES else SCHEMA_CHECK
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=self._busy_seconds)) as db:
                self._refuse_newer(_version(db))
                answer = " ".join(str(db.execute(check).fetchone()[0]).split())
                return "" if answer == "ok" else answer
        except sqlite3.Error as error:
            if _code(error) in DAMAGED:
                return str(error)
            raise

    def _connect(self) -> sqlite3.Connection:
        _make_private(self.path)
        db = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        try:
            self._refuse_newer(_version(db))
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA foreign_keys=ON")
            for number, script in self._migrations:
                if number > _version(db):
                    db.executescript(f"BEGIN IMMEDIATE;\n{script}\n;PRAGMA user_version={number};\nCOMMIT;")
            self._standing = self._present()
        except BaseException:
            db.close()
            raise
        return db

    def _kept(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """`db`, or if its file or its log was taken away from under it, a connection to a new file with all it held."""
        present = self._present()
        if present == self._standing:
            return db
        copy = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.tmp")
        try:
            _make_private(copy)
            with contextlib.closing(sqlite3.connect(copy, timeout=self._busy_seconds)) as target:
                db.backup(target)
            aside = self._free_name("replaced")
            for suffix, found, ours in zip(("", "-wal"), present, self._standing, strict=True):
                if found not in (None, ours):
                    files.move_aside(_beside(self.path, suffix), _beside(aside, suffix))
            for suffix in SIDE_FILES:
                files.remove(_beside(self.path, suffix))
            files.move_aside(copy, self.path)
        finally:
            for suffix in ("", *SIDE_FILES):
                files.remove(_beside(copy, suffix))
        kept = self._connect()
        db.close()
        instead = f"; what stood there instead is now {aside}" if aside.exists() else ""
        self._report(
            f"{self.path} was deleted or replaced while in use and was written anew, with all it held{instead}"
        )
        return kept

    def _present(self) -> list[tuple[int, int] | None]:
        """Which files stand under the names of the database and of its log."""
        return [_identity(self.path), _identity(_beside(self.path, "-wal"))]

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        try:
            db = self._kept(db)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except (sqlite3.Error, OSError) as error:
            logger.error("closing the store: %s", self._explained(error).message)
        finally:
            db.close()

    def _refuse_newer(self, version: int) -> None:
        newest = self._migrations[-1][0]
        if not 0 <= version <= newest:
            raise RookeryError(
                "store-too-new",
                f"{self.path} has schema {version}, but this Rookery knows only those up to {newest}",
                "update Rookery, or move the file away to begin a new store; it was not touched",
            )

    def _free_name(self, why: str) -> Path:
        name = self.path.with_name(f"{self.path.name}.{why}-{iso(self._clock.wall()).replace(':', '')}")
        while any(os.path.lexists(_beside(name, suffix)) for suffix in ("", *SIDE_FILES)):
            name = _beside(name, "+")
        return name

    def _report(self, problem: str) -> None:
        self.problems.append(problem)
        logger.error("%s", problem)

    def _explained(self, error: Exception) -> RookeryError:
        if _code(error) in BUSY:
            return RookeryError(
                "store-busy",
                f"{self.path} has been locked by another process for {self._busy_seconds:g} s",
                f"end the program that holds it, then try again; to find it: fuser {self.path}",
            )
        remedy = f"see that the disk is healthy and has space and that {self.path.parent} is writable, then try again"
        if _code(error) in DAMAGED:
            remedy = "start Rookery anew: it sets a damaged store aside"
        return RookeryError("store-failed", f"cannot use {self.path}: {error}", remedy)


def _code(error: Exception) -> int:
    """SQLite's result code without the details; none of its codes if the error carries none."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def newest_version() -> int:
    """The newest schema that this Rookery knows."""
    return _migrations()[-1][0]


def peek_version(path: Path) -> int | None:
    """The schema in a file's header, without opening the file as a database; None where there is none."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return None
    return int.from_bytes(header[60:64], "big") if header.startswith(MAGIC) else None


def _migrations() -> list[tuple[int, str]]:
    return [(int(file.name[:4]), file.read_text(encoding="utf-8")) for file in sorted(SCHEMA.glob("????_*.sql"))]


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _make_private(path: Path) -> None:
    """See that the file exists for this user alone, before SQLite would make it, and its log, for everyone."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(handle).st_mode) != 0o600:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
