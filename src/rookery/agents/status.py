"""What an agent's sessions do, and the agent's status, from snapshots and events. Touches nothing outside."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from rookery.agents.events import Answered, Asked, DoingChanged, Event, SessionGone, SessionSeen
from rookery.agents.records import Ask, Doing, Session
from rookery.workspaces.agent import AgentStatus, Counts

State = Literal["idle", "busy", "retry", "asking", "interrupted"]
_BUSY: tuple[State, ...] = ("busy", "retry")
_ATTENTION: tuple[State, ...] = ("asking", "interrupted")


class SessionState(msgspec.Struct, frozen=True):
    """`asks` are what it waits for, those of its children included; `detail` is why the model is asked again."""

    id: str
    title: str
    state: State
    asks: tuple[Ask, ...] = ()
    detail: str = ""
    updated: float = 0

    @property
    def wants_attention(self) -> bool:
        return self.state in _ATTENTION


@dataclass(frozen=True)
class Snapshot:
    """All that was read at once: `doing` of those that are not idle, `cut_off` of those that are."""

    sessions: tuple[Session, ...] = ()
    doing: Mapping[str, Doing] = field(default_factory=dict[str, Doing])
    asks: tuple[Ask, ...] = ()
    cut_off: frozenset[str] = frozenset()


class StatusBook:
    """Of the root sessions of `directory`. A snapshot replaces all that was known.

    Every event says how something is and not how it changed. So those that came while a snapshot was read may be
    heard after it, though it shows some of them already.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.renew(Snapshot())

    def renew(self, snapshot: Snapshot) -> None:
        self._sessions = {one.id: one for one in snapshot.sessions if self._counts(one)}
        self._doing = {id_: doing for id_, doing in snapshot.doing.items() if doing.type != "idle"}
        self._asks = {ask.id: ask for ask in snapshot.asks if ask.session in self._doing}
        self._cut_off = {id_ for id_ in snapshot.cut_off if id_ not in self._doing}

    def hear(self, event: Event) -> None:
        match event:
            case SessionSeen(session):
                if self._counts(session):
                    self._sessions[session.id] = session
                else:
                    self._forget(session.id)
            case SessionGone(id_):
                self._forget(id_)
            case DoingChanged(id_, doing):
                self._do(id_, doing)
            case Asked(ask):
                self._asks[ask.id] = ask
            case Answered(_, id_):
                self._asks.pop(id_, None)
            case _:
                pass

    def session(self, id_: str) -> Session | None:
        return self._sessions.get(id_)

    def state(self, id_: str) -> SessionState | None:
        """Of one that is known, be it a root or a child; a root has the asks of its children too."""
        session = self._sessions.get(id_)
        if session is None:
            return None
        asks = self._asks_by_root().get(id_, ()) if session.parent is None else self._asks_of(id_)
        return self._state(session, tuple(asks))

    def sessions(self) -> tuple[SessionState, ...]:
        """The root sessions, the one that was used last first."""
        asks = self._asks_by_root()
        roots = [one for one in self._sessions.values() if one.parent is None]
        roots.sort(key=lambda one: (-one.time.updated, one.id))
        return tuple(self._state(one, tuple(asks.get(one.id, ()))) for one in roots)

    def last_used(self) -> dict[str, float]:
        """When each root, or a child of it, was used last."""
        found: dict[str, float] = {}
        for session in self._sessions.values():
            if (root := self._root(session.id)) is not None:
                found[root] = max(found.get(root, 0), session.time.updated)
        return found

    def _state(self, session: Session, asks: tuple[Ask, ...]) -> SessionState:
        doing = self._doing.get(session.id)
        state: State = "interrupted" if session.id in self._cut_off else "idle"
        if asks:
            state = "asking"
        elif doing is not None:
            state = "retry" if doing.type == "retry" else "busy"
        detail = doing.message if doing is not None else ""
        return SessionState(session.id, session.title, state, asks, detail, session.time.updated)

    def _counts(self, session: Session) -> bool:
        return session.directory == self._directory and session.time.archived is None

    def _do(self, id_: str, doing: Doing) -> None:
        if doing.type == "idle":
            self._doing.pop(id_, None)
            # Nobody says so when a turn that waits for an answer is aborted.
            self._drop_asks(id_)
        else:
            self._doing[id_] = doing
            self._cut_off.discard(id_)

    def _forget(self, id_: str) -> None:
        self._sessions.pop(id_, None)
        self._doing.pop(id_, None)
        self._cut_off.discard(id_)
        self._drop_asks(id_)

    def _drop_asks(self, session: str) -> None:
        self._asks = {id_: ask for id_, ask in self._asks.items() if ask.session != session}

    def _asks_by_root(self) -> dict[str, list[Ask]]:
        found: dict[str, list[Ask]] = {}
        for _, ask in sorted(self._asks.items()):
            if (root := self._root(ask.session)) is not None:
                found.setdefault(root, []).append(ask)
        return found

    def _asks_of(self, id_: str) -> list[Ask]:
        return [ask for _, ask in sorted(self._asks.items()) if ask.session == id_]

    def _root(self, id_: str) -> str | None:
        """A child that asks keeps the session waiting that it works for."""
        seen: set[str] = set()
        while (session := self._sessions.get(id_)) is not None and id_ not in seen:
            if session.parent is None:
                return id_
            seen.add(id_)
            id_ = session.parent
        return None


def aggregate(sessions: Iterable[SessionState]) -> AgentStatus:
    """Of root sessions. Those that wait for a person, and those that were cut off, are idle."""
    states = [one.state for one in sessions]
    busy = sum(state in _BUSY for state in states)
    counts = Counts(len(states) - busy, busy, len(states))
    if not states:
        return AgentStatus("none", counts)
    return AgentStatus("idle" if not busy else "mixed" if counts.idle else "busy", counts)
