"""Watch sessions: handle their events, wait while gates are closed, look for work left, and enforce."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from rookery.plugins.api import AskEvent, House, MessageEvent, SessionEvent, ToolEvent
from rookery.plugins.boulder import messages, state as transitions
from rookery.plugins.boulder.messages import check_keywords
from rookery.plugins.boulder.policy import (
    BoulderLimits,
    CompletionChecks,
    Enforce,
    LookFirst,
    Todo,
    WaitUntil,
    WorkLeft,
    check_boxes,
    check_task,
    check_todos,
    combine_checks,
    effective_budget,
    list_gates,
    read_checks,
)
from rookery.plugins.boulder.session import BoulderSession
from rookery.plugins.boulder.state import BoulderState, BoulderSwitch, BoulderSwitches, SwitchLevel
from rookery.plugins.boulder.store import BoulderStore, LogKind, LogLine
from rookery.sessions.records import SessionMessage
from rookery.sessions.service import Sessions
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

_MESSAGES = 50
_TOOLS = 10
_RUNNING_STATUSES = ("pending", "running")

# The longest delay of a timer. For a later time, the timer fires meanwhile and is set again.
_MAX_TIMER_SECONDS = 3600.0
_TITLE = "Boulder"
_TOAST_MILLISECONDS = 10_000
_SEND_SECONDS = 30.0
# Time limit until a sent message is in the transcript. Its time may be earlier by _CLOCK_SECONDS if the clock was set
# back.
_READ_SECONDS = 30.0
_CLOCK_SECONDS = 1.0


class BoulderHost(Protocol):
    """Access to projects, workspaces and their files. Methods raise RookeryError if they fail or are not allowed."""

    async def subject(self, level: SwitchLevel, reference: str) -> str:
        """Return the id of an existing project, or the folder of an existing workspace."""
        ...

    async def watch(self, on_deleted: Callable[[SwitchLevel, str], Awaitable[None]]) -> None:
        """Call `on_deleted` for every project and workspace that is deleted, until this is cancelled."""
        ...

    async def read(self, workspace: str, path: str) -> str:
        """Return the text of a file, read through the sandbox."""
        ...

    async def run(self, workspace: str, task: str) -> tuple[bool, str]:
        """Run a just task of an approved justfile; return whether it exits with 0, and otherwise how it ended."""
        ...


@dataclass(frozen=True)
class WorkReport:
    """Result of a look at a session.

    `tool_running`: a tool that was called by name runs. `failed`: the last turn failed.
    """

    running: bool
    tool_running: bool
    failed: bool
    work: WorkLeft


async def look_for_work(
    sessions: Sessions, host: BoulderHost, session: str, workspace: str, checks: CompletionChecks
) -> WorkReport:
    """Return whether a session is idle, and whether work is left in it."""
    info = await sessions.get(session)
    messages = (await sessions.messages(session, _MESSAGES)).messages
    running = info.status == "active"
    used = any(run.status in _RUNNING_STATUSES for run in await sessions.tool_history(session, _TOOLS))
    if running or used or not messages:
        return WorkReport(running, used, False, WorkLeft(None, "there are no messages yet"))
    results: list[WorkLeft | None] = []
    if checks.todos:
        async with sessions.use_agent(session) as run:
            results.append(check_todos(await run.client.todos(session, Todo)))
    results += [await _check_plan(host, workspace, plan) for plan in checks.plans]
    # Last, since tasks take longest, and not at all if it is known that work is left.
    if (work := combine_checks(results)) is None or work.left is not True:
        results += [await _check_task(host, workspace, task) for task in checks.tasks]
    return WorkReport(
        False, False, info.status == "error", combine_checks(results) or check_keywords(last_assistant_text(messages))
    )


def last_assistant_text(messages: Sequence[SessionMessage]) -> str | None:
    """Return the last text of the assistant since somebody else wrote a message."""
    for message in reversed(messages):
        if message.role != "assistant":
            return None
        if message.content.strip():
            return message.content
    return None


async def _check_plan(host: BoulderHost, workspace: str, plan: str) -> WorkLeft:
    try:
        return check_boxes(await host.read(workspace, plan), plan)
    except RookeryError as error:
        return WorkLeft(None, error.message)


async def _check_task(host: BoulderHost, workspace: str, task: str) -> WorkLeft:
    try:
        passed, outcome = await host.run(workspace, task)
    except RookeryError as error:
        return WorkLeft(None, error.message)
    return check_task(task, passed=passed, outcome=outcome)


class SessionTimers:
    """One timer for each session: calls `on_time` with the session's id at the set time, in seconds since the epoch."""

    def __init__(self, clock: Clock, on_time: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_time = on_time
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def set(self, session: str, at: float) -> None:
        self.cancel(session)
        seconds = min(max(at - self._clock.wall(), 0.0), _MAX_TIMER_SECONDS)
        self._timers[session] = asyncio.get_running_loop().call_later(seconds, self._on_timer, session)

    def cancel(self, session: str) -> None:
        if (timer := self._timers.pop(session, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        for session in list(self._timers):
            self.cancel(session)

    def __len__(self) -> int:
        return len(self._timers)

    def _on_timer(self, session: str) -> None:
        self._timers.pop(session, None)
        self._on_time(session)


class BoulderEngine:
    """Watches sessions and enforces. `on_change` is called with a session whose state has changed."""

    def __init__(
        self,
        house: House,
        store: BoulderStore,
        host: BoulderHost,
        limits: BoulderLimits,
        checks: str,
        on_change: Callable[[BoulderSession], None],
        timers: type[SessionTimers] = SessionTimers,
    ) -> None:
        self.switches = BoulderSwitches()
        self.sessions = dict[str, BoulderSession]()
        self.limits = limits
        self.checks = checks
        self._house = house
        self._store = store
        self._host = host
        self._on_change = on_change
        self._clock: Clock = house.clock
        self.timers = timers(house.clock, self._on_timer)

    async def load(self) -> None:
        """Load the switches and the stored states of sessions."""
        self.switches = BoulderSwitches(await self._store.switches())
        for id_, (path, state) in (await self._store.sessions()).items():
            self.sessions[id_] = BoulderSession(id_, path, state=state)

    def now(self) -> float:
        return self._clock.wall()

    def switch_of(self, live: BoulderSession) -> BoulderSwitch | None:
        return self.switches.applying_to(live.project, live.path, live.id)

    def checks_of(self, live: BoulderSession) -> str:
        """Return the checks as they are written; those in the settings may be invalid."""
        switch = self.switch_of(live)
        return switch.checks if switch is not None and switch.checks is not None else self.checks

    # Changes

    def consider(self, live: BoulderSession) -> None:
        """Decide again after a change: set a timer, or start to look and enforce."""
        self.timers.cancel(live.id)
        self._on_change(live)
        if live.looking or not live.reported:
            return
        match live.decide(self.now(), self.switch_of(live), self.limits):
            case WaitUntil(until):
                self.timers.set(live.id, until)
            case LookFirst() | Enforce():
                live.looking = True
                self._house.tasks.start(self._look_and_enforce(live), f"look at {live.id}")
            case _:
                pass

    async def set_state(
        self, live: BoulderSession, state: BoulderState, what: LogKind | None = None, why: str = "", who: str = ""
    ) -> None:
        """Set the state of a session, and store it if boulder is on; with `what`, store it with a line in the log."""
        live.state = state
        line = self._line(what, who, live, why) if what is not None else None
        if line is not None or self._is_on(live):
            await self._store.save_session(live.id, live.path, state, self.now(), line)

    def _is_on(self, live: BoulderSession) -> bool:
        switch = self.switch_of(live)
        return switch is not None and switch.enabled

    def _line(self, what: LogKind, who: str, live: BoulderSession, why: str) -> LogLine:
        by = who or f"boulder, switched on for the {switch.level if (switch := self.switch_of(live)) else 'session'}"
        return LogLine(round(self.now() * 1000, 3), what, by, live.id, live.path, live.state.iteration, why)

    # Actions

    def _on_timer(self, session: str) -> None:
        if (live := self.sessions.get(session)) is not None:
            self.consider(live)

    async def _look_and_enforce(self, live: BoulderSession) -> None:
        try:
            work = await self._look(live)
            if work is not None and isinstance(self._decide_again(live, work), Enforce):
                await self._enforce(live, work.why)
        except RookeryError as error:
            # An enforcement that cannot be stored must not be sent.
            live.undecided = WorkLeft(None, error.message)
            self._house.log.warning("boulder skips %s: %s", live.id, error.message)
        finally:
            live.looking = False
        self.consider(live)

    def _decide_again(self, live: BoulderSession, work: WorkLeft) -> object:
        """Decide again: the session may have changed during the look."""
        return live.decide(self.now(), self.switch_of(live), self.limits, work)

    async def _look(self, live: BoulderSession) -> WorkLeft | None:
        """Look at a session and return the work that is left; None if nothing is to be done about it now."""
        previous = live.state
        try:
            checks = read_checks(self.checks_of(live))
            report = await look_for_work(self._house.sessions, self._host, live.id, live.path, checks)
        except RookeryError as error:
            live.undecided = WorkLeft(None, error.message)
            return None
        if report.running:
            # The events of the session are late: its start and its end are still to be reported.
            live.running = True
        if report.tool_running:
            # No event reports such a use, so the idle period begins again.
            live.idle_since = self.now()
        if live.running or report.tool_running or live.state != previous:
            # The session has changed since, and the report may be outdated.
            return None
        new_state = transitions.judge_turn(live.state, failed=report.failed)
        if report.work.left is False:
            await self.set_state(
                live, transitions.complete_work(new_state, report.work.why), "complete", report.work.why
            )
            return None
        if new_state != live.state:
            await self.set_state(live, new_state)
        live.undecided = report.work if report.work.left is None else None
        return report.work

    async def _enforce(self, live: BoulderSession, why: str) -> None:
        """Store an enforcement and send its message; undo it if it is called off or cannot be sent."""
        state = live.state
        sessions = self._house.sessions
        budget = effective_budget(live.state, self.limits)
        live.enforcing = True
        await self.set_state(live, transitions.start_enforcement(state, self.now()), "enforced", why)
        number = live.state.iteration
        started = self.now()
        self._on_change(live)
        if await self._call_off_if_closed(live, state):
            return
        try:
            await sessions.send(live.id, messages.message_text(number, budget, why), wait=False, timeout=_SEND_SECONDS)
        except RookeryError as error:
            live.enforcing = False
            await self.set_state(
                live,
                transitions.fail_enforcement(live.state, state.last_enforcement, self.now()),
                "failed",
                error.message,
            )
            return
        await self._announce(live.id, number, budget, why, started)

    async def _announce(self, session: str, number: int, budget: int, why: str, began: float) -> None:
        """Show the toast of an enforcement once its message is in the transcript.

        A caller that waits for the toast may read the transcript at once. If the toast cannot be shown, the enforcement
        still counts, because the message was sent.
        """
        sessions = self._house.sessions
        heading = re.escape(messages.message_heading(number, budget))
        since = (began - _CLOCK_SECONDS) * 1000
        try:
            result = await sessions.wait_for_message(session, heading, _READ_SECONDS, role="user", since=since)
            if not result.found:
                self._house.log.warning("boulder cannot show a toast in %s: %s", session, result.note)
                return
            toast = messages.toast_text(number, budget, why)
            await sessions.show_toast(session, toast, title=_TITLE, variant="warning", duration=_TOAST_MILLISECONDS)
        except RookeryError as error:
            self._house.log.warning("boulder cannot show a toast in %s: %s", session, error.message)

    async def _call_off_if_closed(self, live: BoulderSession, before: BoulderState) -> bool:
        """Return whether a gate has closed meanwhile; gates that count enforcements are checked without this one."""
        withdrawn = transitions.withdraw_enforcement(live.state, before.last_enforcement)
        as_before = replace(withdrawn, attempted=before.attempted)
        gate = next(list_gates(as_before, self.now(), live.facts(self.switch_of(live)), self.limits), None)
        if gate is None:
            return False
        live.enforcing = False
        await self.set_state(live, withdrawn, "failed", f"it was cancelled: {gate.reason}")
        return True


class EventHandler:
    """Applies events to the sessions of the engine."""

    def __init__(self, engine: BoulderEngine) -> None:
        self._engine = engine

    async def session(self, event: SessionEvent) -> None:
        if event.parent is not None:
            return
        if event.hook == "session.closed":
            self._on_closed(event.session_id)
            return
        live = self._find_or_add(event)
        now = self._engine.now()
        match event.hook:
            case "session.busy":
                live.running = True
                live.undecided = None
                # While boulder is off everywhere it receives no messages: then somebody else has started this turn.
                transition = (
                    transitions.start_turn if self._engine.switches.is_any_on else transitions.record_user_message
                )
                await self._set_state(live, transition(live.state, now))
            case "session.idle":
                live.running = False
                live.enforcing = False
                live.undecided = None
                live.tools.clear()
                live.asks.clear()
                if not event.found:
                    live.idle_since = now
                    await self._set_state(live, transitions.end_turn(live.state, now))
                else:
                    await self._set_state(live, transitions.observe_idle(live.state))
            case "session.error" if event.aborted:
                live.aborted_at = now
            case _:
                pass
        self._engine.consider(live)

    async def message(self, event: MessageEvent) -> None:
        live = self._engine.sessions.get(event.session_id)
        if live is None or event.role != "user" or messages.is_boulder_message(event.content):
            return
        # The turn of this message begins in a moment.
        live.undecided = None
        live.idle_since = self._engine.now()
        await self._set_state(live, transitions.record_user_message(live.state, live.idle_since))
        self._engine.consider(live)

    async def tool(self, event: ToolEvent) -> None:
        live = self._engine.sessions.get(event.session_id)
        if live is None:
            return
        if event.hook == "tool.started":
            live.tools[event.run.id] = event.run.tool
        else:
            live.tools.pop(event.run.id, None)
        self._engine.consider(live)

    async def ask(self, event: AskEvent) -> None:
        live = self._engine.sessions.get(event.session_id)
        if live is None:
            return
        if event.hook == "ask.opened":
            live.asks.add(event.ask.id)
        else:
            live.asks.discard(event.ask.id)
        self._engine.consider(live)

    def _find_or_add(self, event: SessionEvent) -> BoulderSession:
        live = self._engine.sessions.get(event.session_id)
        if live is None:
            live = self._engine.sessions[event.session_id] = BoulderSession(event.session_id, event.path)
        if not live.reported:
            # How long the session has been idle before is not known.
            live.reported = True
            live.idle_since = self._engine.now()
        live.path = event.path
        live.project = event.project
        live.workspace = event.workspace
        return live

    def _on_closed(self, session: str) -> None:
        live = self._engine.sessions.get(session)
        if live is None:
            return
        live.reported = live.running = live.enforcing = False
        live.tools.clear()
        live.asks.clear()
        if live.state == BoulderState(last_activity=live.state.last_activity):
            del self._engine.sessions[session]
        self._engine.consider(live)

    async def _set_state(self, live: BoulderSession, state: BoulderState) -> None:
        if state != live.state:
            await self._engine.set_state(live, state)
