"""What is kept of a workspace, in its own git folder: so it goes where the worktree goes, whatever its branch."""

import logging
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.files import read_plain, write_atomic

logger = logging.getLogger("rookery.workspaces")

T = TypeVar("T")

BASE = "base"
_HOUSE = "rookery"
_KEY = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*\Z")
_LONGEST_VALUE = 64 * 1024
_LARGEST = 2**20


class Kept(msgspec.Struct, frozen=True):
    """`name` is what a workspace of ours was called when it was made; one that others made has none."""

    name: str | None = None
    metadata: dict[str, str] = {}


class Preparing(msgspec.Struct, frozen=True):
    """There while a workspace is not prepared yet; with an `error` and its `code` if that has failed."""

    phase: str = ""
    error: str | None = None
    code: str | None = None


def house(own: Path) -> Path:
    """Our folder in a worktree's own git folder."""
    return own / _HOUSE


def read_kept(own: Path) -> Kept:
    """What is kept; nothing if the file is missing or was spoilt by others."""
    return _read(f"{own}/{_HOUSE}/metadata.json", Kept) or Kept()


def write_kept(own: Path, kept: Kept) -> None:
    _write(house(own) / "metadata.json", kept)


def change(own: Path, key: str, value: str | None) -> Kept:
    """Set a key, or with None remove it. There is no await in here, so that no change is lost to another."""
    if not _KEY.match(key):
        remedy = "begin with a letter, and use only letters, digits and hyphens"
        raise RookeryError("invalid-input", f"{key[:100]!r} cannot be a metadata key", remedy)
    kept = read_kept(own)
    found = {name: text for name, text in kept.metadata.items() if name != key}
    if value is not None:
        found[key] = value
    now = Kept(kept.name, found)
    if len(value or "") > _LONGEST_VALUE or len(msgspec.json.encode(now)) > _LARGEST:
        raise RookeryError("invalid-input", f"the metadata {key[:100]} is too long", "keep long text in a file")
    write_kept(own, now)
    return now


def read_preparing(own: Path) -> Preparing | None:
    return _read(f"{own}/{_HOUSE}/preparing.json", Preparing)


def write_preparing(own: Path, preparing: Preparing | None) -> None:
    place = house(own) / "preparing.json"
    if preparing is None:
        place.unlink(missing_ok=True)
    else:
        _write(place, preparing)


def _read(path: str, kind: type[T]) -> T | None:
    """By a text: a list of many workspaces reads many files, and paths take longer to make than files to read."""
    try:
        return msgspec.json.decode(read_plain(path, _LARGEST), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("%s cannot be read, and counts as empty: %s", path, error)
        return None


def _write(path: Path, value: msgspec.Struct) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=2))
