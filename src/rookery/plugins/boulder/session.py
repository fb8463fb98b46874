"""A session as boulder sees it now: its stored state, and the events since."""

from dataclasses import dataclass, field

from rookery.plugins.boulder.policy import (
    BoulderLimits,
    BoulderStatus,
    Decision,
    SessionFacts,
    WorkLeft,
    decide,
    effective_budget,
    list_gates,
    session_status,
)
from rookery.plugins.boulder.state import BoulderState, BoulderSwitch
from rookery.sessions.records import ResponseModel


class GateShown(ResponseModel, frozen=True, kw_only=True):
    """A closed gate. `until` is when it opens by itself, in milliseconds, or None if it does not."""

    gate: str
    reason: str
    until: float | None = None


class BoulderStateShown(ResponseModel, frozen=True, kw_only=True):
    """Boulder's state of a session. `switched` is the level of its switch: `session`, `workspace` or `project`."""

    session_id: str | None = None
    project: str = ""
    workspace: str = ""
    iteration: int = 0
    status: BoulderStatus = "OFF"
    last_activity: float | None = None
    last_enforcement: float | None = None
    failure_count: int = 0
    stop_requested: bool = False
    paused: bool = False
    enforced_in_this_idle_period: bool = False
    complete: str | None = None
    budget: int = 0
    switched: str | None = None
    checks: str = ""
    gates: tuple[GateShown, ...] = ()


@dataclass
class BoulderSession:
    """A session that boulder knows. `path` is the workspace's folder.

    `reported`: its agent reports the session. `looking`: a check or an enforcement runs.
    """

    id: str
    path: str
    project: str = ""
    workspace: str = ""
    state: BoulderState = field(default_factory=BoulderState)
    reported: bool = False
    running: bool = False
    idle_since: float = 0
    last_order_at: float = 0
    tools: dict[str, str] = field(default_factory=dict[str, str])
    asks: set[str] = field(default_factory=set[str])
    aborted_at: float | None = None
    enforcing: bool = False
    looking: bool = False
    # Why the last checks could not decide whether work is left.
    undecided: WorkLeft | None = None

    def facts(self, switch: BoulderSwitch | None, work: WorkLeft | None = None) -> SessionFacts:
        """Return the current facts about the session for the gates."""
        on = switch is not None and switch.enabled
        return SessionFacts(
            on=on,
            # Old sessions must not begin to work because their workspace was switched on.
            touched=switch is None or switch.level == "session" or self.state.last_activity >= switch.at,
            running=self.running,
            # After an order, the owner has time to do something else.
            idle_since=max(self.idle_since, self.last_order_at, switch.at if switch is not None else 0),
            tool=next(iter(self.tools.values()), None),
            asks=len(self.asks),
            aborted_at=self.aborted_at,
            enforcing=self.enforcing,
            work=work or self.undecided,
        )

    def decide(
        self, now: float, switch: BoulderSwitch | None, limits: BoulderLimits, work: WorkLeft | None = None
    ) -> Decision:
        return decide(self.state, now, self.facts(switch, work), limits)

    def describe(
        self, now: float, switch: BoulderSwitch | None, limits: BoulderLimits, checks: str
    ) -> BoulderStateShown:
        """Return the state as interfaces show it."""
        state = self.state
        facts = self.facts(switch)
        return BoulderStateShown(
            session_id=self.id,
            project=self.project,
            workspace=self.workspace,
            iteration=state.iteration,
            status=session_status(state, facts, limits),
            last_activity=_to_milliseconds(state.last_activity or None),
            last_enforcement=_to_milliseconds(state.last_enforcement),
            failure_count=state.failures,
            stop_requested=state.stop_requested,
            paused=state.paused,
            enforced_in_this_idle_period=state.enforced,
            complete=state.complete,
            budget=effective_budget(state, limits),
            switched=switch.level if switch is not None else None,
            checks=checks,
            gates=tuple(
                GateShown(gate=gate.gate, reason=gate.reason, until=_to_milliseconds(gate.until))
                for gate in list_gates(state, now, facts, limits)
            ),
        )


def _to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
