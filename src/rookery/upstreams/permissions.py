"""What `mcp.json` says of tools: `tools` chooses which are shown, `permission` which may be called."""

from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.gateway.rules import Filter
from rookery.system.files import read_beneath, read_plain
from rookery.upstreams.jsonc import LARGEST, JsoncError, parse, plain
from rookery.upstreams.reading import File
from rookery.upstreams.sources import files_of


class Written(msgspec.Struct, frozen=True):
    """`permission` as it stands in a file, for the policy to read."""

    permission: Any
    source: str


class Permissions(msgspec.Struct, frozen=True):
    user: tuple[Written, ...] = ()
    project: tuple[Written, ...] = ()
    shown: tuple[tuple[str, bool], ...] = ()


def permissions_of(directory: Path | None) -> Permissions:
    """Never raises: a file that cannot be read is told of where its servers are read."""
    found = [(file, top) for file in files_of(directory) if file.dialect == "rookery" and (top := _top(file))]
    written = [(file.place, Written(top["permission"], str(file.path))) for file, top in found if "permission" in top]
    # The user's come first and a project's after them, so that a project can hide what its user shows.
    shown = [pair for file, top in reversed(found) for pair in _filter(top.get("tools"), hides=file.place == "project")]
    return Permissions(
        tuple(one for place, one in written if place == "user"),
        tuple(one for place, one in written if place == "project"),
        tuple(shown),
    )


def _top(file: File) -> dict[str, Any]:
    try:
        data = read_plain(file.path, LARGEST) if file.root is None else _beneath(file, file.root)
        found = plain(parse(data.decode()))
    except (OSError, UnicodeDecodeError, JsoncError):
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _beneath(file: File, root: Path) -> bytes:
    return read_beneath(root, file.path.relative_to(root), LARGEST)


def _filter(given: Any, *, hides: bool) -> Filter:
    """A project's own file may hide tools, but not show what its user hides."""
    if not isinstance(given, dict):
        return ()
    written = cast(dict[str, Any], given)
    return [(pattern, bool(shown)) for pattern, shown in written.items() if not (hides and shown)]
