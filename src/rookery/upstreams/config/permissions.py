"""What `mcp.json` says of tools: `tools` chooses which are shown, `permission` which may be called."""

from typing import Any, cast

import msgspec

from rookery.upstreams.definition import Place
from rookery.upstreams.jsonc import Object, line_of, plain


class Written(msgspec.Struct, frozen=True):
    """`permission` as it stands in a file, for the policy to read."""

    permission: Any
    source: str
    line: int


class Permissions(msgspec.Struct, frozen=True):
    """`shown` are wildcards with whether what they match is shown; the last that fits counts."""

    user: tuple[Written, ...] = ()
    project: tuple[Written, ...] = ()
    shown: tuple[tuple[str, bool], ...] = ()

    def after(self, higher: "Permissions") -> "Permissions":
        """Together with those of a higher source, whose rules come later and so win."""
        return Permissions(self.user + higher.user, self.project + higher.project, self.shown + higher.shown)


def permissions_in(root: Object, text: str, path: str, place: Place) -> Permissions:
    """What one file says. A project may hide tools, but not show what its user hides."""
    permission, tools = root.get("permission"), root.get("tools")
    written: tuple[Written, ...] = ()
    if permission is not None:
        written = (Written(plain(permission.value), path, line_of(text, permission.start)),)
    given: Any = plain(tools.value) if tools is not None else None
    pairs = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    shown = tuple((one, bool(wanted)) for one, wanted in pairs.items() if place == "user" or not wanted)
    return Permissions(written, (), shown) if place == "user" else Permissions((), written, shown)
