"""Which file a new server is written to, and in which shape: that of the program which the file is for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Definition, Dialect, Place
from rookery.upstreams.dialects import define_entry
from rookery.upstreams.edit import add_entry, entry_for, remove_entry
from rookery.upstreams.reading import File, read
from rookery.upstreams.sources import files_of

_BY_NAME: Mapping[str, Dialect] = {"opencode.json": "opencode", "opencode.jsonc": "opencode", ".mcp.json": "claude"}
_BY_FOLDER: Mapping[str, Dialect] = {".dispatch": "dispatch"}
# What every dialect has a way of its own to say.
_SHARED = frozenset({"type", "command", "args", "env", "environment", "cwd", "url", "headers"})


def file_for(directory: Path | None, place: Place, dialect: Dialect) -> File:
    """The file of that program for that place: the one that is there, or else the one that it looks for first."""
    fitting = [one for one in files_of(directory) if one.place == place and one.dialect == dialect]
    if not fitting:
        told = f"Rookery reads no file of {dialect} for all projects" if place == "user" else "no project is named"
        raise RookeryError("invalid-input", told, "choose the file of a project, or name the file itself")
    return next((one for one in fitting if one.path.exists()), fitting[0])


def file_at(directory: Path | None, path: Path) -> File:
    """The file that somebody named, which may be one that nobody reads here."""
    path = path.parent.resolve() / path.name
    known = next((one for one in files_of(directory) if one.path == path), None)
    return known or File(path, _BY_NAME.get(path.name) or _BY_FOLDER.get(path.parent.name) or "rookery")


def write_to_file(file: File, name: str, config: Mapping[str, Any], *, force: bool) -> None:
    """Write an entry that makes sense; one that is there already stays, unless `force` says otherwise."""
    definition = define_entry(name, config, str(file.path))
    there = read(file, {}).parsed
    if not force and name in there.definitions.keys() | there.off.keys() | there.failed:
        raise RookeryError(
            "server-exists", f"there is a server {name!r} in {file.path} already", "replace it with --force"
        )
    add_entry(file, name, shaped(config, definition, file.dialect), replace=force)


def shaped(config: Mapping[str, Any], definition: Definition, dialect: Dialect) -> dict[str, Any]:
    """The entry as the program that owns the file wants it; ours takes every shape, so that there it stays as it is."""
    if dialect == "rookery":
        return dict(config)
    entry = entry_for(
        dialect,
        command=definition.command,
        environment=definition.environment,
        cwd=definition.cwd,
        url=definition.url,
        headers=definition.headers,
        transport=definition.transport,
    )
    return entry | {key: value for key, value in config.items() if key not in _SHARED}


def remove_from_file(directory: Path | None, definition: Definition) -> None:
    """Take a server out of the file that defines it."""
    remove_entry(file_at(directory, Path(definition.source.path)), definition.name)
