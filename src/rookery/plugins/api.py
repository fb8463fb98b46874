"""What a plugin is: a name, and functions for what happens, what can be asked of it and what it tells of itself.

    plugin = Plugin("notify", version="1.0", description="Says when a session is done.")

    @plugin.on("session.idle")
    async def idle(event: SessionEvent, house: House) -> None:
        await house.sessions.show_toast(event.session_id, "done")

Functions may be `async`, and then run in the loop, which they must not hold; plain ones run in a thread.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from rookery.plugins.events import AFTER, BEFORE, HOOKS
from rookery.system.errors import RookeryError

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Hook:
    """`run(event, house)`. Of `tool.execute.*` it may answer a mapping: the arguments, or the result, to go on with.

    With `when`, only events that come while that is true are told.
    """

    name: str
    run: Function
    when: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Action:
    """`run(args, house)`: `args` is a mapping, or of the type `takes` if there is one; answers plain data.

    Only a `scoped` one, which heeds `house.scope`, is for whoever holds the token of a workspace.
    """

    name: str
    description: str
    run: Function
    takes: type[msgspec.Struct] | None = None
    scoped: bool = False
    # The JSON Schema of what it takes.
    schema: Mapping[str, Any] | None = None


class Plugin:
    def __init__(self, name: str, *, version: str = "", description: str = "") -> None:
        _require_name(name, "a plugin")
        given: list[Any] = [version, description]
        if not all(isinstance(one, str) for one in given):
            raise RookeryError("invalid-input", f"plugin {name}: its version and description are texts", "quote them")
        self.name, self.version, self.description = name, version, description
        self.hooks: list[Hook] = []
        self.actions: dict[str, Action] = {}
        # `telling(house)` answers its state, a mapping; `starting(house)` and `stopping(house)` answer nothing.
        self.telling: Function | None = None
        self.starting: Function | None = None
        self.stopping: Function | None = None

    def on(self, hook: str, *, when: Callable[[], bool] | None = None) -> Callable[[F], F]:
        """Call the function for every event of this name; several functions in the order in which they stand.

        `when` is asked often. Messages and tools, of which there are many, are not even looked at while nobody wants
        them.
        """
        if hook not in HOOKS:
            near = difflib.get_close_matches(hook, HOOKS, 1, 0.0)[0]
            raise RookeryError(
                "invalid-input",
                f"plugin {self.name}: there is no hook {hook!r}; did you mean {near!r}?",
                "use one of these",
                tuple(HOOKS),
            )

        if when is not None and hook in (BEFORE, AFTER):
            message = f"plugin {self.name}: {hook} has no `when`: calls take another way only while nobody has it"
            raise RookeryError("invalid-input", message, "leave `when` out, and answer nothing")

        def added(run: F) -> F:
            self.hooks.append(Hook(hook, run, when))
            return run

        return added

    def action(
        self, name: str, *, description: str = "", takes: type[msgspec.Struct] | None = None, scoped: bool = False
    ) -> Callable[[F], F]:
        """What `trigger_plugin_action` can ask for. Arguments that do not fit `takes` never reach the function.

        It is for the owner only, unless it is `scoped`: then it must touch nothing outside of `house.scope`.
        """
        _require_name(name, f"an action of {self.name}")
        if name in self.actions:
            raise RookeryError("invalid-input", f"plugin {self.name} has two actions {name!r}", "name one otherwise")

        # Made now, so that what cannot be told of it is an error of whoever wrote it.
        schema = msgspec.json.schema(takes) if takes is not None else None

        def added(run: F) -> F:
            self.actions[name] = Action(name, description, run, takes, scoped, schema)
            return run

        return added

    def state(self, run: F) -> F:
        """What `get_plugin_state` answers, of what `house.scope` may see: a mapping of plain data."""
        self.telling = self._only(self.telling, run, "state")
        return run

    def start(self, run: F) -> F:
        """Called before the first event."""
        self.starting = self._only(self.starting, run, "start")
        return run

    def stop(self, run: F) -> F:
        """Called after the last one, before its tasks end."""
        self.stopping = self._only(self.stopping, run, "stop")
        return run

    def _only(self, there: Function | None, run: F, what: str) -> F:
        if there is not None:
            raise RookeryError("invalid-input", f"plugin {self.name} has two functions for {what}", "keep one of them")
        return run


def _require_name(name: str, of: str) -> None:
    if not _NAME.fullmatch(name):
        raise RookeryError(
            "invalid-input",
            f"{name!r} is no name for {of}",
            "use small letters, digits and hyphens, with a letter first",
        )
