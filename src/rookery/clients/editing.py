"""The text of a client's file with Rookery in it; every other character stays as a person wrote it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import tomlkit
import tomlkit.exceptions

from rookery.clients.editing_toml import in_toml
from rookery.clients.entries import OURS, Entry
from rookery.clients.known import Client
from rookery.system.errors import RookeryError
from rookery.upstreams.jsonc import BOM, Array, JsoncError, Object, line_of, parse, plain
from rookery.upstreams.splice import insert_member, remove_member, replace_value

_MEND = "mend the file, which was not touched, or add by hand what `rookery client print` shows"


def snippet(client: Client, name: str, entry: Entry) -> str:
    """A file that has nothing else in it."""
    return with_entry(client, "", name, entry)


def with_entry(client: Client, text: str, name: str, entry: Entry) -> str:
    """RookeryError, with the line, for a text that cannot be read or has something else in that place."""
    try:
        return in_toml(text, client.key, name, entry) if client.id == "codex" else _in_json(text, client, name, entry)
    except JsoncError as error:
        raise RookeryError("invalid-input", f"line {error.line}: {error.message}", _MEND) from None
    except tomlkit.exceptions.TOMLKitError as error:
        raise RookeryError("invalid-input", str(error), _MEND) from None


def entries_in(client: Client, text: str) -> Mapping[str, Any]:
    """The servers of a file, by name; raises as `with_entry` does."""
    try:
        found: Any = tomlkit.parse(text).unwrap() if client.id == "codex" else plain(parse(_filled(text)))
    except JsoncError as error:
        raise RookeryError("invalid-input", f"line {error.line}: {error.message}", _MEND) from None
    except tomlkit.exceptions.TOMLKitError as error:
        raise RookeryError("invalid-input", str(error), _MEND) from None
    servers: Any = cast("dict[str, Any]", found).get(client.key) if isinstance(found, dict) else None
    return cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}


# ---- JSON with comments


def _filled(text: str) -> str:
    return text if text.strip(BOM + " \t\r\n") else text + "{}\n"


def _in_json(text: str, client: Client, name: str, entry: Entry) -> str:
    text = _filled(text)
    for asked in entry.inputs:
        text = _with_input(text, asked)
    text = _with_object(text, (client.key,))
    servers = _at(text, (client.key,))
    found = servers.get(name)
    if found is None:
        return insert_member(text, _at(text, ()), servers, name, entry.value)
    if not isinstance(found.value, Object):
        return replace_value(text, _at(text, ()), found, entry.value)
    for key in [member.name for member in found.value.members if member.name in OURS - set(entry.value)]:
        ours = _at(text, (client.key, name))
        text = remove_member(text, ours, next(one for one in ours.members if one.name == key))
    for key, value in entry.value.items():
        ours = _at(text, (client.key, name))
        there = ours.get(key)
        if there is None:
            text = insert_member(text, _at(text, ()), ours, key, value)
        elif plain(there.value) != value and key in OURS:
            text = replace_value(text, _at(text, ()), there, value)
    return text


def _with_object(text: str, way: tuple[str, ...]) -> str:
    outer = _at(text, way[:-1])
    return text if outer.get(way[-1]) is not None else insert_member(text, _at(text, ()), outer, way[-1], {})


def _at(text: str, way: tuple[str, ...]) -> Object:
    node, told = parse(text), "expected an object"
    for name in way:
        member = node.get(name) if isinstance(node, Object) else None
        node, told = (member.value if member is not None else node), f'"{name}" is to be an object'
    if not isinstance(node, Object):
        raise JsoncError(told, line_of(text, node.start))
    return node


def _with_input(text: str, asked: Mapping[str, Any]) -> str:
    root = _at(text, ())
    there = root.get("inputs")
    if there is None:
        return insert_member(text, root, root, "inputs", [dict(asked)])
    if not isinstance(there.value, Array):
        raise JsoncError('"inputs" is to be a list', line_of(text, there.start))
    known = plain(there.value)
    if any(one.get("id") == asked["id"] for one in _objects(known)):
        return text
    # Before the bracket, where a comma may stand already, and comments after it.
    if not there.value.items:
        return replace_value(text, root, there, [dict(asked)])
    last = there.value.items[-1].end
    return f"{text[:last]}, {json.dumps(dict(asked), ensure_ascii=False)}{text[last:]}"


def _objects(values: list[Any]) -> Iterator[dict[str, Any]]:
    return (cast("dict[str, Any]", one) for one in values if isinstance(one, dict))
