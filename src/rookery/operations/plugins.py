"""The operations on plugins: list them, read their state, trigger their actions."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from rookery.operations.operation import Caller, McpTool, NoParameters, Parameters, RestRoute, operation
from rookery.plugins.records import PluginActionResult, PluginShown
from rookery.plugins.service import Plugins

_PLUGIN = "Name of the plugin, as returned by list_plugins"
_NAME = {"name": "pluginName"}


class GetPluginState(Parameters):
    name: Annotated[str | None, Meta(description=f"{_PLUGIN}; default: all of them")] = None
    key: Annotated[str | None, Meta(description="One key of its state; default: all of it")] = None
    workspace: Annotated[
        str | None, Meta(description="Path of the workspace, if several workspaces have a state file of this plugin")
    ] = None


class TriggerPluginAction(Parameters):
    name: Annotated[str | None, Meta(description=_PLUGIN)] = None
    action: Annotated[str | None, Meta(description="One of its actions")] = None
    args: Annotated[dict[str, Any] | None, Meta(description="Arguments of the action")] = None


def _select_value(result: PluginActionResult) -> Any:
    return result.result


class PluginOperations:
    """The operations on plugins."""

    group = "plugin"

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", "/api/plugins"),
        mcp=McpTool(
            "session",
            "list_plugins",
            "List loaded plugins, Rookery's and OpenCode's own, with hooks, actions, keys of their state and errors; "
            "also those that could not be loaded or wait for approval.",
        ),
    )
    async def list(self, caller: Caller, arguments: NoParameters) -> Sequence[PluginShown]:
        """All plugins of Rookery and OpenCode, with their hooks, actions, state keys and errors."""
        return await self._plugins.list(caller.scope)

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", "/api/plugins/{name}/state", short_path="/api/plugins/state"),
        mcp=McpTool(
            "session",
            "get_plugin_state",
            "Get plugin state (e.g., boulder iteration): of one plugin or of all, whole or one key of it; also from "
            "files that OpenCode's plugins keep.",
            names=_NAME | {"key": "stateKey"},
            result=dict[str, Any],
        ),
    )
    async def state(self, caller: Caller, arguments: GetPluginState) -> Any:
        """The state of one plugin, or of every plugin that has one; `?key=` selects one key of it.

        If a plugin stores its state in files, `?workspace=` selects the workspace.
        """
        if arguments.name is None:
            return await self._plugins.states(arguments.key, caller.scope)
        return await self._plugins.state(arguments.name, arguments.key, caller.scope, arguments.workspace)

    @operation(
        access="workspace",
        cancellable=True,
        rest=RestRoute("POST", "/api/plugins/{name}/actions/{action}"),
        mcp=McpTool(
            "session",
            "trigger_plugin_action",
            "Trigger plugin-specific action and return its result. list_plugins returns the actions and their inputs.",
            names=_NAME,
            present=_select_value,
            result=dict[str, Any],
            destructive=True,
        ),
    )
    async def trigger(self, caller: Caller, arguments: TriggerPluginAction) -> PluginActionResult:
        """Run an action of a plugin with `args`; returns its `result`."""
        args = arguments.args or {}
        return PluginActionResult(
            result=await self._plugins.trigger(arguments.name, arguments.action, args, caller.scope)
        )
