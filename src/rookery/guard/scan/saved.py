"""Read definitions from a file: a saved `tools/list` result, or JSON lines with one definition each."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from rookery.guard.scan.definition import Definition, Kind
from rookery.system.errors import RookeryError

_MOST_BYTES = 200_000_000
# The lists of a saved result, and the kind of what is in them.
_LISTS: Mapping[str, Kind] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "resource",
    "skills": "skill",
}
_KINDS: Mapping[str, Kind] = {
    "tool": "tool",
    "prompt": "prompt",
    "resource": "resource",
    "resourceTemplate": "resource",
    "skill": "skill",
    "instructions": "instructions",
}


def read_saved(path: Path) -> list[Definition]:
    """Return the definitions in a file; raise `RookeryError` if it cannot be read or holds none."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RookeryError(
            "invalid-input", f"{path} cannot be read: {error.strerror}", "name a readable file"
        ) from None
    if len(data) > _MOST_BYTES:
        raise RookeryError("invalid-input", f"{path} is larger than {_MOST_BYTES:,} bytes", "split it") from None
    # Bytes that are not UTF-8 become lone surrogates, which the scanner reports.
    text = data.decode("utf-8-sig", "surrogateescape")
    try:
        return parse_saved(text, path.stem)
    except ValueError as error:
        raise RookeryError("invalid-input", f"{path}: {error}", _FORMATS) from None
    except RecursionError:
        raise RookeryError("invalid-input", f"{path} is nested too deeply", _FORMATS) from None


_FORMATS = 'save a tools/list result, or one {"id", "server", "tool": {...}} a line'


def parse_saved(text: str, server: str) -> list[Definition]:
    """Return the definitions in a text; `server` names the server where the text does not.

    A line or an item that is no definition is returned as one that is unread. If all are, this raises `ValueError`.
    """
    try:
        whole = json.loads(text)
    except ValueError:
        definitions = list(_read_lines(text, server))
    else:
        definitions = list(_read_whole(whole, server))
    if all(definition.unread for definition in definitions):
        raise ValueError(definitions[0].unread if definitions else "there is no definition in it")
    return definitions


def _read_whole(value: Any, server: str) -> Iterator[Definition]:
    """Read a result of a listing, also inside of its JSON-RPC response; or a list of definitions; or one."""
    if isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value), 1):
            yield from _try_row(item, server, str(number))
        return
    if not isinstance(value, dict):
        raise ValueError("it holds no object")
    content = cast("dict[str, Any]", value)
    result = content.get("result")
    if isinstance(result, dict):
        content = cast("dict[str, Any]", result)
    listed = [key for key in _LISTS if isinstance(content.get(key), list)]
    if not listed and not isinstance(content.get("instructions"), str):
        yield from _read_row(content, server, "1")
        return
    about = content.get("serverInfo")
    if isinstance(about, dict):
        server = str(cast("dict[str, Any]", about).get("name", server))
    if listed and isinstance(content.get("instructions"), str):
        yield Definition("instructions", server, "instructions", content["instructions"], "instructions")
    elif not listed:
        yield from _read_row({**content, "server": server}, server, "1")
    for key in listed:
        for number, item in enumerate(content[key], 1):
            name = _name(item) or str(number)
            yield Definition(_LISTS[key], server, name, item, name)


def _read_lines(text: str, server: str) -> Iterator[Definition]:
    # Not `splitlines`: a string in JSON may have other line breaks, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            yield _make_unread(server, str(number), f"line {number} is no JSON: {error.msg}")
        except ValueError:
            yield _make_unread(server, str(number), f"line {number} has a number that is too long")
        except RecursionError:
            yield _make_unread(server, str(number), f"line {number} is nested too deeply")
        else:
            yield from _try_row(row, server, str(number))


def _try_row(row: Any, server: str, number: str) -> Iterator[Definition]:
    try:
        yield from _read_row(row, server, number)
    except ValueError as error:
        id_ = str(cast("dict[str, Any]", row).get("id", number)) if isinstance(row, dict) else number
        yield _make_unread(server, id_, str(error))


def _make_unread(server: str, id_: str, reason: str) -> Definition:
    return Definition("tool", server, id_, None, id_, unread=reason)


def _read_row(row: Any, server: str, number: str) -> Iterator[Definition]:
    """Read one line: an object with one definition under the name of its kind, or a tool by itself."""
    if not isinstance(row, dict):
        raise ValueError(f"definition {number} is no object")
    fields = cast("dict[str, Any]", row)
    id_ = str(fields.get("id", number))
    owner = str(fields.get("server", server))
    kinds = [key for key in _KINDS if key in fields and isinstance(fields[key], str if key == "instructions" else dict)]
    if not kinds:
        if not isinstance(fields.get("name"), str):
            raise ValueError(f"definition {number} holds none of {', '.join(_KINDS)}")
        yield Definition("tool", owner, fields["name"], fields, id_)
        return
    for key in kinds:
        value = fields[key]
        yield Definition(_KINDS[key], owner, _name(value) or key, value, id_)


def _name(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    fields = cast("dict[str, Any]", value)
    return next((str(fields[key]) for key in ("name", "uriTemplate", "uri") if isinstance(fields.get(key), str)), "")
