"""Turn an agent's events into the events of plugins: sessions, whole messages, and tools. No I/O."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

import msgspec

from rookery.agents.opencode.events import (
    AgentEvent,
    AgentMessageEvent,
    AskAnswered,
    AskOpened,
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    SessionDeleted,
    SessionStatusChanged,
    SessionUpdated,
    SnapshotLoaded,
    ToastShown,
    TurnFailed,
)
from rookery.agents.opencode.records import Ask, MessageInfo, Part, Session
from rookery.agents.status import SessionState
from rookery.plugins.api import AskEvent, Event, MessageEvent, SessionEvent, ToastEvent, ToolEvent
from rookery.sessions.conversion import (
    ABORTED_ERROR,
    EXECUTE_TOOL_ORIGIN,
    convert_ask,
    convert_tool_run,
    describe_error,
    is_hidden,
    truncate_text,
)
from rookery.sessions.toasts import ToastLog
from rookery.workspaces.model import Workspace, format_path

# At most this many messages and this many tool runs are remembered.
_MAX_ENTRIES = 2000
_ENDED = ("completed", "error")

_read_part = msgspec.json.Decoder(Part)

_RUNNING = ("busy", "retry", "asking")
_MESSAGE_EVENTS = get_args(AgentMessageEvent)


@dataclass
class _Message:
    session: str
    info: MessageInfo | None = None
    texts: dict[str, str] = field(default_factory=dict[str, str])
    reported: bool = False


class MessageObserver:
    """Turns events about messages into events about whole messages and tool runs."""

    def __init__(self) -> None:
        self._messages: OrderedDict[str, _Message] = OrderedDict()
        # By id of the part: the session of a tool run, and whether its end was reported.
        self._tools: OrderedDict[str, tuple[str, bool]] = OrderedDict()

    def on_event(self, event: MessageUpdated | MessageRemoved | PartUpdated) -> Iterator[Event]:
        """Yield the plugin events that an agent's event leads to."""
        match event:
            case MessageUpdated(session, info):
                message = self._message(session, info.id)
                message.info = info
                yield from self._report_if_complete(message)
            case MessageRemoved(_, id_):
                self._messages.pop(id_, None)
            case PartUpdated(session, raw):
                yield from self.on_part(session, raw)

    def on_part(self, session: str, raw: msgspec.Raw, origin: str | None = None) -> Iterator[Event]:
        """Yield the events of a part. With an `origin`, which only tools have, it is from a hidden child."""
        try:
            part = _read_part.decode(raw)
        except ValueError:
            return
        if part.type == "text" and origin is None:
            message = self._message(session, part.message)
            if not message.reported:
                message.texts[part.id] = truncate_text(part.text or "")
                yield from self._report_if_complete(message)
        elif part.type == "tool" and part.state is not None:
            yield from self._tool(session, part, part.state.status, origin)

    def forget(self, session: str) -> None:
        for id_ in [id_ for id_, message in self._messages.items() if message.session == session]:
            del self._messages[id_]
        for id_ in [id_ for id_, (owner, _) in self._tools.items() if owner == session]:
            del self._tools[id_]

    def _message(self, session: str, id_: str) -> _Message:
        message = self._messages.setdefault(id_, _Message(session))
        while len(self._messages) > _MAX_ENTRIES:
            self._messages.popitem(last=False)
        return message

    def _report_if_complete(self, message: _Message) -> Iterator[Event]:
        """Yield a message once it is complete: a user's with its first text, the assistant's when OpenCode says so."""
        info = message.info
        if info is None or message.reported:
            return
        if (info.role == "user" and message.texts) or info.time.completed is not None or info.error is not None:
            message.reported = True
            content = "\n".join(filter(None, message.texts.values()))
            message.texts.clear()
            yield MessageEvent(
                hook="message.added",
                session_id=message.session,
                message_id=info.id,
                role=info.role,
                content=content,
                error=describe_error(info.error) if info.error is not None else None,
            )

    def _tool(self, session: str, part: Part, status: str, origin: str | None) -> Iterator[Event]:
        previous = self._tools.get(part.id)
        ended = status in _ENDED
        if status == "pending" or (previous is not None and (previous[1] or not ended)):
            return
        self._tools[part.id] = session, ended
        while len(self._tools) > _MAX_ENTRIES:
            self._tools.popitem(last=False)
        run = convert_tool_run(part, session, origin)
        if previous is None:
            yield ToolEvent(hook="tool.started", session_id=session, run=run)
        if ended:
            yield ToolEvent(hook="tool.finished", session_id=session, run=run)


