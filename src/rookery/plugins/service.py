"""The service behind every interface: list plugins, read their state and trigger their actions.

`scope` is the folder of the one workspace that the caller may see, None for the owner, who sees all.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rookery.plugins.api import Action
from rookery.plugins.records import PluginShown, PluginState, as_table
from rookery.plugins.registry import PluginKey, PluginRegistry
from rookery.plugins.runner import RunningPlugin
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError

# The state of this many plugins is read at a time.
_MAX_CONCURRENT = 8


class PluginSources(Protocol):
    """The sources of plugins, and the state that they keep in workspaces."""

    async def wait_until_ready(self) -> None:
        """Wait until all plugins that are loaded with the daemon are loaded or have failed."""
        ...

    async def project_of(self, scope: Path) -> str | None: ...

    async def notes(self) -> Mapping[PluginKey, str]:
        """Return notes about some of the running plugins."""
        ...

    async def list_not_running(self, scope: Path | None) -> Sequence[PluginShown]:
        """Return the plugins that do not run here: failed ones, unapproved ones, and OpenCode's own."""
        ...

    async def list_state_files(self, scope: Path | None) -> Sequence[PluginState]:
        """Return the states that OpenCode's plugins keep in files."""
        ...


class Plugins:
    """Lists plugins, reads their state and triggers their actions."""

    def __init__(self, registry: PluginRegistry, sources: PluginSources, sessions: Sessions) -> None:
        self._registry = registry
        self._sources = sources
        self._sessions = sessions

    async def list(self, scope: Path | None = None) -> Sequence[PluginShown]:
        """Return all plugins: Rookery's in the order of their start, then those that do not run, then OpenCode's."""
        others = await self._sources.list_not_running(scope)
        notes = await self._sources.notes()
        visible = await self._visible(scope)
        slots = asyncio.Semaphore(_MAX_CONCURRENT)

        async def describe(key: PluginKey) -> PluginShown | None:
            async with slots:
                plugin = await self._registry.describe(key, scope)
                return msgspec.structs.replace(plugin, note=notes.get(key)) if plugin is not None else None

        return [*filter(None, await asyncio.gather(*map(describe, visible))), *others]

    # State

    async def state(self, name: str, key: str | None, scope: Path | None, workspace: str | None = None) -> Any:
        """Return the state of one plugin, or one key of it; for a state in files, that of one workspace."""
        matches = _find_by_name(await self._visible(scope), name)
        if len(matches) > 1:
            raise _ambiguous_error(name, [f"{plugin_key.project}/{plugin_key.name}" for plugin_key in matches])
        if matches:
            (running,) = matches.values()
            return _select_key(name, await running.state(scope), key)
        files = [state for state in await self._sources.list_state_files(scope) if state.plugin == name]
        chosen = [state for state in files if workspace in (None, state.workspace)]
        if len(chosen) > 1:
            raise _ambiguous_error(
                name, [state.workspace or "" for state in chosen], "its state is in several workspaces"
            )
        if not chosen:
            raise await self._no_state_error(name, scope, files)
        if chosen[0].error is not None:
            raise RookeryError("plugin-failed", f"the state of {name} cannot be read: {chosen[0].error}")
        return _select_key(name, chosen[0].state, key)

    async def states(self, key: str | None, scope: Path | None) -> Sequence[PluginState]:
        """Return the states of all plugins; with a key, its values in the states that have it."""
        states: list[PluginState] = []
        for plugin_key, running in (await self._visible(scope)).items():
            if running.plugin.state_function is None:
                continue
            try:
                state = await running.state(scope)
                error = None
            except RookeryError as failed:
                state = None
                error = failed.message
            states.append(PluginState(plugin=plugin_key.name, project=plugin_key.project, state=state, error=error))
        states += await self._sources.list_state_files(scope)
        if key is None:
            return states
        matches = [entry for entry in states if key in as_table(entry.state)]
        if not matches:
            raise _invalid_error(f"no plugin has {key!r} in its state", _list_keys(states))
        return [msgspec.structs.replace(entry, state=as_table(entry.state)[key]) for entry in matches]

    # Actions

    async def trigger(
        self,
        name: str | None,
        action: str | None,
        args: Mapping[str, Any],
        scope: Path | None,
    ) -> Any:
        """Run an action and return its result.

        A caller with a scope may use only scoped actions, and none on a session outside of the scope.
        """
        visible = await self._visible(scope)
        if not name:
            raise _invalid_error("pluginName is missing", _list_actions(visible.items()))
        matches = _find_by_name(visible, name)
        if not matches:
            raise _not_found_error(f"there is no plugin {name!r}", _list_actions(visible.items()))
        if len(matches) > 1:
            raise _ambiguous_error(name, [f"{plugin_key.project}/{plugin_key.name}" for plugin_key in matches])
        (running,) = matches.values()
        selected = running.plugin.actions.get(action or "")
        if selected is None:
            message = f"{name} has no action {action!r}" if action else "action is missing"
            raise _invalid_error(message, _list_actions(matches.items()))
        await self._require_allowed(selected, args, scope)
        return await running.trigger(selected, args, scope)

    async def _require_allowed(self, action: Action, args: Mapping[str, Any], scope: Path | None) -> None:
        if scope is None:
            return
        if not action.scoped:
            raise RookeryError("forbidden", f"{action.name} is for the owner only", "ask the user to do it")
        session = args.get("sessionId")
        if isinstance(session, str):
            await self._sessions.get(session, scope)

    # Helpers

    async def _visible(self, scope: Path | None) -> Mapping[PluginKey, RunningPlugin]:
        await self._sources.wait_until_ready()
        if scope is None:
            return self._registry.visible_to(None)
        return self._registry.visible_to(await self._sources.project_of(scope) or "")

    async def _no_state_error(self, name: str, scope: Path | None, files: Sequence[PluginState]) -> RookeryError:
        if files:
            return _invalid_error(
                f"{name} keeps no state in that workspace", [state.workspace or "" for state in files]
            )
        names = [key.name for key in await self._visible(scope)]
        names += [state.plugin for state in await self._sources.list_state_files(scope)]
        return _not_found_error(f"there is no plugin {name!r} with a state", names)


