"""What happens in the sessions of one workspace, made of its agent's events. Touches nothing outside."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, get_args

import msgspec

from rookery.agents.events import (
    Answered,
    Asked,
    DoingChanged,
    Event as AgentEvent,
    OfMessages,
    Renewed,
    SessionGone,
    SessionSeen,
    TurnFailed,
)
from rookery.agents.message_events import MessageGone, MessageSeen, PartSeen, ToastShown
from rookery.agents.records import Ask, Session
from rookery.agents.status import SessionState
from rookery.plugins.events import AskEvent, Event, SessionEvent, ToastEvent
from rookery.plugins.speech import Speech
from rookery.sessions.hidden import ORIGIN, is_hidden
from rookery.sessions.shown import ABORTED, ask_shown, words
from rookery.sessions.toasts import ToastLog
from rookery.workspaces.record import Workspace, as_text

_RUNNING = ("busy", "retry", "asking")
_OF_MESSAGES = get_args(OfMessages)


class Known(Protocol):
    """What an agent's watcher knows of its sessions."""

    @property
    def sessions(self) -> tuple[SessionState, ...]: ...

    def session(self, id_: str) -> Session | None: ...


class Happenings:
    """Kept over all processes of the workspace's agent. `wants` tells which hooks anybody has."""

    def __init__(self, workspace: Workspace, wants: Callable[..., bool]) -> None:
        self._place = {
            "project": workspace.project.id,
            "workspace": workspace.name,
            "path": as_text(workspace.path),
        }
        self._wants = wants
        self._toasts = ToastLog(workspace.project.id, workspace.name)
        # What was told last of each session: whether it runs.
        self._told: dict[str, bool] = {}
        self._sessions: dict[str, Session] = {}
        self._asks: dict[str, AskEvent] = {}
        self._speech = Speech()
        self._known = False

    def hear(self, event: AgentEvent, known: Known, now: float) -> list[Event]:
        """`known` is as it is after the event; `now` is in milliseconds."""
        # Of messages there is so much that nothing at all is done where nobody wants it.
        if isinstance(event, _OF_MESSAGES) and not self._wants("message.added", "tool.started", "tool.finished"):
            return []
        return [msgspec.structs.replace(one, at=now, **self._place) for one in self._hear(event, known, now)]

    def as_they_are(self, now: float) -> list[Event]:
        """For whoever comes later: what each session does, and what it waits for."""
        found: list[Event] = [self._state(id_, runs, found=True) for id_, runs in self._told.items()]
        found += [msgspec.structs.replace(ask, found=True) for ask in self._asks.values()]
        return [msgspec.structs.replace(one, at=now, **self._place) for one in found]

    def _hear(self, event: AgentEvent, known: Known, now: float) -> Iterator[Event]:
        match event:
            case Renewed():
                yield from self._renewed(known)
            case SessionSeen(session) if not is_hidden(session):
                yield from self._seen(session, known)
            case SessionGone(id_):
                yield from self._gone(id_)
            case DoingChanged(id_, doing):
                yield from self._does(id_, doing.type != "idle", known)
            case Asked(ask):
                yield from self._asked(ask, known)
            case Answered(_, id_):
                yield from self._answered(lambda one: one.ask.id == id_)
            case TurnFailed(id_, error) if self._learn(id_, known):
                aborted = error.name == ABORTED
                yield self._session("session.error", id_, error=words(error), aborted=aborted)
            case ToastShown():
                yield ToastEvent(hook="toast.shown", toast=self._toasts.add(event, now))
            case MessageSeen() | MessageGone() | PartSeen():
                yield from self._said(event, known)
            case _:
                pass

    # ---- sessions

    def _renewed(self, known: Known) -> Iterator[Event]:
        """All may have changed; the first time nothing has, and it is told how things are."""
        first, self._known = not self._known, True
        there = {one.id: one for one in known.sessions}
        for id_ in [one for one in self._told if known.session(one) is None]:
            yield from self._gone(id_)
        for id_, state in there.items():
            if not self._learn(id_, known):
                continue
            runs = state.state in _RUNNING
            if id_ not in self._told and not first:
                yield self._session("session.created", id_)
            if self._told.get(id_) is not runs:
                self._told[id_] = runs
                yield self._state(id_, runs, found=first)
            still = {ask.id for ask in state.asks}
            gone = {key for key, one in self._asks.items() if one.session_id == id_} - still
            yield from self._answered(lambda one, gone=gone: one.ask.id in gone)
            for ask in state.asks:
                if ask.id not in self._asks:
                    yield from self._asked(ask, known, found=first)

    def _seen(self, session: Session, known: Known) -> Iterator[Event]:
        if known.session(session.id) is None:
            # It was put away, or belongs to another folder.
            yield from self._gone(session.id)
            return
        self._sessions[session.id] = session
        if session.id not in self._told:
            self._told[session.id] = False
            yield self._session("session.created", session.id)

    def _gone(self, id_: str) -> Iterator[Event]:
        if id_ in self._told:
            yield from self._answered(lambda one: one.session_id == id_)
            yield self._session("session.closed", id_)
        self._told.pop(id_, None)
        self._sessions.pop(id_, None)
        self._speech.forget(id_)

    def _does(self, id_: str, runs: bool, known: Known) -> Iterator[Event]:
        if not self._learn(id_, known):
            return
        if not runs:
            # Nobody says so when a turn that waits for an answer is aborted.
            yield from self._answered(lambda one: one.ask.asked_by == id_)
        if self._told.get(id_, False) is not runs:
            self._told[id_] = runs
            yield self._state(id_, runs)

    def _said(self, event: MessageSeen | MessageGone | PartSeen, known: Known) -> Iterator[Event]:
        """A tool that was run by its name runs in a hidden child, and is its parent's."""
        if self._learn(event.session, known):
            yield from self._speech.hear(event)
        elif (child := known.session(event.session)) is not None and child.parent and isinstance(event, PartSeen):
            yield from self._speech.part(child.parent, event.part, ORIGIN)

    # ---- asks

    def _asked(self, ask: Ask, known: Known, found: bool = False) -> Iterator[Event]:
        root = self._root(ask.session, known)
        if root is not None:
            shown = ask_shown(ask, root, self._place["project"], self._place["workspace"])
            event = self._asks[ask.id] = AskEvent(hook="ask.opened", session_id=root, ask=shown, found=found)
            yield event

    def _answered(self, which: Callable[[AskEvent], bool]) -> Iterator[Event]:
        for event in [one for one in self._asks.values() if which(one)]:
            del self._asks[event.ask.id]
            yield msgspec.structs.replace(event, hook="ask.answered", found=False)

    def _root(self, id_: str, known: Known) -> str | None:
        session = known.session(id_)
        for _ in range(100):
            if session is None or session.parent is None:
                break
            session = known.session(session.parent)
        return session.id if session is not None else None

    # ---- what they share

    def _learn(self, id_: str, known: Known) -> bool:
        """Whether it is a session that anybody may hear of."""
        session = known.session(id_)
        if session is None or is_hidden(session):
            return False
        self._sessions[id_] = session
        return True

    def _state(self, id_: str, runs: bool, found: bool = False) -> SessionEvent:
        return self._session("session.busy" if runs else "session.idle", id_, found=found)

    def _session(self, hook: str, id_: str, **more: Any) -> SessionEvent:
        one = self._sessions.get(id_)
        title, parent = (one.title, one.parent) if one is not None else ("", None)
        return SessionEvent(hook=hook, session_id=id_, title=title, parent=parent, **more)
