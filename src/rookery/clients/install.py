"""Writes Rookery's entry into the config file of a client."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rookery.clients.edit import add_entry
from rookery.clients.entry import Entry
from rookery.clients.registry import Client
from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain, write_atomic

# In bytes. Clients keep more than servers in some of these files.
MAX_FILE_BYTES = 16_000_000
_BACKUP = ".before-rookery"


@dataclass(frozen=True)
class InstallResult:
    """The result of an install. `backup` is the file from before Rookery's first change, None if there was none."""

    change: Literal["made", "changed", "unchanged"]
    backup: Path | None


def install(client: Client, path: Path, name: str, entry: Entry) -> InstallResult:
    """Write the entry into the file. The file is replaced atomically and keeps its mode; a link stays a link."""
    before = _read(path)
    try:
        after = add_entry(client, before or "", name, entry)
    except RookeryError as error:
        raise RookeryError(error.code, f"{path}: {error.message}", error.remedy) from None
    backup = path.with_name(path.name + _BACKUP)
    if after == before:
        return InstallResult("unchanged", backup if backup.exists() else None)
    try:
        if before is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, after.encode(), mode=0o600)
            return InstallResult("made", None)
        if not backup.exists():
            write_atomic(backup, before.encode(), mode=path.stat().st_mode & 0o777)
        write_atomic(path, after.encode())
    except OSError as error:
        failure = RookeryError("invalid-input", f"{path} cannot be written: {error.strerror}")
        raise explain_os_error(error, path) or failure from error
    return InstallResult("changed", backup)


def _read(path: Path) -> str | None:
    try:
        return read_plain(path, MAX_FILE_BYTES).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RookeryError("invalid-input", f"{path} cannot be read: {error}", "check the file") from error
