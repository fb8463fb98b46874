"""Orders of the owner to boulder, and boulder's state for everyone who may see it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.plugins.api import House
from rookery.plugins.boulder import state as transitions
from rookery.plugins.boulder.engine import BoulderEngine, BoulderHost, EventHandler, SessionTimers
from rookery.plugins.boulder.policy import BoulderLimits, read_checks
from rookery.plugins.boulder.session import BoulderSession, BoulderStateShown, GateShown
from rookery.plugins.boulder.state import BoulderSwitch, SwitchLevel
from rookery.plugins.boulder.store import BoulderStore, LogKind, LogLine
from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix
from rookery.system.store import Store

if TYPE_CHECKING:
    from rookery.plugins.boulder.state import BoulderState

OWNER = "owner"
ITSELF = "boulder"
MAX_BUDGET = 1000
# Called when the state of a session has changed, with its id and the folder of its workspace.
SendEvent = Callable[[str, str], None]


class Boulder:
    """Boulder's service, which is used through its plugin once that has started.

    `on_log` is called with every line of its log. Tests replace `timers` to set the time themselves.
    """

    def __init__(
        self,
        store: Store,
        host: BoulderHost,
        limits: BoulderLimits,
        checks: str,
        on_log: Callable[[LogLine], None],
        timers: type[SessionTimers] = SessionTimers,
    ) -> None:
        self._store = BoulderStore(store, on_log)
        self._host = host
        self._limits = limits
        self._checks = checks
        self._timers = timers
        self._listeners: dict[object, SendEvent] = {}
        self._engine: BoulderEngine | None = None
        self._house: House | None = None

    async def start(self, house: House) -> None:
        engine = BoulderEngine(house, self._store, self._host, self._limits, self._checks, self._notify, self._timers)
        await engine.load()
        self._house = house
        self._engine = engine
        self.event_handler = EventHandler(engine)
        house.tasks.keep_running(lambda: self._host.watch(self._forget), "places")

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.timers.close()

    def listen(self, listener: SendEvent) -> Callable[[], None]:
        """Add a listener and return a function that removes it."""
        key = object()
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def _notify(self, live: BoulderSession) -> None:
        for listener in list(self._listeners.values()):
            listener(live.id, live.path)

    @property
    def engine(self) -> BoulderEngine:
        if self._engine is None:
            raise RookeryError("agent-unavailable", "boulder is not running yet", "try again in a moment")
        return self._engine

    # Orders of the owner

    async def switch(
        self, scope: Path | None, level: SwitchLevel, subject: str, *, on: bool, checks: str | None, budget: int | None
    ) -> dict[str, Any]:
        """Switch boulder on or off. The switch replaces an earlier one for the same project, workspace or session."""
        _require_owner(scope)
        declared = str(read_checks(checks)) if checks is not None else None
        live = await self._find_or_add(subject) if level == "session" else None
        subject = live.id if live is not None else await self._host.subject(level, subject)
        if budget is not None and live is None:
            raise RookeryError("invalid-input", "a budget applies to one session", "name a session")
        _require_budget(budget)
        engine = self.engine
        previous = engine.switches.get(level, subject)
        # Switching on again must not exclude the sessions that boulder already looks after.
        at = previous.at if on and previous is not None and previous.enabled else engine.now()
        switch = BoulderSwitch(level, subject, on, declared, at)
        path = live.path if live is not None else subject if level == "workspace" else ""
        text = f"for the {level} {subject}" + (f", checks: {declared or 'none'}" if declared is not None else "")
        line = LogLine(
            round(engine.now() * 1000, 3), "on" if on else "off", OWNER, live.id if live else "", path, 0, text
        )
        if not on:
            # No message is sent from now on, even if the switch cannot be stored.
            engine.switches.set(switch)
        await self._store.save_switch(switch, line)
        engine.switches.set(switch)
        if live is not None and budget is not None:
            await engine.set_state(live, transitions.set_budget(live.state, budget), "budget", str(budget), OWNER)
        for session in [session for session in engine.sessions.values() if engine.switch_of(session) is switch]:
            engine.consider(session)
        return await self.state(scope) if live is None else self._describe(live).as_dict()

    async def _forget(self, level: SwitchLevel, subject: str) -> None:
        """Remove the switch of a deleted project or workspace, so that it does not apply to a new one there."""
        engine = self.engine
        house = self._house
        if engine.switches.get(level, subject) is None or house is None:
            return
        engine.switches.drop(level, subject)
        path = subject if level == "workspace" else ""
        text = f"for the {level} {subject}, which was deleted"
        line = LogLine(round(engine.now() * 1000, 3), "off", ITSELF, "", path, 0, text)
        try:
            await self._store.delete_switch(level, subject, line)
        except RookeryError as error:
            # The watch for deleted projects and workspaces must go on.
            house.log.error("the switch-off of boulder %s could not be stored: %s", text, error.message)

    async def order(self, scope: Path | None, session: str, what: LogKind, budget: int | None = None) -> dict[str, Any]:
        """Execute `pause`, `resume`, `stop`, `reset` or `budget`, which restores the default if no number is given."""
        _require_owner(scope)
        _require_budget(budget)
        live = await self._find_or_add(session)
        orders: dict[str, Callable[[BoulderState], BoulderState]] = {
            "pause": transitions.pause,
            "resume": transitions.resume,
            "stop": transitions.stop,
            "reset": transitions.reset,
            "budget": lambda state: transitions.set_budget(state, budget),
        }
        live.undecided = None
        live.last_order_at = self.engine.now()
        reason = ("the default" if budget is None else str(budget)) if what == "budget" else ""
        await self.engine.set_state(live, orders[what](live.state), what, reason, OWNER)
        self.engine.consider(live)
        return self._describe(live).as_dict()

    # Queries

    async def state(self, scope: Path | None) -> dict[str, Any]:
        """Return the state of the session enforced last, with `sessions` for all that boulder looks after, by id."""
        visible = [session for session in self.engine.sessions.values() if scope in (None, Path(session.path))]
        watched = [session for session in visible if session.reported and self._is_watched(session)]
        enforced = [session for session in visible if session.state.last_enforcement is not None]
        last = max(enforced, key=lambda session: session.state.last_enforcement or 0, default=None)
        last = last or max(watched, key=lambda session: session.state.last_activity, default=None)
        off_gate = GateShown(gate="off", reason="it watches no session")
        top = (
            self._describe(last)
            if last is not None
            else BoulderStateShown(budget=self._limits.budget, gates=(off_gate,))
        )
        return {**top.as_dict(), "sessions": {session.id: self._describe(session).as_dict() for session in watched}}

    async def session_state(self, session: str, scope: Path | None) -> dict[str, Any]:
        """Return boulder's state of one session."""
        return self._describe(await self._find_session(session, scope)).as_dict()

    async def log(self, scope: Path | None, limit: int, session: str | None = None) -> list[LogLine]:
        """Return the newest lines of the log, in the order in which they were written."""
        if limit < 1:
            raise RookeryError("invalid-input", f"a limit of {limit} shows nothing", "give 1 or more")
        workspace = str(scope) if scope is not None else None
        if session is not None:
            # Includes sessions that were closed since.
            logged = match_prefix(session, await self._store.logged_sessions(workspace), "sessions")
            session = logged or (await self._find_session(session, scope)).id
        return await self._store.read_log(limit, session, workspace)

    def _is_watched(self, live: BoulderSession) -> bool:
        switch = self.engine.switch_of(live)
        on = switch is not None and switch.enabled
        return live.state.iteration > 0 or (on and live.facts(switch).touched)

    def _describe(self, live: BoulderSession) -> BoulderStateShown:
        engine = self.engine
        return live.describe(engine.now(), engine.switch_of(live), engine.limits, engine.checks_of(live))

    async def _find_session(self, session: str, scope: Path | None) -> BoulderSession:
        engine = self.engine
        house = self._house
        assert house is not None
        info = await house.sessions.get(session, scope)
        if info.id in engine.sessions:
            return engine.sessions[info.id]
        if info.parent is not None:
            raise RookeryError("invalid-input", f"{info.id} is a child of {info.parent}", "use the parent session")
        live = BoulderSession(info.id, info.directory, info.project, info.workspace, reported=True)
        live.running = info.status == "active"
        live.idle_since = engine.now()
        return live

    async def _find_or_add(self, session: str) -> BoulderSession:
        """Return a session, and look after it from now on."""
        live = await self._find_session(session, None)
        return self.engine.sessions.setdefault(live.id, live)


def _require_owner(scope: Path | None) -> None:
    if scope is not None:
        message = "only the owner may control boulder: its messages cost money"
        raise RookeryError("forbidden", message, "ask the user: rookery boulder")


def _require_budget(budget: int | None) -> None:
    if budget is not None and not 0 <= budget <= MAX_BUDGET:
        raise RookeryError("invalid-input", f"{budget} is not a valid budget", f"give a number from 0 to {MAX_BUDGET}")
