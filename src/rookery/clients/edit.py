"""Adds Rookery's entry to the text of a client's config file, in JSON or TOML.

All other characters stay as the user wrote them.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import tomlkit
import tomlkit.exceptions

from rookery.clients.entry import CONNECTION_KEYS, Entry
from rookery.clients.registry import Client
from rookery.system.errors import RookeryError
from rookery.upstreams.config.jsonc import (
    BOM,
    Array,
    JsoncError,
    Object,
    find_line,
    insert_member,
    parse_jsonc,
    remove_member,
    replace_value,
    to_python,
)

_REMEDY = "fix the file, which was not changed, or add the output of `rookery client print` by hand"


def add_entry_toml(text: str, key: str, name: str, entry: Entry) -> str:
    """Return TOML text with the entry added to the table `key`.

    TOML has many ways to write a table, and tomlkit cannot edit all of them: if the result does not parse to the
    expected content, RookeryError is raised.
    """
    document: Any = tomlkit.parse(text)
    wanted: dict[str, Any] = document.unwrap()
    servers: Any = wanted.setdefault(key, {})
    if not isinstance(servers, dict):
        raise RookeryError("invalid-input", f"{key} must be a table", "fix the file first; it was not changed")
    entries = cast("dict[str, Any]", servers)
    old = entries.get(name)
    entries[name] = merged = _merge_entry(cast("dict[str, Any]", old) if isinstance(old, dict) else {}, entry)
    try:
        if key not in document:
            document[key] = tomlkit.table(is_super_table=True)
        if isinstance(old, dict):
            _update_table(document[key][name], merged)
        else:
            _add_table(document[key], name, merged)
        changed = tomlkit.dumps(document)
        is_correct = tomllib.loads(changed) == wanted
    except (ValueError, TypeError, KeyError):
        changed = ""
        is_correct = False
    if not is_correct:
        message = f"{key} is written in a form that cannot be edited safely"
        raise RookeryError("invalid-input", message, "add it by hand: rookery client print codex")
    return changed.removesuffix("\n") if changed.endswith("\n\n") and not text.endswith("\n\n") else changed


def _merge_entry(old: dict[str, Any], entry: Entry) -> dict[str, Any]:
    """Return the entry with those members of the old one that do not say how to connect."""
    kept = {key: value for key, value in old.items() if key not in CONNECTION_KEYS}
    return {**entry.value, **kept}


def _add_table(servers: Any, name: str, value: dict[str, Any]) -> None:
    is_table = hasattr(servers, "is_super_table")
    table: Any = tomlkit.table() if is_table else tomlkit.inline_table()
    table.update(value)
    if is_table:
        table.add(tomlkit.nl())
    servers[name] = table


def _update_table(table: Any, value: dict[str, Any]) -> None:
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, member in value.items():
        if key not in table or table[key] != member:
            table[key] = member


def render_snippet(client: Client, name: str, entry: Entry) -> str:
    """Return the text of a file that contains only the entry."""
    return add_entry(client, "", name, entry)


def add_entry(client: Client, text: str, name: str, entry: Entry) -> str:
    """Return the text with the entry added.

    Raise RookeryError, with the line, if the text cannot be parsed or has a value of another type at that key.
    """
    try:
        return (
            add_entry_toml(text, client.key, name, entry)
            if client.id == "codex"
            else _add_entry_json(text, client, name, entry)
        )
    except JsoncError as error:
        raise RookeryError("invalid-input", f"line {error.line}: {error.message}", _REMEDY) from None
    except tomlkit.exceptions.TOMLKitError as error:
        raise RookeryError("invalid-input", str(error), _REMEDY) from None


def list_entries(client: Client, text: str) -> Mapping[str, Any]:
    """Return the servers of a file by name. Raise RookeryError if the text cannot be parsed."""
    try:
        content: Any = (
            tomlkit.parse(text).unwrap() if client.id == "codex" else to_python(parse_jsonc(_ensure_object(text)))
        )
    except JsoncError as error:
        raise RookeryError("invalid-input", f"line {error.line}: {error.message}", _REMEDY) from None
    except tomlkit.exceptions.TOMLKitError as error:
        raise RookeryError("invalid-input", str(error), _REMEDY) from None
    servers: Any = cast("dict[str, Any]", content).get(client.key) if isinstance(content, dict) else None
    return cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}


# JSON with comments


def _ensure_object(text: str) -> str:
    """Return the text, with an empty object if it has no content."""
    return text if text.strip(BOM + " \t\r\n") else text + "{}\n"


def _add_entry_json(text: str, client: Client, name: str, entry: Entry) -> str:
    """Return JSON text with the entry and its inputs added. Members of an older entry that do not connect stay."""
    text = _ensure_object(text)
    for input_ in entry.inputs:
        text = _add_input(text, input_)
    text = _ensure_member(text, (client.key,))
    servers = _find_object(text, (client.key,))
    existing = servers.get(name)
    if existing is None:
        return insert_member(text, _find_object(text, ()), servers, name, entry.value)
    if not isinstance(existing.value, Object):
        return replace_value(text, _find_object(text, ()), existing, entry.value)
    for key in [member.name for member in existing.value.members if member.name in CONNECTION_KEYS - set(entry.value)]:
        server = _find_object(text, (client.key, name))
        text = remove_member(text, server, next(member for member in server.members if member.name == key))
    for key, value in entry.value.items():
        server = _find_object(text, (client.key, name))
        current = server.get(key)
        if current is None:
            text = insert_member(text, _find_object(text, ()), server, key, value)
        elif to_python(current.value) != value and key in CONNECTION_KEYS:
            text = replace_value(text, _find_object(text, ()), current, value)
    return text


def _ensure_member(text: str, path: tuple[str, ...]) -> str:
    """Return the text with an empty object at this key, if there is none yet."""
    outer = _find_object(text, path[:-1])
    return text if outer.get(path[-1]) is not None else insert_member(text, _find_object(text, ()), outer, path[-1], {})


def _find_object(text: str, path: tuple[str, ...]) -> Object:
    """Return the object at this key. Raise JsoncError if the value there is not an object."""
    node = parse_jsonc(text)
    message = "expected an object"
    for name in path:
        member = node.get(name) if isinstance(node, Object) else None
        node = member.value if member is not None else node
        message = f'"{name}" must be an object'
    if not isinstance(node, Object):
        raise JsoncError(message, find_line(text, node.start))
    return node


def _add_input(text: str, input_: Mapping[str, Any]) -> str:
    """Return the text with an input of VS Code added to the list `inputs`, unless one with its id is there."""
    root = _find_object(text, ())
    member = root.get("inputs")
    if member is None:
        return insert_member(text, root, root, "inputs", [dict(input_)])
    if not isinstance(member.value, Array):
        raise JsoncError('"inputs" must be a list', find_line(text, member.start))
    inputs = to_python(member.value)
    if any(item.get("id") == input_["id"] for item in _objects(inputs)):
        return text
    # Insert after the last item: a comma and comments may be between it and the closing bracket.
    if not member.value.items:
        return replace_value(text, root, member, [dict(input_)])
    last = member.value.items[-1].end
    return f"{text[:last]}, {json.dumps(dict(input_), ensure_ascii=False)}{text[last:]}"


def _objects(values: list[Any]) -> Iterator[dict[str, Any]]:
    return (cast("dict[str, Any]", value) for value in values if isinstance(value, dict))
