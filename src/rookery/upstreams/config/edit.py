"""Writes servers into configuration files and takes them out, as carefully as a person would."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rookery.system.errors import RookeryError
from rookery.system.files import write_atomic
from rookery.upstreams.definition import Dialect, Transport, wrong_with_name
from rookery.upstreams.dialects import CONTAINERS, containers
from rookery.upstreams.jsonc import BOM, JsoncError, Object, line_of, parse
from rookery.upstreams.reading import File, content
from rookery.upstreams.splice import insert_member, remove_member, replace_value

_MODE_OF_USER, _MODE_OF_PROJECT = 0o600, 0o644


def entry_for(
    dialect: Dialect,
    *,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    url: str = "",
    headers: Mapping[str, str] | None = None,
    transport: Transport = "auto",
) -> dict[str, Any]:
    """The entry of a server as the program that the file belongs to writes it."""
    opencode = dialect == "opencode"
    if url:
        kind = "remote" if opencode else "http" if transport == "auto" else transport
        return {"type": kind, "url": url} | ({"headers": dict(headers)} if headers else {})
    program: dict[str, Any] = {"type": "local", "command": list(command)}
    if not opencode:
        program = {"command": command[0]} | ({"args": list(command[1:])} if command[1:] else {})
    if cwd:
        program["cwd"] = cwd
    if environment:
        program["environment" if opencode else "env"] = dict(environment)
    return program


def add_entry(file: File, name: str, entry: Mapping[str, Any], *, replace: bool = False) -> None:
    """Write a server into a file, which is made if it is not there; its comments, order and mode stay."""
    _change(file, lambda text: with_entry(text, file.dialect, name, entry, replace=replace))


def remove_entry(file: File, name: str) -> None:
    """Take a server out of a file."""
    _change(file, lambda text: without_entry(text, file.dialect, name))


def with_entry(text: str, dialect: Dialect, name: str, entry: Mapping[str, Any], *, replace: bool = False) -> str:
    """The text of a file with a server in it that was not there, or with `replace` was another one."""
    if told := wrong_with_name(name):
        raise RookeryError("invalid-input", f"the name {name[:40]!r} of a server {told}", "choose another name")
    if not text.strip(BOM + " \t\r\n"):
        text += "{}\n"
    root = _root(text)
    places = list(containers(text, root, dialect))
    for place in places:
        for member in reversed(place.members):
            if member.name != name:
                continue
            if not replace:
                line = line_of(text, member.start)
                raise RookeryError("invalid-input", f'"{name}" is there already, in line {line}', "remove it first")
            return replace_value(text, root, member, dict(entry))
    if places:
        return insert_member(text, root, places[0].node, name, dict(entry))
    return insert_member(text, root, root, CONTAINERS[dialect], {name: dict(entry)})


def without_entry(text: str, dialect: Dialect, name: str) -> str:
    """The text of a file without a server, however often it stands there."""
    shorter = text
    while True:
        found = [
            (place.node, member)
            for place in containers(shorter, _root(shorter), dialect)
            for member in place.members
            if member.name == name
        ]
        if not found:
            break
        shorter = remove_member(shorter, *found[0])
    if shorter == text:
        raise RookeryError("server-not-found", f'there is no server "{name}" in this file', "see: rookery mcp list")
    return shorter


def _root(text: str) -> Object:
    root = parse(text)
    if not isinstance(root, Object):
        raise JsoncError("expected an object", line_of(text, root.start))
    return root


def _change(file: File, edit: Callable[[str], str]) -> None:
    new = False
    try:
        text = content(file)
    except (FileNotFoundError, NotADirectoryError):
        new, text = True, ""
    except (OSError, UnicodeDecodeError) as error:
        raise RookeryError("invalid-input", f"{file.path} cannot be read: {error}", "look at it first") from error
    try:
        changed = edit(text)
    except JsoncError as error:
        message = f"{file.path}:{error.line}: {error.message}"
        raise RookeryError("invalid-input", message, "mend the file first; it was not touched") from None
    mode = _MODE_OF_USER if file.root is None else _MODE_OF_PROJECT
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file.path, changed.encode(), mode=mode if new else None)
    except UnicodeEncodeError:
        raise RookeryError("invalid-input", "text that is not valid UTF-8 cannot be written") from None
    except OSError as error:
        raise RookeryError("invalid-input", f"{file.path} cannot be written: {error.strerror}") from error
