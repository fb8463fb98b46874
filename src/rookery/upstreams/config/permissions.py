"""Tool rules in `mcp.json`: `tools` selects which are shown, `permission` which may be called."""

from typing import Any, cast

import msgspec

from rookery.upstreams.config.definition import ConfigLevel
from rookery.upstreams.config.jsonc import Object, find_line, to_python


class PermissionEntry(msgspec.Struct, frozen=True):
    """The `permission` setting of one file, which the policy parses."""

    permission: Any
    source: str
    line: int


class Permissions(msgspec.Struct, frozen=True):
    """The rules of files. `shown` are wildcards with whether matching tools are shown; the last match wins."""

    user: tuple[PermissionEntry, ...] = ()
    project: tuple[PermissionEntry, ...] = ()
    shown: tuple[tuple[str, bool], ...] = ()

    def after(self, higher: "Permissions") -> "Permissions":
        """Return these rules together with those of a higher source, which come later and so win."""
        return Permissions(self.user + higher.user, self.project + higher.project, self.shown + higher.shown)


def read_permissions(root: Object, text: str, path: str, place: ConfigLevel) -> Permissions:
    """Return the rules of one file. A project may hide tools, but not show tools that its user hides."""
    permission = root.get("permission")
    tools = root.get("tools")
    entries: tuple[PermissionEntry, ...] = ()
    if permission is not None:
        entries = (PermissionEntry(to_python(permission.value), path, find_line(text, permission.start)),)
    value: Any = to_python(tools.value) if tools is not None else None
    pairs = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    filters = tuple((wildcard, bool(visible)) for wildcard, visible in pairs.items() if place == "user" or not visible)
    return Permissions(entries, (), filters) if place == "user" else Permissions((), entries, filters)
