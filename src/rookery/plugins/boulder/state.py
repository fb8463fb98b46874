"""The state of a session that boulder keeps over restarts, and boulder's switches. No I/O.

Each function takes the state and returns the next one. Times are in seconds since the epoch.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace


class BoulderState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a session. `iteration` counts the enforcements since the last reset.

    `judged` is the last enforcement whose turn was looked at. `enforced`: there was an enforcement in this idle period.
    `complete` is the reason why no work is left. `attempted` is when an enforcement was last tried, `last_enforcement`
    when one was last sent.
    """

    iteration: int = 0
    judged: int = 0
    last_activity: float = 0
    last_enforcement: float | None = None
    attempted: float | None = None
    failures: int = 0
    enforced: bool = False
    paused: bool = False
    stop_requested: bool = False
    complete: str | None = None
    budget: int | None = None


def start_turn(state: BoulderState, now: float) -> BoulderState:
    """Record that a turn runs."""
    return replace(state, last_activity=now)


def end_turn(state: BoulderState, now: float) -> BoulderState:
    """Record that a turn has ended and an idle period begins."""
    return replace(state, last_activity=now, enforced=False)


def observe_idle(state: BoulderState) -> BoulderState:
    """Record that the session is idle since an unknown time: a turn that had begun has ended meanwhile."""
    turn_began = state.enforced and state.last_activity > (state.last_enforcement or 0)
    return replace(state, enforced=False) if turn_began else state


def record_user_message(state: BoulderState, now: float) -> BoulderState:
    """Record a message of somebody other than boulder: there is new work, and somebody looks after it."""
    return replace(state, last_activity=now, enforced=False, complete=None, failures=0, judged=state.iteration)


def judge_turn(state: BoulderState, *, failed: bool) -> BoulderState:
    """Record a look at the last turn, which counts once, and only if an enforcement has started the turn."""
    if state.judged >= state.iteration:
        return state
    return replace(state, failures=state.failures + 1 if failed else 0, judged=state.iteration)


def complete_work(state: BoulderState, why: str) -> BoulderState:
    """Record that no work is left, and why."""
    return replace(state, complete=why)


def start_enforcement(state: BoulderState, now: float) -> BoulderState:
    """Record that an enforcement is about to be sent. It is counted before, so that a crash cannot lose the count."""
    return replace(state, iteration=state.iteration + 1, last_enforcement=now, attempted=now, enforced=True)


def fail_enforcement(state: BoulderState, before: float | None, now: float) -> BoulderState:
    """Record that an enforcement could not be sent; `before` is the time of the previous one."""
    return replace(withdraw_enforcement(state, before), failures=state.failures + 1, attempted=now)


def withdraw_enforcement(state: BoulderState, before: float | None) -> BoulderState:
    """Record that an enforcement was called off before it was sent; `before` is the time of the previous one."""
    return replace(state, iteration=max(state.iteration - 1, 0), last_enforcement=before, enforced=False)


# Orders of the owner


def pause(state: BoulderState) -> BoulderState:
    return replace(state, paused=True)


def resume(state: BoulderState) -> BoulderState:
    """Resume after a pause, a stop, or too many failures."""
    return replace(state, paused=False, stop_requested=False, failures=0, judged=state.iteration)


def stop(state: BoulderState) -> BoulderState:
    return replace(state, stop_requested=True)


def reset(state: BoulderState) -> BoulderState:
    """Return to the initial state; a budget that was set is kept."""
    return BoulderState(last_activity=state.last_activity, budget=state.budget)


def set_budget(state: BoulderState, budget: int | None) -> BoulderState:
    return replace(state, budget=budget)


SwitchLevel = Literal["project", "workspace", "session"]
LEVELS: tuple[SwitchLevel, ...] = ("session", "workspace", "project")


class BoulderSwitch(msgspec.Struct, frozen=True):
    """A switch. `subject` is a project's id, a workspace's folder or a session's id; `checks` are declared with it."""

    level: SwitchLevel
    subject: str
    enabled: bool
    checks: str | None = None
    at: float = 0


class BoulderSwitches:
    """All switches. The narrowest one for a session applies; without any, boulder is off."""

    def __init__(self, switches: Iterable[BoulderSwitch] = ()) -> None:
        self._switches = {(switch.level, switch.subject): switch for switch in switches}
        self._changed()

    def set(self, switch: BoulderSwitch) -> None:
        self._switches[switch.level, switch.subject] = switch
        self._changed()

    def drop(self, level: SwitchLevel, subject: str) -> None:
        self._switches.pop((level, subject), None)
        self._changed()

    def _changed(self) -> None:
        # Computed here because every event of every agent reads it.
        self.is_any_on = any(switch.enabled for switch in self._switches.values())

    def get(self, level: SwitchLevel, subject: str) -> BoulderSwitch | None:
        return self._switches.get((level, subject))

    def applying_to(self, project: str, workspace: str, session: str) -> BoulderSwitch | None:
        """Return the narrowest switch that applies to a session."""
        subjects = {"session": session, "workspace": workspace, "project": project}
        switches = (self._switches.get((level, subjects[level])) for level in LEVELS)
        return next((switch for switch in switches if switch is not None), None)
