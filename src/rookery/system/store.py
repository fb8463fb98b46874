"""Persistent state of the daemon: one SQLite file with one writer thread. A write that has returned is committed."""

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

from rookery.system.causes import cause_error, explain_os_error, find_write_problem
from rookery.system.clock import SYSTEM_CLOCK, Clock, iso
from rookery.system.errors import RookeryError
from rookery.system.fs import atomic

logger = logging.getLogger("rookery.store")

SCHEMA = Path(__file__).with_name("schema")
MAX_CHECKED_BYTES = 64 * 2**20
QUICK_CHECK = "PRAGMA quick_check(1)"
SCHEMA_CHECK = "SELECT 'ok', count(*) FROM sqlite_schema"
HEADER_BYTES = 100
MAGIC = b"SQLite format 3\0"
SIDE_FILES = ("-wal", "-shm", "-journal")
BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
DAMAGED_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
FAILED_CODES = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
} | DAMAGED_CODES

T = TypeVar("T")


class Store:
    """An SQLite file of the daemon. `problems` lists what the user has to know about it, for status and doctor.

    `schema` is the folder of its migrations, by default that of the daemon's main store.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        busy_seconds: float = 5.0,
        is_owner: Callable[[], bool] = lambda: True,
        schema: Path | None = None,
    ) -> None:
        self.path = path
        # Called before a replaced file is written again: it may belong to another daemon.
        self._is_owner = is_owner
        self.problems: list[str] = []
        # The names of the migrations that were applied to an existing file on opening; none for a new file.
        self.applied_migrations: tuple[str, ...] = ()
        self._clock = clock
        self._busy_seconds = busy_seconds
        # Read once: an update of the package must not change the schema of the running program.
        self._migrations = _migrations(SCHEMA if schema is None else schema)
        self._thread: ThreadPoolExecutor | None = None
        # Used by the store's thread only.
        self._db: sqlite3.Connection | None = None
        self._identities: list[tuple[int, int] | None] = []

    async def open(self) -> None:
        """Open the file; create or migrate it. A damaged file is set aside, a newer one refused and left untouched."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            await self._call(self._open)
        except Exception:
            self._thread.shutdown(wait=False)
            self._thread = None
            raise

    async def close(self) -> None:
        """Finish pending calls, checkpoint the log into the file and close it. Further calls do nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            closing = asyncio.get_running_loop().run_in_executor(thread, self._close)
            thread.shutdown(wait=False)
            await asyncio.shield(closing)

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """Run `fn` in a transaction of its own, and return its result after the commit.

        Without `durable`, a power cut (but no crash of the program) may still undo it. An exception in `fn` undoes it.
        A caller that is cancelled while it waits does not know whether the commit happened.
        """
        return await self._call(lambda: self._write(fn, durable))

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn` on the committed data. It cannot change anything, and must not return a cursor."""
        return await self._call(lambda: self._read(fn))

    async def _call(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise RookeryError("store-closed", f"the store {self.path} is not open")

        def run() -> T:
            try:
                return work()
            except StopIteration as error:
                # A future cannot carry StopIteration: the caller would wait for ever.
                raise RuntimeError("a function given to the store raised StopIteration") from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _write(self, fn: Callable[[sqlite3.Connection], T], durable: bool) -> T:
        try:
            db = self._db = self._ensure_file(self._require_open())
        except (sqlite3.Error, OSError) as error:
            raise self._explain(error) from error
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        return self._run(db, "BEGIN IMMEDIATE", fn)

    def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        db = self._require_open()
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
            if _code(error) in BUSY_CODES | FAILED_CODES:
                raise self._explain(error) from error
            raise
        finally:
            # Not always: a full disk has rolled the transaction back already.
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _require_open(self) -> sqlite3.Connection:
        if self._db is None:
            raise RookeryError("store-closed", f"the store {self.path} is not open")
        return self._db

    def _open(self) -> None:
        if self._db is not None:
            return
        try:
            if damage := self._find_damage():
                self._set_aside(damage)
            self._db = self._connect()
        except (sqlite3.Error, OSError) as error:
            raise self._explain(error) from error

    def _set_aside(self, damage: str) -> None:
        aside = self._free_name("corrupt")
        # The database is moved first: if a crash leaves the log alone, that is recognised as damage again.
        for suffix in ("", *SIDE_FILES):
            with contextlib.suppress(FileNotFoundError):
                atomic.rename_durably(_side_file(self.path, suffix), _side_file(aside, suffix))
        self._report(f"{self.path} was damaged ({damage}); it was renamed to {aside}, and a new store was created")

    def _find_damage(self) -> str:
        """Return what is damaged, or nothing. Only reads, so that a file to refuse or to rescue stays as it is."""
        try:
            file_stat = self.path.stat()
            if not stat.S_ISREG(file_stat.st_mode):
                raise RookeryError("store-failed", f"{self.path} is not a regular file", "move it away")
            with self.path.open("rb") as file:
                header = file.read(HEADER_BYTES)
        except FileNotFoundError:
            file_stat = None
            header = b""
        for suffix in SIDE_FILES:
            side_file = _side_file(self.path, suffix)
            if os.path.lexists(side_file) and not side_file.is_file():
                return f"{side_file.name} is not a regular file"
        if file_stat is None or not header:
            log = _side_file(self.path, "-wal")
            if log.exists() and log.stat().st_size:
                return "only its log exists"
            return "" if file_stat is None else "it is empty"
        # Left by a crash before there was a log: the file cannot be checked until SQLite rolls the journal back.
        journal = _side_file(self.path, "-journal").exists()
        if not journal and (len(header) < HEADER_BYTES or not header.startswith(MAGIC)):
            return "it is not an SQLite database"
        # SQLite takes a file shorter than one page for a new database. A page size of 1 means 65536.
        page = int.from_bytes(header[16:18], "big")
        if not journal and file_stat.st_size < (65_536 if page == 1 else page):
            return "it is truncated"
        self._refuse_newer(int.from_bytes(header[60:64], "big"))
        # Closing a writable connection would checkpoint the log.
        uri = f"{self.path.absolute().as_uri()}?mode={'rw' if journal else 'ro'}"
        check = QUICK_CHECK if file_stat.st_size <= MAX_CHECKED_BYTES else SCHEMA_CHECK
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=self._busy_seconds)) as db:
                self._refuse_newer(_version(db))
                result = " ".join(str(db.execute(check).fetchone()[0]).split())
                return "" if result == "ok" else result
        except sqlite3.Error as error:
            if _code(error) in DAMAGED_CODES:
                return str(error)
            raise

    def _connect(self) -> sqlite3.Connection:
        _make_private(self.path)
        db = sqlite3.connect(self.path, timeout=self._busy_seconds, isolation_level=None)
        try:
            self._refuse_newer(_version(db))
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA foreign_keys=ON")
            before = _version(db)
            for number, name, script in self._migrations:
                if number > before:
                    db.executescript(f"BEGIN IMMEDIATE;\n{script}\n;PRAGMA user_version={number};\nCOMMIT;")
                    self.applied_migrations += (name,) if before else ()
            self._identities = self._read_identities()
        except BaseException:
            db.close()
            raise
        return db

    def _ensure_file(self, db: sqlite3.Connection) -> sqlite3.Connection:
        """Return `db`, or a connection to a new file with all its data if its file or log was removed or replaced."""
        present = self._read_identities()
        if present == self._identities:
            return db
        if not self._is_owner():
            raise RookeryError(
                "store-failed", f"{self.path} now belongs to another daemon", "this daemon stops; see: rookery status"
            )
        copy = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.tmp")
        try:
            _make_private(copy)
            with contextlib.closing(sqlite3.connect(copy, timeout=self._busy_seconds)) as target:
                db.backup(target)
            aside = self._free_name("replaced")
            for suffix, current, original in zip(("", "-wal"), present, self._identities, strict=True):
                if current not in (None, original):
                    atomic.rename_durably(_side_file(self.path, suffix), _side_file(aside, suffix))
            for suffix in SIDE_FILES:
                atomic.remove_file(_side_file(self.path, suffix))
            atomic.rename_durably(copy, self.path)
        finally:
            for suffix in ("", *SIDE_FILES):
                atomic.remove_file(_side_file(copy, suffix))
        connection = self._connect()
        db.close()
        note = f"; the file that replaced it was renamed to {aside}" if aside.exists() else ""
        self._report(f"{self.path} was deleted or replaced while in use; it was restored with all its data{note}")
        return connection

    def _read_identities(self) -> list[tuple[int, int] | None]:
        """Return the identities of the files at the paths of the database and of its log."""
        return [_identity(self.path), _identity(_side_file(self.path, "-wal"))]

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        try:
            db = self._ensure_file(db)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except (sqlite3.Error, OSError) as error:
            logger.error("closing the store failed: %s", self._explain(error).message)
        finally:
            db.close()

    def _refuse_newer(self, version: int) -> None:
        """Raise if the schema is newer than this program knows."""
        newest = self._migrations[-1][0]
        if not 0 <= version <= newest:
            raise RookeryError(
                "store-too-new",
                f"{self.path} has schema version {version}, but this Rookery supports only versions up to {newest}",
                "update Rookery, or move the file away to start with a new store; the file was not changed",
            )

    def _free_name(self, reason: str) -> Path:
        name = self.path.with_name(f"{self.path.name}.{reason}-{iso(self._clock.wall()).replace(':', '')}")
        while any(os.path.lexists(_side_file(name, suffix)) for suffix in ("", *SIDE_FILES)):
            name = _side_file(name, "+")
        return name

    def _report(self, problem: str) -> None:
        self.problems.append(problem)
        logger.error("%s", problem)

    def _explain(self, error: Exception) -> RookeryError:
        """Return the error to raise for an error of SQLite or of the file system."""
        if _code(error) in BUSY_CODES:
            return RookeryError(
                "store-busy",
                f"{self.path} has been locked by another process for {self._busy_seconds:g} s",
                f"stop the program that holds it, then try again; to find it: fuser {self.path}",
            )
        remedy = f"check that the disk is healthy and has space and that {self.path.parent} is writable, then try again"
        if _code(error) in DAMAGED_CODES:
            remedy = "restart Rookery: it moves a damaged store aside"
        elif cause := self._find_cause(error):
            return RookeryError("store-failed", f"cannot use {self.path}: {cause.message}", cause.remedy)
        return RookeryError("store-failed", f"cannot use {self.path}: {error}", remedy)

    def _find_cause(self, error: Exception) -> RookeryError | None:
        """Return the full disk, read-only file system or missing permission behind an error, if it is one."""
        if isinstance(error, OSError):
            return explain_os_error(error, self.path)
        if _code(error) == sqlite3.SQLITE_FULL:
            return cause_error("disk-full", str(self.path))
        files = [path for suffix in ("", *SIDE_FILES) if (path := _side_file(self.path, suffix)).exists()]
        return find_write_problem((*files, self.path.parent))


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; if the error carries none, a number that is no such code."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def newest_version() -> int:
    """Return the newest schema version that this program knows."""
    return _migrations(SCHEMA)[-1][0]


def peek_version(path: Path) -> int | None:
    """Return the schema version in a file's header, without opening it as a database; None if there is none."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return None
    return int.from_bytes(header[60:64], "big") if header.startswith(MAGIC) else None


def _migrations(schema: Path) -> list[tuple[int, str, str]]:
    """Return the number, the name and the script of each migration."""
    files = sorted(schema.glob("????_*.sql"))
    return [(int(file.name[:4]), file.stem[5:], file.read_text(encoding="utf-8")) for file in files]


def _side_file(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        file_stat = path.stat()
    except FileNotFoundError:
        return None
    return file_stat.st_dev, file_stat.st_ino


def _make_private(path: Path) -> None:
    """Create the file for this user alone, since SQLite would create it, and its log, readable by everyone."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(handle).st_mode) != 0o600:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
