"""A session as boulder sees it now: what it keeps of it, and what has been heard of it since."""

from dataclasses import dataclass, field

from rookery.plugins.boulder.deciding import Decision, Status, decide, status
from rookery.plugins.boulder.gates import Facts, Limits, Work, budget_of, gates
from rookery.plugins.boulder.kept import Kept
from rookery.plugins.boulder.switches import Switch
from rookery.sessions.records import Answer


class GateShown(Answer, frozen=True, kw_only=True):
    """What holds it back, and until when, in milliseconds; `until` is None where that does not end by itself."""

    gate: str
    reason: str
    until: float | None = None


class StateShown(Answer, frozen=True, kw_only=True):
    """How boulder stands to one session. `switched` is the switch that counts: `session`, `workspace` or `project`."""

    session_id: str | None = None
    project: str = ""
    workspace: str = ""
    iteration: int = 0
    status: Status = "OFF"
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
class Live:
    """`path` is the workspace's folder. `there`: its agent tells of it. `looking`: a look or an enforcement runs."""

    id: str
    path: str
    project: str = ""
    workspace: str = ""
    kept: Kept = field(default_factory=Kept)
    there: bool = False
    running: bool = False
    idle_since: float = 0
    ordered_at: float = 0
    tools: dict[str, str] = field(default_factory=dict[str, str])
    asks: set[str] = field(default_factory=set[str])
    aborted_at: float | None = None
    enforcing: bool = False
    looking: bool = False
    # Why it could not be told whether work is left, when that was looked at last.
    untold: Work | None = None

    def facts(self, switch: Switch | None, work: Work | None = None) -> Facts:
        on = switch is not None and switch.enabled
        return Facts(
            on=on,
            # Sessions of old times do not begin to work because their workspace was switched on.
            touched=switch is None or switch.level == "session" or self.kept.last_activity >= switch.at,
            running=self.running,
            # Whoever gives it an order has time to do something else.
            idle_since=max(self.idle_since, self.ordered_at, switch.at if switch is not None else 0),
            tool=next(iter(self.tools.values()), None),
            asks=len(self.asks),
            aborted_at=self.aborted_at,
            enforcing=self.enforcing,
            work=work or self.untold,
        )

    def decide(self, now: float, switch: Switch | None, limits: Limits, work: Work | None = None) -> Decision:
        return decide(self.kept, now, self.facts(switch, work), limits)

    def shown(self, now: float, switch: Switch | None, limits: Limits, checks: str) -> StateShown:
        kept, facts = self.kept, self.facts(switch)
        return StateShown(
            session_id=self.id,
            project=self.project,
            workspace=self.workspace,
            iteration=kept.iteration,
            status=status(kept, facts, limits),
            last_activity=_milli(kept.last_activity or None),
            last_enforcement=_milli(kept.last_enforcement),
            failure_count=kept.failures,
            stop_requested=kept.stop_requested,
            paused=kept.paused,
            enforced_in_this_idle_period=kept.enforced,
            complete=kept.complete,
            budget=budget_of(kept, limits),
            switched=switch.level if switch is not None else None,
            checks=checks,
            gates=tuple(
                GateShown(gate=one.gate, reason=one.reason, until=_milli(one.until))
                for one in gates(kept, now, facts, limits)
            ),
        )


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
