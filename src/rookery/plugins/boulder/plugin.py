"""Boulder as a plugin: its hooks, state and actions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from rookery import __version__
from rookery.plugins.api import AskEvent, House, MessageEvent, Plugin, SessionEvent, ToolEvent
from rookery.plugins.boulder.service import Boulder
from rookery.plugins.boulder.state import SwitchLevel
from rookery.system.errors import RookeryError

NAME = "boulder"
_DESCRIPTION = "Makes a session that stopped with work left continue. Off until it is switched on."


class For(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Exactly one of a session's id, a workspace's folder, or a project's id."""

    sessionId: str | None = None
    workspace: str | None = None
    project: str | None = None

    def subject(self) -> tuple[SwitchLevel, str]:
        fields: list[tuple[SwitchLevel, str | None]] = [
            ("session", self.sessionId),
            ("workspace", self.workspace),
            ("project", self.project),
        ]
        targets: list[tuple[SwitchLevel, str]] = [(level, value) for level, value in fields if value]
        if len(targets) != 1:
            raise RookeryError("invalid-input", "the target is not clear", "give sessionId, workspace or project")
        return targets[0]


class On(For, kw_only=True):
    """`checks` are `todos`, `plan:<file>` and `just:<task>`, separated by commas; `budget` is for a session only."""

    checks: str | None = None
    budget: int | None = None


class SessionArguments(msgspec.Struct, forbid_unknown_fields=True):
    sessionId: str


class Budget(SessionArguments):
    """Without a budget the default applies again."""

    budget: int | None = None


class Log(msgspec.Struct, forbid_unknown_fields=True):
    sessionId: str | None = None
    limit: int = 50


def boulder_plugin(boulder: Boulder) -> Plugin:
    """Return the plugin that connects boulder to the plugin API."""
    plugin = Plugin(NAME, version=__version__, description=_DESCRIPTION)
    _register_hooks(plugin, boulder)
    _register_actions(plugin, boulder)

    @plugin.start
    async def start(house: House) -> None:
        await boulder.start(house)

    @plugin.stop
    async def stop(house: House) -> None:
        boulder.stop()

    @plugin.state
    async def state(house: House) -> Mapping[str, Any]:
        return await boulder.state(house.scope)

    return plugin


def _register_hooks(plugin: Plugin, boulder: Boulder) -> None:
    @plugin.on("session.created")
    @plugin.on("session.idle")
    @plugin.on("session.busy")
    @plugin.on("session.error")
    @plugin.on("session.closed")
    async def session(event: SessionEvent, house: House) -> None:
        await boulder.event_handler.session(event)

    # There are many messages and tool runs in all sessions, and boulder is off in most of them.
    def is_on() -> bool:
        return boulder.engine.switches.is_any_on

    @plugin.on("message.added", when=is_on)
    async def message(event: MessageEvent, house: House) -> None:
        await boulder.event_handler.message(event)

    @plugin.on("tool.started", when=is_on)
    @plugin.on("tool.finished", when=is_on)
    async def tool(event: ToolEvent, house: House) -> None:
        await boulder.event_handler.tool(event)

    @plugin.on("ask.opened")
    @plugin.on("ask.answered")
    async def ask(event: AskEvent, house: House) -> None:
        await boulder.event_handler.ask(event)


def _register_actions(plugin: Plugin, boulder: Boulder) -> None:
    @plugin.action("on", description="Switch it on for a session, a workspace or a project.", takes=On)
    async def on(args: On, house: House) -> Any:
        level, subject = args.subject()
        return await boulder.switch(house.scope, level, subject, on=True, checks=args.checks, budget=args.budget)

    @plugin.action("off", description="Switch it off for a session, a workspace or a project.", takes=For)
    async def off(args: For, house: House) -> Any:
        level, subject = args.subject()
        return await boulder.switch(house.scope, level, subject, on=False, checks=None, budget=None)

    @plugin.action("pause", description="Pause it in a session until it is resumed.", takes=SessionArguments)
    async def pause(args: SessionArguments, house: House) -> Any:
        return await boulder.order(house.scope, args.sessionId, "pause")

    @plugin.action("resume", description="Resume it after a pause, a stop or failures.", takes=SessionArguments)
    async def resume(args: SessionArguments, house: House) -> Any:
        return await boulder.order(house.scope, args.sessionId, "resume")

    @plugin.action(
        "stop", description="Stop it in a session; `stopRequested` is true from then on.", takes=SessionArguments
    )
    async def stop(args: SessionArguments, house: House) -> Any:
        return await boulder.order(house.scope, args.sessionId, "stop")

    @plugin.action(
        "reset", description="Reset it in a session, with the whole budget available.", takes=SessionArguments
    )
    async def reset(args: SessionArguments, house: House) -> Any:
        return await boulder.order(house.scope, args.sessionId, "reset")

    @plugin.action("budget", description="Set how many enforcements a session gets.", takes=Budget)
    async def budget(args: Budget, house: House) -> Any:
        return await boulder.order(house.scope, args.sessionId, "budget", args.budget)

    @plugin.action("status", description="Show its state for one session.", takes=SessionArguments, scoped=True)
    async def status(args: SessionArguments, house: House) -> Any:
        return await boulder.session_state(args.sessionId, house.scope)

    @plugin.action("log", description="Show its actions, and the commands that it received.", takes=Log, scoped=True)
    async def log(args: Log, house: House) -> Any:
        return msgspec.to_builtins(await boulder.log(house.scope, args.limit, args.sessionId))
