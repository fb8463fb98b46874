"""Writes Rookery into the file of a client."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rookery.clients.editing import with_entry
from rookery.clients.entries import Entry
from rookery.clients.known import Client
from rookery.system.errors import RookeryError
from rookery.system.files import read_plain, write_atomic

# Clients keep more than servers in some of these files.
LARGEST = 16_000_000
_BACKUP = ".before-rookery"


@dataclass(frozen=True)
class Installed:
    """What was done; `backup` is the file as it was before Rookery first changed it, None if there was none."""

    change: Literal["made", "changed", "unchanged"]
    backup: Path | None


def install(client: Client, path: Path, name: str, entry: Entry) -> Installed:
    """The file is replaced whole or not at all, and keeps its mode; one that is a link stays a link."""
    before = _read(path)
    try:
        after = with_entry(client, before or "", name, entry)
    except RookeryError as error:
        raise RookeryError(error.code, f"{path}: {error.message}", error.remedy) from None
    backup = path.with_name(path.name + _BACKUP)
    if after == before:
        return Installed("unchanged", backup if backup.exists() else None)
    try:
        if before is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, after.encode(), mode=0o600)
            return Installed("made", None)
        if not backup.exists():
            write_atomic(backup, before.encode(), mode=path.stat().st_mode & 0o777)
        write_atomic(path, after.encode())
    except OSError as error:
        raise RookeryError("invalid-input", f"{path} cannot be written: {error.strerror}") from error
    return Installed("changed", backup)


def _read(path: Path) -> str | None:
    try:
        return read_plain(path, LARGEST).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RookeryError("invalid-input", f"{path} cannot be read: {error}", "look at it first") from error
