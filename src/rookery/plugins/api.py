"""The plugin API: `Plugin` with its hooks, actions and state, the events it receives, and `House`, its services.

Times in events are in milliseconds since the epoch.
"""

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rookery.sessions.records import SessionAsk, SessionInfo, Toast, ToolRun
from rookery.sessions.service import Sessions
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

BEFORE: Final = "tool.execute.before"
AFTER: Final = "tool.execute.after"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
LOG = logging.getLogger("rookery.plugins")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event. `hook` is its name, `path` the folder of the workspace where it happened, `workspace` its name.

    `project` is the project's id. If a tool was called without a workspace, all three are empty.
    """

    hook: str
    at: float = 0
    project: str = ""
    workspace: str = ""
    path: str = ""


class SessionEvent(Event, frozen=True, kw_only=True):
    """`session.*`. `parent` is the session that this one works for; the session that a person talks to has none.

    `found` is true if nothing has changed: the session was idle or busy already when its agent began to be watched, as
    after a restart. For `session.error`, `error` is what failed, and `aborted` is whether somebody ended the turn.
    """

    session_id: str
    title: str = ""
    parent: str | None = None
    found: bool = False
    error: str | None = None
    aborted: bool = False


class MessageEvent(Event, frozen=True, kw_only=True):
    """`message.added`: a message is complete. `role` is `user` or `assistant`."""

    session_id: str
    message_id: str
    role: str
    content: str
    error: str | None = None


class ToolEvent(Event, frozen=True, kw_only=True):
    """`tool.started` and `tool.finished`: a tool of OpenCode ran in a session; `run.status` is how it ended."""

    session_id: str
    run: ToolRun


class AskEvent(Event, frozen=True, kw_only=True):
    """`ask.opened` and `ask.answered`: a session waits for a person, or no longer. `found` is as in `SessionEvent`."""

    session_id: str
    ask: SessionAsk
    found: bool = False


class ToastEvent(Event, frozen=True, kw_only=True):
    """`toast.shown`. OpenCode does not name the session of a toast, so it belongs to a workspace."""

    toast: Toast


class CallEvent(Event, frozen=True, kw_only=True):
    """`tool.execute.*`: a tool call through the gateway. `name` is the tool's public name, `server` its server.

    `result` is set after the call.
    """

    server: str
    tool: str
    name: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any] | None = None


HOOKS: Final[Mapping[str, type[Event]]] = {
    "session.created": SessionEvent,
    "session.idle": SessionEvent,
    "session.busy": SessionEvent,
    "session.error": SessionEvent,
    "session.closed": SessionEvent,
    "message.added": MessageEvent,
    "tool.started": ToolEvent,
    "tool.finished": ToolEvent,
    "ask.opened": AskEvent,
    "ask.answered": AskEvent,
    "toast.shown": ToastEvent,
    BEFORE: CallEvent,
    AFTER: CallEvent,
}


PluginFunction = Callable[..., Any]
F = TypeVar("F", bound=PluginFunction)


@dataclass(frozen=True)
class Hook:
    """A function `run(event, house)`. For `tool.execute.*` it may return a mapping with new arguments or a new result.

    With `when`, only events that occur while `when()` is true are delivered.
    """

    name: str
    run: PluginFunction
    when: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Action:
    """A function `run(args, house)` that returns plain data. `args` is a mapping, or of the type `takes` if given.

    The holder of a workspace's token may use only `scoped` actions, which respect `house.scope`.
    """

    name: str
    description: str
    run: PluginFunction
    takes: type[msgspec.Struct] | None = None
    scoped: bool = False
    # The JSON Schema of `takes`.
    schema: Mapping[str, Any] | None = None


class Plugin:
    """A plugin. Its decorators `on`, `action`, `state`, `start` and `stop` register functions."""

    def __init__(self, name: str, *, version: str = "", description: str = "") -> None:
        _require_name(name, "a plugin")
        texts: list[Any] = [version, description]
        if not all(isinstance(text, str) for text in texts):
            raise RookeryError(
                "invalid-input", f"plugin {name}: its version and description must be strings", "quote them"
            )
        self.name = name
        self.version = version
        self.description = description
        self.hooks: list[Hook] = []
        self.actions: dict[str, Action] = {}
        # The state function returns the state, a mapping; the other two return nothing.
        self.state_function: PluginFunction | None = None
        self.start_function: PluginFunction | None = None
        self.stop_function: PluginFunction | None = None

    def on(self, hook: str, *, when: Callable[[], bool] | None = None) -> Callable[[F], F]:
        """Register a function for every event of this name; several functions are called in the order of registration.

        `when` is called often. Messages and tools, of which there are many, are not even examined while no hook wants
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
            message = (
                f"plugin {self.name}: {hook} does not accept `when`: calls use the fast path only without this hook"
            )
            raise RookeryError("invalid-input", message, "omit `when`, and return nothing")

        def register(run: F) -> F:
            self.hooks.append(Hook(hook, run, when))
            return run

        return register

    def action(
        self, name: str, *, description: str = "", takes: type[msgspec.Struct] | None = None, scoped: bool = False
    ) -> Callable[[F], F]:
        """Register an action for `trigger_plugin_action`. Arguments that do not fit `takes` never reach the function.

        An action is for the owner only, unless it is `scoped`: then it must touch nothing outside of `house.scope`.
        """
        _require_name(name, f"an action of {self.name}")
        if name in self.actions:
            raise RookeryError("invalid-input", f"plugin {self.name} has two actions {name!r}", "rename one of them")

        # Created now, so that a type without a schema is reported to the author of the plugin.
        schema = msgspec.json.schema(takes) if takes is not None else None

        def register(run: F) -> F:
            self.actions[name] = Action(name, description, run, takes, scoped, schema)
            return run

        return register

    def state(self, run: F) -> F:
        """Register the function for `get_plugin_state`: it returns plain data, by key, that `house.scope` may see."""
        self.state_function = self._require_first(self.state_function, run, "state")
        return run

    def start(self, run: F) -> F:
        """Register a function that is called before the first event."""
        self.start_function = self._require_first(self.start_function, run, "start")
        return run

    def stop(self, run: F) -> F:
        """Register a function that is called after the last event, before the plugin's tasks end."""
        self.stop_function = self._require_first(self.stop_function, run, "stop")
        return run

    def _require_first(self, existing: PluginFunction | None, run: F, what: str) -> F:
        if existing is not None:
            raise RookeryError("invalid-input", f"plugin {self.name} has two functions for {what}", "keep one of them")
        return run


def _require_name(name: str, of: str) -> None:
    if not _NAME.fullmatch(name):
        raise RookeryError(
            "invalid-input",
            f"{name!r} is not a valid name for {of}",
            "use lowercase letters, digits and hyphens, with a letter first",
        )


@dataclass(frozen=True, kw_only=True)
class House:
    """The services for one plugin. What it starts with `tasks` ends with the plugin.

    `settings` is its table `[plugins.<name>]`, `state_folder` an existing folder of its own, `log` its logger, and
    `audit` writes a line of text for the user, with the time, to `audit.log` in that folder.

    `scope` is the folder of the one workspace that the caller of an action, or of the state, may see. None is for the
    owner, who sees all, and for hooks. Pass it on to `sessions`, which refuses access outside of it.
    """

    plugin: str
    sessions: Sessions
    clock: Clock
    tasks: TaskSet
    state_folder: Path
    audit: Callable[[str], None]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log: logging.Logger = LOG
    scope: Path | None = None

    async def session(self, id_: str) -> SessionInfo:
        """Return a session that the caller may see; raise RookeryError `session-not-found` for any other."""
        return await self.sessions.get(id_, self.scope)
