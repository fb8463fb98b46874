"""What is known of the sessions of one workspace: what their agent's watcher tells, their messages and toasts."""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from rookery.agents.events import DoingChanged, Ended, Event, Renewed, SessionGone, SessionSeen, TurnFailed
from rookery.agents.life import Life
from rookery.agents.message_events import MessageGone, MessageSeen, PartGone, PartGrew, PartSeen, ToastShown
from rookery.agents.records import Session
from rookery.agents.status import SessionState
from rookery.agents.tenant import Tenant
from rookery.sessions.changes import Changes
from rookery.sessions.ledger import Ledger
from rookery.sessions.records import AskShown, Change, SessionInfo, Status
from rookery.sessions.shelf import Shelf
from rookery.sessions.shown import ask_shown
from rookery.sessions.tally import Tally
from rookery.sessions.toasts import ToastLog
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError
from rookery.workspaces.record import as_text

_CLAIMED = 1000
_RUNNING = ("busy", "retry", "asking")
_CUT_OFF = "its last turn was cut off: rookery agent resume takes it up"


class Room:
    """Made with the first process of a workspace's agent, and kept over the next ones."""

    def __init__(
        self, tenant: Tenant, shelf: Shelf, changes: Changes, clock: Clock, lives_here: Callable[[Tenant], bool]
    ) -> None:
        self.tenant, self.workspace = tenant, tenant.workspace
        self.path = as_text(tenant.workspace.path)
        self.toasts = ToastLog(tenant.workspace.project.id, tenant.workspace.name)
        self.ledger = Ledger(shelf, self.used)
        # The process that ran last, so that what it knew can be told while none runs.
        self.life: Life | None = None
        # The one before it, as long as nothing is known from the one that has just begun.
        self._before: Life | None = None
        # How many messages are on their way to each session, and which of those that came were ours.
        self.sending: Counter[str] = Counter()
        self.claimed: deque[str] = deque(maxlen=_CLAIMED)
        # How many processes have ended.
        self.ends = 0
        self._changes, self._clock, self._lives_here = changes, clock, lives_here

    def began(self, tenant: Tenant, life: Life) -> None:
        """A new process, of which nothing was heard yet."""
        if self.life is not None and self.life.sessions is not None:
            self._before = self.life
        self.tenant, self.workspace, self.life = tenant, tenant.workspace, life
        life.listeners.append(self._heard)

    # ---- what is known

    def session(self, id_: str) -> Session | None:
        """One that is open, be it a root or a child; of a workspace that was closed there is none."""
        if self.life is None or not self._lives_here(self.tenant):
            return None
        life = self.life if self.life.sessions is not None else self._before or self.life
        found = life.watcher.session(id_)
        return found if found is not None and found.time.archived is None else None

    def roots(self) -> list[Session]:
        """The one that was used last first."""
        found = (self.session(one.id) for one in self.tenant.agent.sessions)
        return [one for one in found if one is not None]

    def last_used(self) -> dict[str, float]:
        """When each of them was, or a child of it: tools that are run by name leave the session itself as it was."""
        found = {one.id: one.time.updated for one in self.roots()}
        for id_, updated in self.life.watcher.last_used.items() if self.life is not None else ():
            found[id_] = max(found.get(id_, 0), updated)
        return found

    def state(self, id_: str) -> SessionState | None:
        if self.life is not None and self.life is self.tenant.agent.life and self.life.sessions is not None:
            return self.life.watcher.state(id_)
        return next((one for one in self.tenant.agent.sessions if one.id == id_), None)

    def running(self, id_: str) -> bool:
        """Whether it is in the middle of a turn."""
        state = self.state(id_)
        return state is not None and state.state in _RUNNING

    async def info(self, session: Session, notes: tuple[str, ...] = ()) -> SessionInfo:
        return self.told(session, await self.ledger.tally(session), notes)

    def told(self, session: Session, tally: Tally, notes: tuple[str, ...]) -> SessionInfo:
        state = self.state(session.id)
        status, error = _status(state, tally)
        return SessionInfo(
            id=session.id,
            directory=session.directory,
            status=status,
            message_count=tally.count,
            last_activity=session.time.updated,
            project=self.workspace.project.id,
            workspace=self.workspace.name,
            title=session.title,
            agent=session.agent,
            model=str(session.model) if session.model is not None else None,
            opencode=state.state if state is not None else "idle",
            detail=state.detail if state is not None else "",
            error=error,
            parent=session.parent,
            notes=notes,
        )

    def asks(self, session: str | None = None) -> list[AskShown]:
        """What its sessions wait for, or one of them."""
        one = self.workspace
        return [
            ask_shown(ask, state.id, one.project.id, one.name)
            for state in self.tenant.agent.sessions
            if session in (None, state.id)
            for ask in state.asks
        ]

    # ---- what is used

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[Life]:
        """The agent, started or woken if it has to be, with its sessions known; kept awake for the block."""
        if not self._lives_here(self.tenant):
            # Whoever still waits for something of it must not start it again.
            message = f"{self.workspace.name} was closed, or its agent was stopped"
            raise RookeryError("agent-unavailable", message, "start it: rookery agent start")
        async with self.tenant.agent.used() as life:
            await life.watcher.known()
            yield life

    # ---- what is heard

    def _heard(self, event: Event) -> None:
        match event:
            case MessageSeen() | MessageGone() | PartSeen() | PartGrew() | PartGone():
                self.ledger.hear(event)
                self._mark("messages", event.session)
            case ToastShown():
                self.toasts.add(event, self._clock.wall() * 1000)
                self._mark("toasts", None)
            case Renewed():
                self._before = None
                self.ledger.renewed(self._unchanged)
                self._mark("messages", None)
                self._mark("session", None)
            case Ended():
                self.ends += 1
                self._mark("session", None)
            case SessionSeen(session):
                self.ledger.seen(session)
                self._mark("session", session.id)
            case SessionGone(id_):
                self.ledger.drop(id_)
                self._mark("session", id_)
            case TurnFailed():
                self.ledger.hear(event)
                self._mark("session", event.session or None)
            case DoingChanged(id_, _):
                self._mark("session", id_)
            case _:
                # An ask may be of a child that works for somebody.
                self._mark("session", None)

    def _unchanged(self, id_: str, updated: float) -> bool:
        session = self.session(id_)
        return session is not None and session.time.updated == updated and not self.running(id_)

    def _mark(self, what: Literal["session", "messages", "toasts"], session: str | None) -> None:
        self._changes.mark(Change(what, self.path, session))


def _status(state: SessionState | None, tally: Tally) -> tuple[Status, str | None]:
    if state is not None and state.state in _RUNNING:
        return "active", None
    if state is not None and state.state == "interrupted":
        return "error", tally.error or _CUT_OFF
    return ("error", tally.error) if tally.error is not None else ("idle", None)
