"""The definition of an MCP server as something to approve: what it says, and the files that it would run."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.guard.named_files import files_named, fingerprints
from rookery.guard.subject import Key, Subject
from rookery.system.errors import RookeryError

KIND = "mcp-server"


class Parts(msgspec.Struct):
    """A definition taken apart for people to read, whatever dialect it was written in; `other` is all the rest."""

    command: list[str]
    url: str
    cwd: str
    environment: dict[str, Any]
    headers: dict[str, Any]
    other: dict[str, Any]


async def server_subject(
    *,
    name: str,
    kind: str,
    written: Mapping[str, Any],
    place: Path,
    checkout: Path,
    command: Sequence[str] = (),
    cwd: str | None = None,
    search: str = "",
    source: str = "",
) -> Subject:
    """Look at a definition found in `checkout`; `command`, `cwd` and `search` (its PATH) as they would be used.

    The files are read anew each time: whoever starts a server asks right before.
    """
    root, real_place = checkout.resolve(), place.resolve()
    folder = root / (cwd or "")

    def look() -> dict[str, str]:
        inside = dict.fromkeys((root, real_place))
        return fingerprints({one: None for each in inside for one in files_named(command, folder, each, search)}, root)

    files: dict[str, str] = {}
    problem = ""
    try:
        files = await asyncio.to_thread(look)
    except RookeryError as error:
        problem = error.message
    runs_in = os.path.normpath(folder) if kind == "local" else ""
    return Subject(KIND, str(real_place), name, content_of(kind, written), files, source, problem, runs_in)


def key_of(name: str, place: Path) -> Key:
    return Key(KIND, str(place.resolve()), name)


def content_of(kind: str, written: Mapping[str, Any]) -> str:
    """What is shown of a definition, and approved."""
    content = json.dumps({"kind": kind, "entry": written}, indent=2, ensure_ascii=False)
    # Half a character pair is no text that could be stored; as an escape it is the same JSON.
    return content.encode("utf-8", "backslashreplace").decode()


def parts_of(content: str) -> Parts:
    """What the content of a definition says."""
    other = dict(cast(Mapping[str, Any], json.loads(content)["entry"]))
    command = _words(other.pop("command", [])) + _words(other.pop("args", []))
    environment = _table(other, "environment") | _table(other, "env")
    url, cwd = str(other.pop("url", "")), str(other.pop("cwd", "") or "")
    return Parts(command, url, cwd, environment, _table(other, "headers"), other)


def _words(written: object) -> list[str]:
    if isinstance(written, list):
        return [str(word) for word in cast(list[Any], written)]
    return [str(written)]


def _table(other: dict[str, Any], key: str) -> dict[str, Any]:
    """Taken out only if it is what it should be: whatever else it is stays among the rest, and is shown there."""
    return cast(dict[str, Any], other.pop(key)) if isinstance(other.get(key), dict) else {}