class SessionLookup(Protocol):
    """The sessions that an agent's watcher knows."""

    @property
    def sessions(self) -> tuple[SessionState, ...]: ...

    def session(self, id_: str) -> Session | None: ...


class SessionObserver:
    """Turns agent events into plugin events, across all processes of an agent. `wants` checks whether hooks exist."""

    def __init__(self, workspace: Workspace, wants: Callable[..., bool]) -> None:
        self._event_fields = {
            "project": workspace.project.id,
            "workspace": workspace.name,
            "path": format_path(workspace.path),
        }
        self._wants = wants
        self._toasts = ToastLog(workspace.project.id, workspace.name)
        # The last reported state of each session: whether it runs.
        self._reported: dict[str, bool] = {}
        self._sessions: dict[str, Session] = {}
        self._asks: dict[str, AskEvent] = {}
        self._messages = MessageObserver()
        self._has_snapshot = False

    def on_event(self, event: AgentEvent, lookup: SessionLookup, now: float) -> list[Event]:
        """Return the plugin events for an agent's event. `lookup` is the state after it; `now` is in milliseconds."""
        # There are so many events about messages that they are skipped at once if no plugin wants them.
        if isinstance(event, _MESSAGE_EVENTS) and not self._wants("message.added", "tool.started", "tool.finished"):
            return []
        return [
            msgspec.structs.replace(plugin_event, at=now, **self._event_fields)
            for plugin_event in self._convert(event, lookup, now)
        ]

    def current_events(self, now: float) -> list[Event]:
        """Return the current state and the open asks of each session as events, for a plugin that starts later."""
        events: list[Event] = [self._state(id_, runs, found=True) for id_, runs in self._reported.items()]
        events += [msgspec.structs.replace(ask, found=True) for ask in self._asks.values()]
        return [msgspec.structs.replace(event, at=now, **self._event_fields) for event in events]

    def _convert(self, event: AgentEvent, lookup: SessionLookup, now: float) -> Iterator[Event]:
        match event:
            case SnapshotLoaded():
                yield from self._on_snapshot(lookup)
            case SessionUpdated(session) if not is_hidden(session):
                yield from self._on_session(session, lookup)
            case SessionDeleted(id_):
                yield from self._on_deleted(id_)
            case SessionStatusChanged(id_, doing):
                yield from self._on_status(id_, doing.type != "idle", lookup)
            case AskOpened(ask):
                yield from self._on_ask(ask, lookup)
            case AskAnswered(_, id_):
                yield from self._close_asks(lambda ask_event: ask_event.ask.id == id_)
            case TurnFailed(id_, error) if self._remember(id_, lookup):
                aborted = error.name == ABORTED_ERROR
                yield self._session("session.error", id_, error=describe_error(error), aborted=aborted)
            case ToastShown():
                yield ToastEvent(hook="toast.shown", toast=self._toasts.add(event, now))
            case MessageUpdated() | MessageRemoved() | PartUpdated():
                yield from self._on_message(event, lookup)
            case _:
                pass

    # Sessions

    def _on_snapshot(self, lookup: SessionLookup) -> Iterator[Event]:
        """Yield the changes since the last snapshot; the first snapshot gives the current states, marked as `found`."""
        first, self._has_snapshot = not self._has_snapshot, True
        states = {state.id: state for state in lookup.sessions}
        for id_ in [session_id for session_id in self._reported if lookup.session(session_id) is None]:
            yield from self._on_deleted(id_)
        for id_, state in states.items():
            if not self._remember(id_, lookup):
                continue
            runs = state.state in _RUNNING
            if id_ not in self._reported and not first:
                yield self._session("session.created", id_)
            if self._reported.get(id_) is not runs:
                self._reported[id_] = runs
                yield self._state(id_, runs, found=first)
            open_asks = {ask.id for ask in state.asks}
            closed_asks = {key for key, ask_event in self._asks.items() if ask_event.session_id == id_} - open_asks
            yield from self._close_asks(lambda ask_event, closed_asks=closed_asks: ask_event.ask.id in closed_asks)
            for ask in state.asks:
                if ask.id not in self._asks:
                    yield from self._on_ask(ask, lookup, found=first)

    def _on_session(self, session: Session, lookup: SessionLookup) -> Iterator[Event]:
        if lookup.session(session.id) is None:
            # The session was archived, or belongs to another folder.
            yield from self._on_deleted(session.id)
            return
        self._sessions[session.id] = session
        if session.id not in self._reported:
            self._reported[session.id] = False
            yield self._session("session.created", session.id)

    def _on_deleted(self, id_: str) -> Iterator[Event]:
        if id_ in self._reported:
            yield from self._close_asks(lambda ask_event: ask_event.session_id == id_)
            yield self._session("session.closed", id_)
        self._reported.pop(id_, None)
        self._sessions.pop(id_, None)
        self._messages.forget(id_)

    def _on_status(self, id_: str, runs: bool, lookup: SessionLookup) -> Iterator[Event]:
        if not self._remember(id_, lookup):
            return
        if not runs:
            # OpenCode sends no event for an open ask when its turn is aborted.
            yield from self._close_asks(lambda ask_event: ask_event.ask.asked_by == id_)
        if self._reported.get(id_, False) is not runs:
            self._reported[id_] = runs
            yield self._state(id_, runs)

    def _on_message(
        self, event: MessageUpdated | MessageRemoved | PartUpdated, lookup: SessionLookup
    ) -> Iterator[Event]:
        """Yield the events of a message. A tool called by name runs in a hidden child, and counts for its parent."""
        if self._remember(event.session, lookup):
            yield from self._messages.on_event(event)
        elif (child := lookup.session(event.session)) is not None and child.parent and isinstance(event, PartUpdated):
            yield from self._messages.on_part(child.parent, event.part, EXECUTE_TOOL_ORIGIN)

    # Asks

    def _on_ask(self, ask: Ask, lookup: SessionLookup, found: bool = False) -> Iterator[Event]:
        root = self._root(ask.session, lookup)
        if root is not None:
            converted = convert_ask(ask, root, self._event_fields["project"], self._event_fields["workspace"])
            event = self._asks[ask.id] = AskEvent(hook="ask.opened", session_id=root, ask=converted, found=found)
            yield event

    def _close_asks(self, which: Callable[[AskEvent], bool]) -> Iterator[Event]:
        for event in [ask_event for ask_event in self._asks.values() if which(ask_event)]:
            del self._asks[event.ask.id]
            yield msgspec.structs.replace(event, hook="ask.answered", found=False)

    def _root(self, id_: str, lookup: SessionLookup) -> str | None:
        session = lookup.session(id_)
        for _ in range(100):
            if session is None or session.parent is None:
                break
            session = lookup.session(session.parent)
        return session.id if session is not None else None

    # Helpers

    def _remember(self, id_: str, lookup: SessionLookup) -> bool:
        """Remember a session, and return whether plugins may receive its events."""
        session = lookup.session(id_)
        if session is None or is_hidden(session):
            return False
        self._sessions[id_] = session
        return True

    def _state(self, id_: str, runs: bool, found: bool = False) -> SessionEvent:
        return self._session("session.busy" if runs else "session.idle", id_, found=found)

    def _session(self, hook: str, id_: str, **more: Any) -> SessionEvent:
        session = self._sessions.get(id_)
        title, parent = (session.title, session.parent) if session is not None else ("", None)
        return SessionEvent(hook=hook, session_id=id_, title=title, parent=parent, **more)
