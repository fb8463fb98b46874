"""What the query of a request asks of a view."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from rookery.gateway.names import Style
from rookery.system.errors import RookeryError

_WAYS = {
    "prefix": ("always", "conflict", "never"),
    "names": ("rookery", "opencode"),
    "mode": ("list", "search"),
}


@dataclass(frozen=True)
class Asked:
    """What a query asks for; None where it says nothing."""

    style: Style = field(default_factory=Style)
    toolsets: frozenset[str] | None = None
    search: bool | None = None


def asked_by(query: bytes) -> Asked:
    """`?prefix=` and `?names=` choose how tools are named, `?toolsets=` narrows what of ours is shown.

    `?mode=search` has tools looked for instead of listed.
    """
    if not query:
        return Asked()
    # Without a value it narrows to nothing.
    given = {key: values[-1] for key, values in parse_qs(query.decode("latin-1"), keep_blank_values=True).items()}
    for key, allowed in _WAYS.items():
        if key in given and given[key] not in allowed:
            raise RookeryError("invalid-input", f"?{key}= is one of {', '.join(allowed)}, not {given[key]!r}")
    prefix: Any = given.get("prefix", "always")
    style = Style(prefix, "_" if given.get("names") == "opencode" else "__")
    toolsets = frozenset(given["toolsets"].split(",")) if "toolsets" in given else None
    return Asked(style, toolsets, given["mode"] == "search" if "mode" in given else None)
