"""What every face answers of plugins."""

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from rookery.sessions.records import Answer

Status = Literal["loaded", "needs_approval", "failed", "unknown"]


class HookShown(Answer, frozen=True, kw_only=True):
    """`off` tells why it is called no longer. `dropped` events came while too many others waited."""

    name: str
    calls: int = 0
    failures: int = 0
    dropped: int = 0
    off: str | None = None


class ActionShown(Answer, frozen=True, kw_only=True):
    """`args` is the JSON Schema of what it takes, where it says so; `owner_only` ones are for the owner."""

    name: str
    description: str = ""
    owner_only: bool = True
    args: Mapping[str, Any] | None = None


class PluginShown(Answer, frozen=True, kw_only=True):
    """`kind` tells whose it is; `origin` where it comes from: built in, a package, or a file.

    Of OpenCode's, `unknown` means that OpenCode names it and does not tell whether it could be loaded. `workspace` is
    the folder of the workspace that it was found in, `project` the id of the only project that it is told of; null is
    everywhere. `state` are the keys that `get_plugin_state` can answer. `error` is the last one, at `error_at`.
    """

    name: str
    kind: Literal["rookery", "opencode"]
    origin: str
    status: Status
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


class StateShown(Answer, frozen=True, kw_only=True):
    """What one plugin tells of itself. `workspace` is the folder that the file with it lies in, where it is one."""

    plugin: str
    state: Any = None
    project: str | None = None
    workspace: str | None = None
    error: str | None = None


def table(state: object) -> dict[str, Any]:
    """A state by its keys; a file may hold something else, which has none."""
    return cast("dict[str, Any]", state) if isinstance(state, dict) else {}


class Limits(msgspec.Struct, frozen=True):
    """`seconds` is for what somebody waits for, `event_seconds` for what nobody does.

    After so many `failures` in a row a hook is switched off; `queue` events may wait for a plugin.
    """

    seconds: float = 5.0
    event_seconds: float = 60.0
    queue: int = 1000
    failures: int = 5
