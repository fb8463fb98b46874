"""One plugin that runs: its events wait in a queue of its own, and a hook that keeps failing is switched off."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from rookery.plugins.containment import Containment
from rookery.plugins.events import AFTER, BEFORE, CallEvent, Event
from rookery.plugins.house import House
from rookery.plugins.plugin import Action, Function, Hook, Plugin
from rookery.plugins.records import ActionShown, HookShown, Limits
from rookery.system.errors import RookeryError


@dataclass
class Hooked:
    """A hook, and what became of its calls."""

    hook: Hook
    calls: int = 0
    failures: int = 0
    in_a_row: int = 0
    dropped: int = 0
    off: str | None = None

    def wants(self, name: str) -> bool:
        if self.hook.name != name or self.off is not None:
            return False
        try:
            return self.hook.when is None or bool(self.hook.when())
        except Exception as error:
            self.off = f"whether it is wanted could not be told: {type(error).__name__}: {error}"
            return False

    def shown(self) -> HookShown:
        return HookShown(
            name=self.hook.name, calls=self.calls, failures=self.failures, dropped=self.dropped, off=self.off
        )


class RunningPlugin:
    """`house` is the owner's; whoever asks gets one with a scope. `changed` is called when a hook was switched off."""

    def __init__(
        self, plugin: Plugin, house: House, contained: Containment, limits: Limits, changed: Callable[[], None]
    ) -> None:
        self.plugin, self.contained = plugin, contained
        self._house, self._limits, self._changed = house, limits, changed
        self.hooks = [Hooked(hook) for hook in plugin.hooks]
        self._events: deque[Event] = deque()
        self._news, self._rest = asyncio.Event(), asyncio.Event()
        self._rest.set()

    async def start(self) -> None:
        if self.plugin.starting is not None:
            await self._call("start", self.plugin.starting, self._house)
        if any(one.hook.name not in (BEFORE, AFTER) for one in self.hooks):
            self.contained.calls.start(self._tell_all(), "events")

    async def stop(self) -> None:
        try:
            if self.plugin.stopping is not None:
                await self._call("stop", self.plugin.stopping, self._house)
        except RookeryError:
            self._house.log.warning("%s is stopped all the same", self.plugin.name)
        finally:
            await self.contained.close()

    # ---- events

    def tell(self, event: Event) -> None:
        """Never waits: what is too much for it is dropped, and counted."""
        wanting = [one for one in self.hooks if one.wants(event.hook)]
        if wanting and len(self._events) >= self._limits.queue:
            for one in wanting:
                one.dropped += 1
        elif wanting:
            self._events.append(event)
            self._rest.clear()
            self._news.set()

    async def settled(self) -> None:
        """Once all that it was told so far has been heard."""
        await self._rest.wait()

    async def _tell_all(self) -> None:
        while True:
            await self._news.wait()
            while self._events:
                event = self._events.popleft()
                for one in self.hooks:
                    if one.wants(event.hook):
                        await self._run(one, event, self._limits.event_seconds)
            self._news.clear()
            self._rest.set()

    async def passed(self, event: CallEvent) -> CallEvent:
        """The call with what its hooks have made of the arguments, or of the result."""
        field = "arguments" if event.hook == BEFORE else "result"
        for one in self.hooks:
            if one.wants(event.hook):
                given = await self._run(one, event, self._limits.seconds)
                event = msgspec.structs.replace(event, **{field: given}) if given is not None else event
        return event

    async def _run(self, one: Hooked, event: Event, seconds: float) -> Any:
        one.calls += 1
        gives = dict[str, Any] | None if isinstance(event, CallEvent) else None
        try:
            answer = await self.contained.call(
                event.hook, one.hook.run, event, self._house, seconds=seconds, gives=gives
            )
        except RookeryError as error:
            one.failures += 1
            one.in_a_row += 1
            if one.in_a_row >= self._limits.failures:
                one.off = f"it failed {one.in_a_row} times in a row, and is called no longer; last: {error.message}"
                self._house.log.error("%s: %s is switched off: %s", self.plugin.name, event.hook, one.off)
                self._changed()
            return None
        one.in_a_row = 0
        return answer

    # ---- what is asked of it

    async def state(self, scope: Path | None) -> dict[str, Any]:
        if self.plugin.telling is None:
            return {}
        house = replace(self._house, scope=scope)
        return await self._call("state", self.plugin.telling, house, gives=dict[str, Any])

    async def trigger(self, action: Action, args: Mapping[str, Any], scope: Path | None) -> Any:
        given: Any = args
        if action.takes is not None:
            try:
                given = msgspec.convert(dict(args), action.takes)
            except msgspec.ValidationError as error:
                raise RookeryError(
                    "invalid-input",
                    f"the arguments of {action.name} do not fit: {error}",
                    f"it takes: {', '.join(action.takes.__struct_encode_fields__) or 'nothing'}",
                ) from None
        where, house = f"action {action.name}", replace(self._house, scope=scope)
        return await self._call(where, action.run, given, house, seconds=self._limits.event_seconds, gives=Any)

    async def _call(
        self, where: str, run: Function, *args: Any, seconds: float | None = None, gives: Any = None
    ) -> Any:
        limit = seconds if seconds is not None else self._limits.seconds
        return await self.contained.call(where, run, *args, seconds=limit, gives=gives, may_refuse=True)

    def actions_shown(self) -> tuple[ActionShown, ...]:
        return tuple(
            ActionShown(
                name=one.name,
                description=one.description,
                owner_only=not one.scoped,
                args=one.schema,
            )
            for one in self.plugin.actions.values()
        )
