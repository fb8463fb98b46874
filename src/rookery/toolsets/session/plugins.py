"""The tools about plugins: what there is, what it tells of itself, and what it can be told to do."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rookery.plugins.records import PluginShown
from rookery.plugins.service import Plugins
from rookery.toolsets.session_shapes import NoInput
from rookery.toolsets.toolset import Tool
from rookery.wire.provider import Call

_PLUGIN = "Name of the plugin; list_plugins tells what there is"


class GetPluginState(msgspec.Struct):
    pluginName: Annotated[str | None, Meta(description=f"{_PLUGIN}; default: all of them")] = None
    stateKey: Annotated[str | None, Meta(description="One key of its state; default: all of it")] = None
    workspace: Annotated[
        str | None, Meta(description="Path of the workspace, of a state that several workspaces have in files")
    ] = None


class TriggerPluginAction(msgspec.Struct):
    pluginName: Annotated[str | None, Meta(description=_PLUGIN)] = None
    action: Annotated[str | None, Meta(description="One of its actions")] = None
    args: Annotated[dict[str, Any] | None, Meta(description="Arguments of the action")] = None


def plugin_tools(plugins: Plugins, scope: Path | None, outsider: Callable[[], Awaitable[None]]) -> list[Tool]:
    """For whoever sees `scope` only, or for the owner; `outsider` raises where the caller was started by Rookery."""

    async def listed(call: Call, given: NoInput) -> Sequence[PluginShown]:
        return await plugins.list(scope)

    async def state(call: Call, given: GetPluginState) -> Any:
        if given.pluginName is None:
            return await plugins.states(given.stateKey, scope)
        return await plugins.state(given.pluginName, given.stateKey, scope, given.workspace)

    async def trigger(call: Call, given: TriggerPluginAction) -> Any:
        return await plugins.trigger(given.pluginName, given.action, given.args or {}, scope, outsider)

    return [
        Tool(
            "list_plugins",
            "List loaded plugins, Rookery's and OpenCode's own, with hooks, actions, keys of their state and errors; "
            "also those that could not be loaded or wait for approval.",
            listed,
            takes=NoInput,
            gives=list[PluginShown],
            read_only=True,
        ),
        Tool(
            "get_plugin_state",
            "Get plugin state (e.g., boulder iteration): of one plugin or of all, whole or one key of it; also from "
            "files that OpenCode's plugins keep.",
            state,
            takes=GetPluginState,
            gives=dict[str, Any],
            read_only=True,
        ),
        Tool(
            "trigger_plugin_action",
            "Trigger plugin-specific action, and answer its result. list_plugins tells the actions and what they take.",
            trigger,
            takes=TriggerPluginAction,
            gives=dict[str, Any],
            destructive=True,
        ),
    ]