def _find_by_name(visible: Mapping[PluginKey, RunningPlugin], name: str) -> dict[PluginKey, RunningPlugin]:
    """Return the plugins with this name, which may be given as `<project>/<name>`."""
    project, slash, short_name = name.rpartition("/")
    keys = [key for key in visible if key.name == short_name and (not slash or key.project == project)]
    return {key: visible[key] for key in keys}


def _select_key(name: str, state: Any, key: str | None) -> Any:
    if key is None:
        return state
    table = as_table(state)
    if key not in table:
        raise _invalid_error(f"the state of {name} has no {key!r}", [*table])
    return table[key]


def _ambiguous_error(name: str, which: Sequence[str], why: str = "several projects have one") -> RookeryError:
    return _invalid_error(f"{name} is ambiguous: {why}", which)


def _not_found_error(message: str, available: Iterable[str]) -> RookeryError:
    return RookeryError("plugin-not-found", message, _list_available(available))


def _invalid_error(message: str, available: Iterable[str]) -> RookeryError:
    """Return the error for a value that does not exist, with the values that do."""
    return RookeryError("invalid-input", message, _list_available(available))


def _list_available(available: Iterable[str]) -> str:
    names = list(dict.fromkeys(available))
    return f"there are: {'; '.join(names)}" if names else "there are none"


def _list_keys(states: Iterable[PluginState]) -> list[str]:
    return [f"{state.plugin}: {', '.join(as_table(state.state))}" for state in states if as_table(state.state)]


def _list_actions(plugins: Iterable[tuple[PluginKey, RunningPlugin]]) -> list[str]:
    return [f"{key.name}: {', '.join(running.plugin.actions) or 'no actions'}" for key, running in plugins]
