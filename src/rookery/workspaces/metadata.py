"""Metadata of a workspace, stored in the worktree's own git folder.

The metadata moves with the worktree and does not depend on the branch that is checked out.
"""

import logging
import re
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import UnreadableFile, read_json, write_atomic

logger = logging.getLogger("rookery.workspaces")

T = TypeVar("T")

BASE_KEY = "base"
_FOLDER = "rookery"
_KEY = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*\Z")
_MAX_VALUE_LENGTH = 64 * 1024
_MAX_FILE_BYTES = 2**20


class StartPoint(msgspec.Struct, frozen=True):
    """Where a workspace started: the `commit` that `ref` named at that time, and the reason for that choice.

    `given`: the user named it; `remote-default` and `head`: nothing was named; `branch`: an existing branch;
    `detached`: HEAD was on no branch, and `ref` is the commit itself.
    """

    ref: str
    commit: str
    reason: Literal["given", "remote-default", "head", "detached", "branch"]


class StoredMetadata(msgspec.Struct, frozen=True):
    """The stored metadata of a workspace. `name` is None if Rookery did not create the workspace.

    `family` is that of the workspace whose token created this one, `start` where it started.
    """

    name: str | None = None
    metadata: dict[str, str] = {}
    family: str | None = None
    start: StartPoint | None = None


class PreparationMarker(msgspec.Struct, frozen=True):
    """Exists while a workspace is not prepared yet; has an `error` and its `code` if the preparation failed."""

    phase: str = ""
    error: str | None = None
    code: str | None = None


def rookery_folder(own: Path) -> Path:
    """Return Rookery's folder in a worktree's own git folder."""
    return own / _FOLDER


def has_rookery_data(common: Path) -> bool:
    """Return whether Rookery has stored data in a repository, given its common git folder, or in its worktrees."""
    return rookery_folder(common).exists() or any(common.glob(f"worktrees/*/{_FOLDER}"))


def read_metadata(own: Path) -> StoredMetadata:
    """Return the stored metadata; empty if the file is missing or unreadable."""
    return _read(f"{own}/{_FOLDER}/metadata.json", StoredMetadata) or StoredMetadata()


def write_metadata(own: Path, stored: StoredMetadata) -> None:
    _write(rookery_folder(own) / "metadata.json", stored)


def set_value(own: Path, key: str, value: str | None) -> StoredMetadata:
    """Set a key, or remove it if `value` is None.

    All calls are made in one thread, so concurrent changes are not lost.
    """
    if not _KEY.match(key):
        remedy = "begin with a letter, and use only letters, digits and hyphens"
        raise RookeryError("invalid-input", f"{key[:100]!r} cannot be a metadata key", remedy)
    stored = read_metadata(own)
    values = {name: text for name, text in stored.metadata.items() if name != key}
    if value is not None:
        values[key] = value
    updated = msgspec.structs.replace(stored, metadata=values)
    if len(value or "") > _MAX_VALUE_LENGTH or len(msgspec.json.encode(updated)) > _MAX_FILE_BYTES:
        raise RookeryError("invalid-input", f"the metadata {key[:100]} is too long", "keep long text in a file")
    write_metadata(own, updated)
    return updated


def read_preparation(own: Path) -> PreparationMarker | None:
    """Return the preparation marker of a workspace; None if the workspace is prepared."""
    return _read(f"{own}/{_FOLDER}/preparing.json", PreparationMarker)


def write_preparation(own: Path, marker: PreparationMarker | None) -> None:
    """Write the preparation marker of a workspace, or remove it if `marker` is None."""
    path = rookery_folder(own) / "preparing.json"
    if marker is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, marker)


def _read(path: str, kind: type[T]) -> T | None:
    """Read a JSON file; None if it is missing or unreadable.

    `path` is a str because a list of many workspaces reads many files, and building Path objects takes longer than
    reading the files.
    """
    try:
        return read_json(path, kind, _MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except UnreadableFile as error:
        logger.warning("%s cannot be read and is treated as empty: %s", path, error)
        return None


def _write(path: Path, value: msgspec.Struct) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=2))
