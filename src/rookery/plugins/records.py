"""Plugins as every interface shows them."""

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from rookery.sessions.records import ResponseModel

PluginStatus = Literal["loaded", "needs_approval", "failed", "unknown"]


class HookShown(ResponseModel, frozen=True, kw_only=True):
    """A hook. `off` is why it is no longer called. `dropped` counts events that arrived while the queue was full."""

    name: str
    calls: int = 0
    failures: int = 0
    dropped: int = 0
    off: str | None = None


class ActionShown(ResponseModel, frozen=True, kw_only=True):
    """An action. `args` is the JSON Schema of its arguments, if declared. Only the owner may use `owner_only` ones."""

    name: str
    description: str = ""
    owner_only: bool = True
    args: Mapping[str, Any] | None = None


class PluginShown(ResponseModel, frozen=True, kw_only=True):
    """A plugin. `kind` says whose it is; `origin` is where it comes from: built in, a package, or a file.

    For OpenCode's plugins, `unknown` means that OpenCode names the plugin and does not report whether it was loaded.
    `workspace` is the folder of the workspace that contains it, `project` the id of the only project whose events it
    receives; null means all. `state` has the keys that `get_plugin_state` accepts. `error` is the last error, at
    `error_at`.
    """

    name: str
    kind: Literal["rookery", "opencode"]
    origin: str
    status: PluginStatus
    version: str | None = None
    description: str = ""
    project: str | None = None
    workspace: str | None = None
    hooks: tuple[HookShown, ...] = ()
    actions: tuple[ActionShown, ...] = ()
    state: tuple[str, ...] = ()
    error: str | None = None
    error_at: float | None = None
    failures: int = 0
    note: str | None = None


class PluginState(ResponseModel, frozen=True, kw_only=True):
    """The state of one plugin. `workspace` is the folder of the workspace with the state file, if it is from a file."""

    plugin: str
    state: Any = None
    project: str | None = None
    workspace: str | None = None
    error: str | None = None


class PluginActionResult(ResponseModel, frozen=True, kw_only=True):
    """What an action of a plugin returned."""

    result: Any = None


def as_table(state: object) -> dict[str, Any]:
    """Return a state as a table; other values, which a file may hold, become an empty table."""
    return cast("dict[str, Any]", state) if isinstance(state, dict) else {}


class PluginLimits(msgspec.Struct, frozen=True):
    """Limits for plugins. `seconds` is the time limit of calls, and `event_seconds` that of events and actions.

    After `failures` in a row a hook is switched off; `queue` events may wait for a plugin.
    """

    seconds: float = 5.0
    event_seconds: float = 60.0
    queue: int = 1000
    failures: int = 5
