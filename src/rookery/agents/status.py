"""State of an agent's sessions, computed from snapshots, events and messages. Does no I/O.

`StatusTracker` applies events to a snapshot, `is_cut_off` and `find_failure` say how the last turn of a session ended,
and `list_needs` lists why sessions need the user.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from rookery.agents.opencode.events import (
    AgentEvent,
    AskAnswered,
    AskOpened,
    SessionDeleted,
    SessionStatusChanged,
    SessionUpdated,
    TurnFailed,
)
from rookery.agents.opencode.records import ABORTED_ERROR, Ask, GatewayPermission, Message, Session, SessionStatus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.workspaces.model import AgentStatus, Need, SessionCounts

TurnState = Literal["idle", "busy", "retry", "asking", "interrupted"]
_BUSY_STATES: tuple[TurnState, ...] = ("busy", "retry")
_RUNNING_STATES = ("busy", "retry", "asking")
_MAX_NAMED = 3
# This many of the newest messages are read: queued prompts come after the message that was cut off.
NEWEST_MESSAGES = 10
CONTINUE_PROMPT = (
    "Your last turn was cut off before it was finished, because the program that it ran in ended. "
    "See how far it came, and go on from there."
)


class TurnFailure(msgspec.Struct, frozen=True):
    """The error of a failed turn, and its time in milliseconds since the epoch."""

    text: str
    at: float


class SessionState(msgspec.Struct, frozen=True):
    """State of a session. `asks` are its open asks, including those of its children; `detail` is the cause of a retry.

    `failure` is the failure of its last turn, if the session is idle since then.
    """

    id: str
    title: str
    state: TurnState
    asks: tuple[Ask, ...] = ()
    detail: str = ""
    updated: float = 0
    failure: TurnFailure | None = None


@dataclass(frozen=True)
class SessionsSnapshot:
    """The sessions, read at one time. `statuses` has those that are not idle, `cut_off` is a subset of the idle ones.

    For sessions whose last messages were read, `failed` has the failure of the last turn. If it did not fail,
    `answered` has the time when the last message of the assistant was begun.
    """

    sessions: tuple[Session, ...] = ()
    statuses: Mapping[str, SessionStatus] = field(default_factory=dict[str, SessionStatus])
    asks: tuple[Ask, ...] = ()
    cut_off: frozenset[str] = frozenset()
    failed: Mapping[str, TurnFailure] = field(default_factory=dict[str, TurnFailure])
    answered: Mapping[str, float] = field(default_factory=dict[str, float])


class StatusTracker:
    """Tracks the states of the root sessions of `directory`. A snapshot replaces the known state.

    Every event contains a state and not a difference. Events that arrived while a snapshot was read may therefore be
    applied after it, though the snapshot already contains some of them.
    """

    def __init__(
        self, directory: str, failed: Mapping[str, TurnFailure] | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._directory = directory
        self._clock = clock
        # Some failures leave no trace in the session: these are known from events, or from an earlier run.
        self._failed = dict(failed or {})
        # Failed sessions whose next turn runs: the failure is over when that turn succeeds.
        self._retried: set[str] = set()
        self._asks: dict[str, Ask] = {}
        self._fill(SessionsSnapshot())

    def load_snapshot(self, snapshot: SessionsSnapshot) -> None:
        """Replace the known state with a snapshot. Keep an earlier failure unless the assistant has replied since."""
        self._fill(snapshot)
        remaining = {
            id_: failure
            for id_, failure in self._failed.items()
            if id_ in self._sessions and snapshot.answered.get(id_, 0) <= failure.at
        }
        self._failed = remaining | dict(snapshot.failed)
        self._retried = self._failed.keys() & self._statuses.keys()

    def _fill(self, snapshot: SessionsSnapshot) -> None:
        self._sessions = {session.id: session for session in snapshot.sessions if self._is_tracked(session)}
        self._statuses = {id_: status for id_, status in snapshot.statuses.items() if status.type != "idle"}
        own = [ask for ask in self._asks.values() if isinstance(ask, GatewayPermission)]
        self._asks = {ask.id: ask for ask in (*snapshot.asks, *own) if ask.session in self._statuses}
        self._cut_off = {id_ for id_ in snapshot.cut_off if id_ not in self._statuses}

    def apply(self, event: AgentEvent) -> None:
        """Apply an event."""
        match event:
            case SessionUpdated(session):
                if self._is_tracked(session):
                    self._sessions[session.id] = session
                else:
                    self._forget(session.id)
            case SessionDeleted(id_):
                self._forget(id_)
            case SessionStatusChanged(id_, doing):
                self._set_status(id_, doing)
            case AskOpened(ask):
                self._asks[ask.id] = ask
            case AskAnswered(_, id_):
                self._asks.pop(id_, None)
            case TurnFailed(id_, error):
                self._retried.discard(id_)
                if id_ and error.name != ABORTED_ERROR:
                    self._failed[id_] = TurnFailure(error.message, self._clock.wall() * 1000)
            case _:
                pass

    def session(self, id_: str) -> Session | None:
        return self._sessions.get(id_)

    def state(self, id_: str) -> SessionState | None:
        """Return the state of a known root or child. The asks of a root include those of its children."""
        session = self._sessions.get(id_)
        if session is None:
            return None
        asks = self._asks_by_root().get(id_, ()) if session.parent is None else self._asks_of(id_)
        return self._state(session, tuple(asks))

    def sessions(self) -> tuple[SessionState, ...]:
        """Return the states of the root sessions, the most recently used first."""
        asks = self._asks_by_root()
        roots = [root for root in self._sessions.values() if root.parent is None]
        roots.sort(key=lambda root: (-root.time.updated, root.id))
        return tuple(self._state(root, tuple(asks.get(root.id, ()))) for root in roots)

    def children(self) -> tuple[Session, ...]:
        return tuple(session for session in self._sessions.values() if session.parent is not None)

    def last_used(self) -> dict[str, float]:
        """Return when each root or one of its children was last used."""
        times: dict[str, float] = {}
        for session in self._sessions.values():
            if (root := self._root(session.id)) is not None:
                times[root] = max(times.get(root, 0), session.time.updated)
        return times

    def _state(self, session: Session, asks: tuple[Ask, ...]) -> SessionState:
        status = self._statuses.get(session.id)
        state: TurnState = "interrupted" if session.id in self._cut_off else "idle"
        if asks:
            state = "asking"
        elif status is not None:
            state = "retry" if status.type == "retry" else "busy"
        detail = status.message if status is not None else ""
        failure = self._failed.get(session.id)
        return SessionState(session.id, session.title, state, asks, detail, session.time.updated, failure)

    def _is_tracked(self, session: Session) -> bool:
        return session.directory == self._directory and session.time.archived is None

    def _set_status(self, id_: str, status: SessionStatus) -> None:
        if status.type == "idle":
            self._statuses.pop(id_, None)
            # OpenCode sends no event for an open ask when its turn is aborted.
            self._drop_asks(id_)
            if id_ in self._retried:
                self._retried.discard(id_)
                self._failed.pop(id_, None)
        else:
            if id_ in self._failed and id_ not in self._statuses:
                self._retried.add(id_)
            self._statuses[id_] = status
            self._cut_off.discard(id_)

    def _forget(self, id_: str) -> None:
        self._sessions.pop(id_, None)
        self._statuses.pop(id_, None)
        self._cut_off.discard(id_)
        self._retried.discard(id_)
        self._failed.pop(id_, None)
        self._drop_asks(id_)

    def _drop_asks(self, session: str) -> None:
        self._asks = {id_: ask for id_, ask in self._asks.items() if ask.session != session}

    def _asks_by_root(self) -> dict[str, list[Ask]]:
        asks: dict[str, list[Ask]] = {}
        for _, ask in sorted(self._asks.items()):
            if (root := self._root(ask.session)) is not None:
                asks.setdefault(root, []).append(ask)
        return asks

    def _asks_of(self, id_: str) -> list[Ask]:
        return [ask for _, ask in sorted(self._asks.items()) if ask.session == id_]

    def _root(self, id_: str) -> str | None:
        """Return the root of a session, or None if it is not known. A child that asks keeps its root waiting."""
        visited: set[str] = set()
        while (session := self._sessions.get(id_)) is not None and id_ not in visited:
            if session.parent is None:
                return id_
            visited.add(id_)
            id_ = session.parent
        return None


def summarize_status(sessions: Iterable[SessionState]) -> AgentStatus:
    """Count root sessions by state. Sessions that wait for a person, and those that were cut off, count as idle."""
    states = [session.state for session in sessions]
    busy = sum(state in _BUSY_STATES for state in states)
    counts = SessionCounts(len(states) - busy, busy, len(states))
    if not states:
        return AgentStatus("none", counts)
    return AgentStatus("idle" if not busy else "mixed" if counts.idle else "busy", counts)


def list_needs(sessions: Iterable[SessionState]) -> Iterator[Need]:
    """Yield one need for each ask and each failed turn, and one for all turns that were cut off."""
    cut_off: list[str] = []
    for session in sessions:
        for ask in session.asks:
            yield Need(ask.kind, f"{session.title or session.id} asks: {ask.text}; rookery session asks", ask.id)
        if session.failure is not None:
            text = f"the last turn of {session.title or session.id} failed: {session.failure.text}; rookery ws dismiss"
            yield Need("turn-failed", text, session.id)
        if session.state == "interrupted":
            cut_off.append(session.title or session.id)
    if cut_off:
        more = f" and {len(cut_off) - _MAX_NAMED} more" if len(cut_off) > _MAX_NAMED else ""
        names = ", ".join(cut_off[:_MAX_NAMED])
        yield Need("interrupted", f"cut off in the middle of a turn: {names}{more}; rookery agent resume")


def mark_interrupted(sessions: Iterable[SessionState]) -> tuple[SessionState, ...]:
    """Return the sessions of a process that has ended: running turns were cut off, and their asks are closed."""
    return tuple(
        msgspec.structs.replace(session, state="interrupted", asks=(), detail="")
        if session.state in _RUNNING_STATES
        else session
        for session in sessions
    )


def is_cut_off(messages: Sequence[Message], *, was_running: bool = False) -> bool:
    """Return whether the last turn of an idle session was cut off. `was_running`: it ran when last observed.

    A prompt without a reply was cut off only if it ran: some messages need no reply.
    """
    last = find_last_reply(messages)
    if was_running and messages and messages[-1] is not last:
        return True
    if last is None or last.info.error is not None:
        return False
    if last.info.time.completed is None:
        return True
    # Between two steps: the model called tools, they ran, and the model never received the results. It does not receive
    # the result of a tool that a person rejected either, but then one of the tools has failed.
    states = [part.state.status for part in last.parts if part.state is not None]
    return last.info.finish == "tool-calls" and bool(states) and "error" not in states


def find_failure(messages: Sequence[Message]) -> TurnFailure | None:
    """Return the failure of the last turn of an idle session; None if it did not fail, or if somebody aborted it."""
    last = find_last_reply(messages)
    if last is None or (error := last.info.error) is None or error.name == ABORTED_ERROR:
        return None
    return TurnFailure(error.message, last.info.time.completed or last.info.time.created)


def find_last_reply(messages: Sequence[Message]) -> Message | None:
    """Return the newest message of the assistant."""
    return next((message for message in reversed(messages) if message.info.role == "assistant"), None)
