"""Boulder for its owner, who gives it orders, and for everybody who may see how it stands."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.plugins.boulder import kept as moves
from rookery.plugins.boulder.alarms import Alarms
from rookery.plugins.boulder.book import Book, Line, What
from rookery.plugins.boulder.checks import read_checks
from rookery.plugins.boulder.gates import Limits
from rookery.plugins.boulder.hearing import Hearing
from rookery.plugins.boulder.keeper import Keeper
from rookery.plugins.boulder.live import GateShown, Live, StateShown
from rookery.plugins.boulder.looking import Ground
from rookery.plugins.boulder.switches import Level, Switch
from rookery.plugins.house import House
from rookery.system.errors import RookeryError
from rookery.system.store import Store

if TYPE_CHECKING:
    from rookery.plugins.boulder.kept import Kept

OWNER, ITSELF = "owner", "boulder"
MOST_BUDGET = 1000
# Told that the state of a session has changed: its id, and the folder of its workspace.
Told = Callable[[str, str], None]


class Boulder:
    """Heard and asked through its plugin, once that has started. `told` is called with every line of its log.

    `alarms` are for tests to set the time themselves.
    """

    def __init__(
        self,
        store: Store,
        ground: Ground,
        limits: Limits,
        checks: str,
        told: Callable[[Line], None],
        alarms: type[Alarms] = Alarms,
    ) -> None:
        self._book, self._ground, self._limits, self._checks = Book(store, told), ground, limits, checks
        self._alarms = alarms
        self._listeners: dict[object, Told] = {}
        self._keeper: Keeper | None = None
        self._house: House | None = None

    async def start(self, house: House) -> None:
        keeper = Keeper(house, self._book, self._ground, self._limits, self._checks, self._changed, self._alarms)
        await keeper.load()
        self._house, self._keeper = house, keeper
        self.hearing = Hearing(keeper)
        house.tasks.start(self._ground.watch(self._forget), "places")

    def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.alarms.close()

    def listen(self, told: Told) -> Callable[[], None]:
        """Answers how to end that."""
        key = object()
        self._listeners[key] = told
        return lambda: self._listeners.pop(key, None) and None

    def _changed(self, live: Live) -> None:
        for told in list(self._listeners.values()):
            told(live.id, live.path)

    @property
    def keeper(self) -> Keeper:
        if self._keeper is None:
            raise RookeryError("agent-unavailable", "boulder does not run yet", "try again in a moment")
        return self._keeper

    # ---- what its owner asks for

    async def switch(
        self, scope: Path | None, level: Level, subject: str, *, on: bool, checks: str | None, budget: int | None
    ) -> dict[str, Any]:
        """What was said before of the same project, workspace or session is forgotten."""
        _require_owner(scope)
        declared = str(read_checks(checks)) if checks is not None else None
        live = await self._entered(subject) if level == "session" else None
        if live is None:
            subject = await self._ground.subject(level, subject)
        if budget is not None and live is None:
            raise RookeryError("invalid-input", "a budget is that of one session", "name a session")
        _require_budget(budget)
        keeper = self.keeper
        before = keeper.switches.get(level, subject)
        # Who says it once more does not lose what it looks after already.
        at = before.at if on and before is not None and before.enabled else keeper.now()
        switch = Switch(level, subject, on, declared, at)
        path = live.path if live is not None else subject if level == "workspace" else ""
        told = f"for the {level} {subject}" + (f", checks: {declared or 'none'}" if declared is not None else "")
        line = Line(round(keeper.now() * 1000, 3), "on" if on else "off", OWNER, live.id if live else "", path, 0, told)
        if not on:
            # Nothing is sent from here on, whatever comes of writing it down.
            keeper.switches.set(switch)
        await self._book.switch(switch, line)
        keeper.switches.set(switch)
        if live is not None and budget is not None:
            await keeper.become(live, moves.budgeted(live.kept, budget), "budget", str(budget), OWNER)
        for one in [one for one in keeper.live.values() if keeper.switch_of(one) is switch]:
            keeper.consider(one)
        return await self.state(scope) if live is None else self._shown(live).as_dict()

    async def _forget(self, level: Level, subject: str) -> None:
        """Another one in the same place is not switched on by what was said of this one."""
        keeper, house = self.keeper, self._house
        if keeper.switches.get(level, subject) is None or house is None:
            return
        keeper.switches.drop(level, subject)
        path, told = subject if level == "workspace" else "", f"for the {level} {subject}, which is gone"
        line = Line(round(keeper.now() * 1000, 3), "off", ITSELF, "", path, 0, told)
        try:
            await self._book.drop(level, subject, line)
        except RookeryError as error:
            # Whoever tells of the next one that is gone must not end with this.
            house.log.error("that boulder is off %s could not be kept: %s", told, error.message)

    async def order(self, scope: Path | None, session: str, what: What, budget: int | None = None) -> dict[str, Any]:
        """`pause`, `resume`, `stop`, `reset` or `budget`, which without a number is what it was at first."""
        _require_owner(scope)
        _require_budget(budget)
        live = await self._entered(session)
        orders: dict[str, Callable[[Kept], Kept]] = {
            "pause": moves.paused,
            "resume": moves.resumed,
            "stop": moves.stopped,
            "reset": moves.reset,
            "budget": lambda kept: moves.budgeted(kept, budget),
        }
        live.untold, live.ordered_at = None, self.keeper.now()
        why = ("the default" if budget is None else str(budget)) if what == "budget" else ""
        await self.keeper.become(live, orders[what](live.kept), what, why, OWNER)
        self.keeper.consider(live)
        return self._shown(live).as_dict()

    # ---- how it stands

    async def state(self, scope: Path | None) -> dict[str, Any]:
        """The session enforced last, with `sessions` for all that it looks after, by their ids."""
        visible = [one for one in self.keeper.live.values() if scope in (None, Path(one.path))]
        seen = [one for one in visible if one.there and self._looks_after(one)]
        enforced = [one for one in visible if one.kept.last_enforcement is not None]
        last = max(enforced, key=lambda one: one.kept.last_enforcement or 0, default=None)
        last = last or max(seen, key=lambda one: one.kept.last_activity, default=None)
        nobody = GateShown(gate="off", reason="it looks after no session")
        top = self._shown(last) if last is not None else StateShown(budget=self._limits.budget, gates=(nobody,))
        return {**top.as_dict(), "sessions": {one.id: self._shown(one).as_dict() for one in seen}}

    async def of(self, session: str, scope: Path | None) -> dict[str, Any]:
        return self._shown(await self._of(session, scope)).as_dict()

    async def log(self, scope: Path | None, limit: int, session: str | None = None) -> list[Line]:
        """The newest lines, in the order in which they were written."""
        if limit < 1:
            raise RookeryError("invalid-input", f"a limit of {limit} shows nothing", "give 1 or more")
        return await self._book.lines(limit, session, str(scope) if scope is not None else None)

    def _looks_after(self, live: Live) -> bool:
        switch = self.keeper.switch_of(live)
        on = switch is not None and switch.enabled
        return live.kept.iteration > 0 or (on and live.facts(switch).touched)

    def _shown(self, live: Live) -> StateShown:
        keeper = self.keeper
        return live.shown(keeper.now(), keeper.switch_of(live), keeper.limits, keeper.checks_of(live))

    async def _of(self, session: str, scope: Path | None) -> Live:
        keeper, house = self.keeper, self._house
        assert house is not None
        info = await house.sessions.get(session, scope)
        if session in keeper.live:
            return keeper.live[session]
        if info.parent is not None:
            raise RookeryError("invalid-input", f"{session} works for {info.parent}", "name that session")
        made = Live(session, info.directory, info.project, info.workspace, there=True)
        made.running, made.idle_since = info.status == "active", keeper.now()
        return made

    async def _entered(self, session: str) -> Live:
        """One that is looked after from now on."""
        found = await self._of(session, None)
        return self.keeper.live.setdefault(session, found)


def _require_owner(scope: Path | None) -> None:
    if scope is not None:
        message = "only the owner gives boulder orders: what it sends costs money"
        raise RookeryError("forbidden", message, "ask the user: rookery boulder")


def _require_budget(budget: int | None) -> None:
    if budget is not None and not 0 <= budget <= MOST_BUDGET:
        raise RookeryError("invalid-input", f"{budget} is no budget", f"give a number from 0 to {MOST_BUDGET}")
