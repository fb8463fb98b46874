"""The tools for plugins: list them, read their state, trigger their actions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rookery.plugins.records import PluginShown
from rookery.plugins.service import Plugins
from rookery.toolsets.session.inputs import NoInput
from rookery.toolsets.toolset import Tool
from rookery.wire.protocol.provider import Call

_PLUGIN = "Name of the plugin, as returned by list_plugins"


class GetPluginState(msgspec.Struct):
    pluginName: Annotated[str | None, Meta(description=f"{_PLUGIN}; default: all of them")] = None
    stateKey: Annotated[str | None, Meta(description="One key of its state; default: all of it")] = None
    workspace: Annotated[
        str | None, Meta(description="Path of the workspace, if several workspaces have a state file of this plugin")
    ] = None


class TriggerPluginAction(msgspec.Struct):
    pluginName: Annotated[str | None, Meta(description=_PLUGIN)] = None
    action: Annotated[str | None, Meta(description="One of its actions")] = None
    args: Annotated[dict[str, Any] | None, Meta(description="Arguments of the action")] = None


def plugin_tools(plugins: Plugins, scope: Path | None) -> list[Tool]:
    """Return the tools for clients that may only access the workspace `scope`, or for the owner."""

    async def list_plugins(call: Call, arguments: NoInput) -> Sequence[PluginShown]:
        return await plugins.list(scope)

    async def state(call: Call, arguments: GetPluginState) -> Any:
        if arguments.pluginName is None:
            return await plugins.states(arguments.stateKey, scope)
        return await plugins.state(arguments.pluginName, arguments.stateKey, scope, arguments.workspace)

    async def trigger(call: Call, arguments: TriggerPluginAction) -> Any:
        return await plugins.trigger(arguments.pluginName, arguments.action, arguments.args or {}, scope)

    return [
        Tool(
            "list_plugins",
            "List loaded plugins, Rookery's and OpenCode's own, with hooks, actions, keys of their state and errors; "
            "also those that could not be loaded or wait for approval.",
            list_plugins,
            input_type=NoInput,
            output_type=list[PluginShown],
            read_only=True,
        ),
        Tool(
            "get_plugin_state",
            "Get plugin state (e.g., boulder iteration): of one plugin or of all, whole or one key of it; also from "
            "files that OpenCode's plugins keep.",
            state,
            input_type=GetPluginState,
            output_type=dict[str, Any],
            read_only=True,
        ),
        Tool(
            "trigger_plugin_action",
            "Trigger plugin-specific action and return its result. list_plugins returns the actions and their inputs.",
            trigger,
            input_type=TriggerPluginAction,
            output_type=dict[str, Any],
            destructive=True,
        ),
    ]
