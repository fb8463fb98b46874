"""What plugins see of calls through the gateway: taken apart for them, and put together if they changed something."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw

from rookery.gateway.hooks import After, Before, Hooks, ToolCall
from rookery.plugins.events import AFTER, BEFORE, CallEvent
from rookery.plugins.registry import Registry
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.ids import project_id

T = TypeVar("T")


class GatewayHooks:
    """The gateway is told of them only while a plugin has such a hook: without any, calls go their fast way."""

    def __init__(self, hooks: Hooks, registry: Registry, project_of: Callable[[Path], Path]) -> None:
        self._hooks, self._registry, self._project_of = hooks, registry, project_of
        self._project_id = functools.lru_cache(maxsize=256)(project_id)
        # Held, since each access makes a new one.
        self._own: tuple[Before, After] = self._before, self._after

    def settle(self) -> None:
        """Which hooks there are may have changed."""
        before, after = self._own
        self._hooks.before = _with(self._hooks.before, before, self._registry.wants(BEFORE))
        self._hooks.after = _with(self._hooks.after, after, self._registry.wants(AFTER))

    async def _before(self, call: ToolCall) -> Raw | None:
        seen = self._event(BEFORE, call)
        passed = await self._registry.passed(seen)
        return Raw(msgspec.json.encode(passed.arguments)) if passed.arguments is not seen.arguments else None

    async def _after(self, call: ToolCall, result: Raw) -> Raw | None:
        seen = msgspec.structs.replace(self._event(AFTER, call), result=msgspec.json.decode(result))
        passed = await self._registry.passed(seen)
        return Raw(msgspec.json.encode(passed.result)) if passed.result is not seen.result else None

    def _event(self, hook: str, call: ToolCall) -> CallEvent:
        path = call.workspace
        return CallEvent(
            hook=hook,
            at=SYSTEM_CLOCK.wall() * 1000,
            project=self._project_id(self._project_of(Path(path))) if path is not None else "",
            path=path or "",
            server=call.server,
            tool=call.tool,
            name=call.public,
            arguments=msgspec.json.decode(call.arguments),
        )


def _with(there: list[T], own: T, wanted: bool) -> list[T]:
    others = [one for one in there if one is not own]
    return [*others, own] if wanted else others
