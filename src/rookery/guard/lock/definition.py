"""The definition of a server as `mcp.lock` has it: facts without secrets, in the same form for all dialects.

References to variables and files stay as they are written. Values that may be secrets are hidden: of these the file
has one hash, which takes long to compute, so that a change is noticed and guessing is slow. Values of the user's own
files are personal, and differ between the people who share the file, so they are not covered.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rookery.guard.lock.file import FactKey, ServerLevel
from rookery.guard.server import definition_content, read_definition

# Switches, and kinds that follow from the rest.
_OMITTED_OPTIONS = frozenset({"enabled", "disabled"})
_PLAIN_TYPES = frozenset({"local", "stdio", "remote"})
_DEFAULT = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*):-[^}]*\}")
# 16 MB and some tens of milliseconds for each guess.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1, "dklen": 32}


def list_facts(
    name: str, kind: str, level: ServerLevel, written: Mapping[str, Any], redacted: Mapping[str, Any]
) -> dict[FactKey, Any]:
    """Return the facts of a definition. `redacted` is `written` with its secrets hidden."""
    shown = cast(Mapping[str, Any], _hide_defaults(redacted))
    parts = read_definition(definition_content(kind, shown))
    facts: dict[FactKey, Any] = {}
    if parts.command and any(parts.command):
        facts[FactKey("command")] = parts.command
    if parts.cwd:
        facts[FactKey("cwd")] = parts.cwd
    if parts.url:
        facts[FactKey("url")] = parts.url
    facts |= {FactKey("env", variable): value for variable, value in parts.environment.items()}
    facts |= {FactKey("header", header): value for header, value in parts.headers.items()}
    facts |= {FactKey("option", option): value for option, value in parts.other.items() if _is_relevant(option, value)}
    hidden = list(_list_hidden(written, shown))
    if hidden and level == "project":
        facts[FactKey("values")] = _hash_values(name, json.dumps(hidden, sort_keys=True, separators=(",", ":")))
    return facts


def _hide_defaults(value: Any) -> Any:
    """Return a value whose references are without defaults, such as the secret in `${TOKEN:-secret}`."""
    if isinstance(value, Mapping):
        return {key: _hide_defaults(member) for key, member in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list):
        return [_hide_defaults(item) for item in cast(list[Any], value)]
    return _DEFAULT.sub(r"\1:-(hidden)}", value) if isinstance(value, str) else value


def _is_relevant(option: str, value: Any) -> bool:
    return option not in _OMITTED_OPTIONS and not (option == "type" and value in _PLAIN_TYPES)


def _list_hidden(written: Any, redacted: Any) -> Iterator[Any]:
    """Yield the values that were hidden, in the order of their keys."""
    if isinstance(written, dict) and isinstance(redacted, dict):
        values = cast(dict[str, Any], written)
        shown = cast(dict[str, Any], redacted)
        for key in sorted(values):
            yield from _list_hidden(values[key], shown.get(key))
    elif isinstance(written, list) and isinstance(redacted, list):
        for item, shown_item in zip(cast(list[Any], written), cast(list[Any], redacted), strict=False):
            yield from _list_hidden(item, shown_item)
    elif written != redacted:
        yield written


@functools.lru_cache(maxsize=64)
def _hash_values(name: str, values: str) -> str:
    """Return the hash of hidden values. It is kept, because each listing of a server compares it."""
    return "scrypt:" + hashlib.scrypt(values.encode(), salt=f"rookery mcp.lock {name}".encode(), **_SCRYPT).hex()
