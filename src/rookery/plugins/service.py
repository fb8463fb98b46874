"""The one service behind every face: plugins are listed, asked for their state, and told what to do through it.

`scope` is the folder of the one workspace that the caller may see, None for the owner, who sees all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rookery.plugins.plugin import Action
from rookery.plugins.records import PluginShown, StateShown, table
from rookery.plugins.registry import Key, Registry
from rookery.plugins.running import RunningPlugin
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError

# So many are asked for their state at a time.
_AT_ONCE = 8


class Sources(Protocol):
    """Where plugins come from, and what they leave in workspaces."""

    async def ready(self) -> None:
        """Once all that is to be loaded with the daemon has been, or has failed."""
        ...

    async def project_of(self, scope: Path) -> str | None: ...

    async def notes(self) -> Mapping[Key, str]:
        """What is to be said of some that run."""
        ...

    async def others(self, scope: Path | None) -> Sequence[PluginShown]:
        """Those that do not run here: that failed, that wait, and OpenCode's own."""
        ...

    async def files(self, scope: Path | None) -> Sequence[StateShown]:
        """The states that OpenCode's plugins keep in files."""
        ...


class Plugins:
    def __init__(self, registry: Registry, sources: Sources, sessions: Sessions) -> None:
        self._registry, self._sources, self._sessions = registry, sources, sessions

    async def list(self, scope: Path | None = None) -> Sequence[PluginShown]:
        """All there are: ours in the order in which they came, then those that do not run, then OpenCode's."""
        others = await self._sources.others(scope)
        notes, seen = await self._sources.notes(), await self._seen(scope)
        turn = asyncio.Semaphore(_AT_ONCE)

        async def told(key: Key) -> PluginShown | None:
            async with turn:
                found = await self._registry.shown(key, scope)
                return msgspec.structs.replace(found, note=notes.get(key)) if found is not None else None

        return [*filter(None, await asyncio.gather(*map(told, seen))), *others]

    # ---- state

    async def state(self, name: str, key: str | None, scope: Path | None, workspace: str | None = None) -> Any:
        """What one plugin tells of itself, or one key of it; of a state in files that of one workspace."""
        found = _named(await self._seen(scope), name)
        if len(found) > 1:
            raise _several(name, [f"{one.project}/{one.name}" for one in found])
        if found:
            (running,) = found.values()
            return _part(name, await running.state(scope), key)
        files = [one for one in await self._sources.files(scope) if one.plugin == name]
        chosen = [one for one in files if workspace in (None, one.workspace)]
        if len(chosen) > 1:
            raise _several(name, [one.workspace or "" for one in chosen], "its state lies in several workspaces")
        if not chosen:
            raise await self._unknown(name, scope, files)
        if chosen[0].error is not None:
            raise RookeryError("plugin-failed", f"the state of {name} cannot be told: {chosen[0].error}")
        return _part(name, chosen[0].state, key)

    async def states(self, key: str | None, scope: Path | None) -> Sequence[StateShown]:
        """What all of them tell; with a key, of those that have it."""
        found: list[StateShown] = []
        for one, running in (await self._seen(scope)).items():
            if running.plugin.telling is None:
                continue
            try:
                told, error = await running.state(scope), None
            except RookeryError as failed:
                told, error = None, failed.message
            found.append(StateShown(plugin=one.name, project=one.project, state=told, error=error))
        found += await self._sources.files(scope)
        if key is None:
            return found
        having = [one for one in found if key in table(one.state)]
        if not having:
            raise _wrong(f"no plugin has {key!r} in its state", _keys(found))
        return [msgspec.structs.replace(one, state=table(one.state)[key]) for one in having]

    # ---- actions

    async def trigger(
        self,
        name: str | None,
        action: str | None,
        args: Mapping[str, Any],
        scope: Path | None,
        outsider: Callable[[], Awaitable[None]],
    ) -> Any:
        """What the action answers. `outsider` raises where the caller was started by Rookery, be it the owner's.

        Whoever sees one workspace may use the actions that heed that, and on no session outside of it.
        """
        seen = await self._seen(scope)
        if not name:
            raise _wrong("pluginName is missing", _offers(seen.items()))
        found = _named(seen, name)
        if not found:
            raise _wrong(f"there is no plugin {name!r}", _offers(seen.items()))
        if len(found) > 1:
            raise _several(name, [f"{one.project}/{one.name}" for one in found])
        (running,) = found.values()
        wanted = running.plugin.actions.get(action or "")
        if wanted is None:
            told = f"{name} has no action {action!r}" if action else "action is missing"
            raise _wrong(told, _offers(found.items()))
        await self._require(wanted, args, scope, outsider)
        return await running.trigger(wanted, args, scope)

    async def _require(
        self, action: Action, args: Mapping[str, Any], scope: Path | None, outsider: Callable[[], Awaitable[None]]
    ) -> None:
        if scope is None:
            if not action.scoped:
                await outsider()
            return
        if not action.scoped:
            raise RookeryError("forbidden", f"{action.name} is for the owner only", "ask the user to do it")
        session = args.get("sessionId")
        if isinstance(session, str):
            await self._sessions.get(session, scope)

    # ---- what they share

    async def _seen(self, scope: Path | None) -> Mapping[Key, RunningPlugin]:
        await self._sources.ready()
        if scope is None:
            return self._registry.seen(None)
        return self._registry.seen(await self._sources.project_of(scope) or "")

    async def _unknown(self, name: str, scope: Path | None, files: Sequence[StateShown]) -> RookeryError:
        if files:
            return _wrong(f"{name} keeps no state in that workspace", [one.workspace or "" for one in files])
        names = [key.name for key in await self._seen(scope)]
        names += [one.plugin for one in await self._sources.files(scope)]
        return _wrong(f"there is no plugin {name!r} with a state", names)


def _named(seen: Mapping[Key, RunningPlugin], name: str) -> dict[Key, RunningPlugin]:
    """By its name, or as `<project>/<name>`."""
    project, slash, own = name.rpartition("/")
    wanted = [key for key in seen if key.name == own and (not slash or key.project == project)]
    return {key: seen[key] for key in wanted}


def _part(name: str, state: Any, key: str | None) -> Any:
    if key is None:
        return state
    there = table(state)
    if key not in there:
        raise _wrong(f"the state of {name} has no {key!r}", [*there])
    return there[key]


def _several(name: str, which: Sequence[str], why: str = "several projects have one") -> RookeryError:
    return _wrong(f"which {name} is meant? {why}", which)


def _wrong(told: str, there: Iterable[str]) -> RookeryError:
    """What does not exist, with what does."""
    names = list(dict.fromkeys(there))
    return RookeryError("invalid-input", told, f"there are: {'; '.join(names)}" if names else "there are none")


def _keys(found: Iterable[StateShown]) -> list[str]:
    return [f"{one.plugin}: {', '.join(table(one.state))}" for one in found if table(one.state)]


def _offers(found: Iterable[tuple[Key, RunningPlugin]]) -> list[str]:
    return [f"{key.name}: {', '.join(one.plugin.actions) or 'no actions'}" for key, one in found]
