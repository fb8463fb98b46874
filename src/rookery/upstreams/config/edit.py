"""Add servers to configuration files and remove them, keeping comments, order and file mode.

An entry is written in the form of the program that the file belongs to.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rookery.system.causes import describe_error, explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import write_atomic
from rookery.upstreams.config.definition import ConfigLevel, Definition, Dialect, Transport, find_name_problem
from rookery.upstreams.config.dialects import CONTAINER_KEYS, define_server, find_containers
from rookery.upstreams.config.jsonc import (
    BOM,
    JsoncError,
    Object,
    find_line,
    insert_member,
    parse_jsonc,
    remove_member,
    replace_value,
)
from rookery.upstreams.config.sources import ConfigFile, list_config_files, load_file, read_config_text

_USER_FILE_MODE = 0o600
_PROJECT_FILE_MODE = 0o644

_DIALECT_BY_NAME: Mapping[str, Dialect] = {
    "opencode.json": "opencode",
    "opencode.jsonc": "opencode",
    ".mcp.json": "claude",
}
_DIALECT_BY_FOLDER: Mapping[str, Dialect] = {".dispatch": "dispatch"}
# Settings that each dialect writes in its own form.
_COMMON_KEYS = frozenset({"type", "command", "args", "env", "environment", "cwd", "url", "headers"})


def format_entry(
    dialect: Dialect,
    *,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    url: str = "",
    headers: Mapping[str, str] | None = None,
    transport: Transport = "auto",
) -> dict[str, Any]:
    """Return the entry of a server in the form of the program that the file belongs to."""
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


def add_entry(file: ConfigFile, name: str, entry: Mapping[str, Any], *, replace: bool = False) -> None:
    """Write a server into a file, which is created if it does not exist. Comments, order and mode are kept."""
    _edit_file(file, lambda text: add_entry_to_text(text, file.dialect, name, entry, replace=replace))


def remove_entry(file: ConfigFile, name: str) -> None:
    """Remove a server from a file."""
    _edit_file(file, lambda text: remove_entry_from_text(text, file.dialect, name))


def add_entry_to_text(
    text: str, dialect: Dialect, name: str, entry: Mapping[str, Any], *, replace: bool = False
) -> str:
    """Return the text of a file with a new server in it, or with `replace` a replaced one."""
    if problem := find_name_problem(name):
        raise RookeryError("invalid-input", f"the name {name[:40]!r} of a server {problem}", "choose another name")
    if not text.strip(BOM + " \t\r\n"):
        text += "{}\n"
    root = _parse_root(text)
    containers = list(find_containers(text, root, dialect))
    for container in containers:
        for member in reversed(container.members):
            if member.name != name:
                continue
            if not replace:
                line = find_line(text, member.start)
                raise RookeryError("invalid-input", f'"{name}" already exists in line {line}', "remove it first")
            return replace_value(text, root, member, dict(entry))
    if containers:
        return insert_member(text, root, containers[0].node, name, dict(entry))
    return insert_member(text, root, root, CONTAINER_KEYS[dialect], {name: dict(entry)})


def remove_entry_from_text(text: str, dialect: Dialect, name: str) -> str:
    """Return the text of a file without any entry of a server."""
    shorter = text
    while True:
        matches = [
            (container.node, member)
            for container in find_containers(shorter, _parse_root(shorter), dialect)
            for member in container.members
            if member.name == name
        ]
        if not matches:
            break
        shorter = remove_member(shorter, *matches[0])
    if shorter == text:
        raise RookeryError("server-not-found", f'there is no server "{name}" in this file', "see: rookery mcp list")
    return shorter


def _parse_root(text: str) -> Object:
    root = parse_jsonc(text)
    if not isinstance(root, Object):
        raise JsoncError("expected an object", find_line(text, root.start))
    return root


def _edit_file(file: ConfigFile, edit: Callable[[str], str]) -> None:
    new = False
    try:
        text = read_config_text(file)
    except (FileNotFoundError, NotADirectoryError):
        new = True
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise RookeryError(
            "invalid-input", f"{file.path} cannot be read: {describe_error(error)}", "check the file first"
        ) from error
    try:
        new_text = edit(text)
    except JsoncError as error:
        message = f"{file.path}:{error.line}: {error.message}"
        raise RookeryError("invalid-input", message, "fix the file first; it was not changed") from None
    mode = _USER_FILE_MODE if file.root is None else _PROJECT_FILE_MODE
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file.path, new_text.encode(), mode=mode if new else None)
    except UnicodeEncodeError:
        raise RookeryError("invalid-input", "text that is not valid UTF-8 cannot be written") from None
    except OSError as error:
        failure = RookeryError("invalid-input", f"{file.path} cannot be written: {error.strerror}")
        raise explain_os_error(error, file.path) or failure from error


def choose_file(directory: Path | None, place: ConfigLevel, dialect: Dialect) -> ConfigFile:
    """Return the file of a program at a level: the one that exists, or else the first one that is read."""
    candidates = [file for file in list_config_files(directory) if file.place == place and file.dialect == dialect]
    if not candidates:
        message = f"Rookery reads no file of {dialect} for all projects" if place == "user" else "no project is given"
        raise RookeryError("invalid-input", message, "choose the file of a project, or name the file itself")
    return next((file for file in candidates if file.path.exists()), candidates[0])


def find_file(directory: Path | None, path: Path) -> ConfigFile:
    """Return the file at a path, which need not be one that is read for this directory."""
    path = path.parent.resolve() / path.name
    listed = next((file for file in list_config_files(directory) if file.path == path), None)
    return listed or ConfigFile(
        path, _DIALECT_BY_NAME.get(path.name) or _DIALECT_BY_FOLDER.get(path.parent.name) or "rookery"
    )


def write_server(file: ConfigFile, name: str, config: Mapping[str, Any], *, force: bool) -> None:
    """Check an entry and write it into a file. An existing entry is replaced only with `force`."""
    definition = define_server(name, config, str(file.path))
    existing = load_file(file, {}).parsed
    if not force and name in existing.definitions.keys() | existing.overrides.keys() | existing.failed:
        raise RookeryError("server-exists", f"server {name!r} already exists in {file.path}", "replace it with --force")
    add_entry(file, name, convert_entry(config, definition, file.dialect), replace=force)


def convert_entry(config: Mapping[str, Any], definition: Definition, dialect: Dialect) -> dict[str, Any]:
    """Return the entry in the form of a dialect. Rookery's own dialect takes every form, and keeps it."""
    if dialect == "rookery":
        return dict(config)
    entry = format_entry(
        dialect,
        command=definition.command,
        environment=definition.environment,
        cwd=definition.cwd,
        url=definition.url,
        headers=definition.headers,
        transport=definition.transport,
    )
    return entry | {key: value for key, value in config.items() if key not in _COMMON_KEYS}


def remove_server(directory: Path | None, definition: Definition) -> None:
    """Remove a server from the file that defines it."""
    remove_entry(find_file(directory, Path(definition.source.path)), definition.name)
