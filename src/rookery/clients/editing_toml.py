"""The text of a TOML file with Rookery in it, comments and order kept."""

import tomllib
from typing import Any, cast

import tomlkit

from rookery.clients.entries import OURS, Entry
from rookery.system.errors import RookeryError


def in_toml(text: str, key: str, name: str, entry: Entry) -> str:
    """TOML has many ways to write a table, and no editor masters all: what does not come out as meant is refused."""
    document: Any = tomlkit.parse(text)
    wanted: dict[str, Any] = document.unwrap()
    servers: Any = wanted.setdefault(key, {})
    if not isinstance(servers, dict):
        raise RookeryError("invalid-input", f"{key} is to be a table", "mend the file first; it was not touched")
    known = cast("dict[str, Any]", servers)
    old = known.get(name)
    known[name] = merged = _merged(cast("dict[str, Any]", old) if isinstance(old, dict) else {}, entry)
    try:
        if key not in document:
            document[key] = tomlkit.table(is_super_table=True)
        if isinstance(old, dict):
            _change(document[key][name], merged)
        else:
            _add(document[key], name, merged)
        changed = tomlkit.dumps(document)
        right = tomllib.loads(changed) == wanted
    except (ValueError, TypeError, KeyError):
        changed, right = "", False
    if not right:
        told = f"{key} is written in a way that cannot be changed without a risk to the rest"
        raise RookeryError("invalid-input", told, "add it by hand: rookery client print codex")
    return changed.removesuffix("\n") if changed.endswith("\n\n") and not text.endswith("\n\n") else changed


def _merged(old: dict[str, Any], entry: Entry) -> dict[str, Any]:
    kept = {key: value for key, value in old.items() if key not in OURS}
    return {**entry.value, **kept}


def _add(servers: Any, name: str, value: dict[str, Any]) -> None:
    plain = hasattr(servers, "is_super_table")
    made: Any = tomlkit.table() if plain else tomlkit.inline_table()
    made.update(value)
    if plain:
        made.add(tomlkit.nl())
    servers[name] = made


def _change(ours: Any, value: dict[str, Any]) -> None:
    for key in [key for key in ours if key not in value]:
        del ours[key]
    for key, one in value.items():
        if key not in ours or ours[key] != one:
            ours[key] = one
