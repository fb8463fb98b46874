"""Index the sessions of all workspaces whose agent has run, with their state, and notify listeners of changes.

`SessionIndex` finds the sessions that a caller may see. `WorkspaceSessions` holds the sessions of one workspace: the
state that the agent's watcher reports, their messages and toasts. Changes are collected and delivered once per turn of
the event loop. The daemon's event stream gets state changes and toasts only: messages would be too many.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rookery.agents.manager import AgentManager
from rookery.agents.opencode.events import (
    AgentEvent,
    MessageRemoved,
    MessageUpdated,
    PartDelta,
    PartRemoved,
    PartUpdated,
    ProcessEnded,
    SessionDeleted,
    SessionStatusChanged,
    SessionUpdated,
    SnapshotLoaded,
    ToastShown,
    TurnFailed,
)
from rookery.agents.opencode.records import Session
from rookery.agents.run import AgentRun
from rookery.agents.status import SessionState
from rookery.agents.workspace_agent import WorkspaceAgent
from rookery.sessions.conversion import convert_ask, is_hidden
from rookery.sessions.records import SessionAsk, SessionChange, SessionInfo, SessionStatus, Toast, session_not_found
from rookery.sessions.terminal.regions import ScreenToast
from rookery.sessions.toasts import ToastLog
from rookery.sessions.transcript_store import TranscriptCache, TranscriptStore, TranscriptSummary
from rookery.system.bus import Bus
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix
from rookery.workspaces.model import format_path

ChangeListener = Callable[[frozenset[SessionChange]], None]

_MAX_CLAIMED = 1000
_RUNNING_STATES = ("busy", "retry", "asking")
_CUT_OFF = "its last turn was cut off; resume it: rookery agent resume"
# How long to wait for running agents to report their sessions, before all sessions are listed.
_REPORT_SECONDS = 10.0
# How long to wait for agents to start and to report their sessions. Shorter than the time limits of MCP clients.
_START_SECONDS = 50.0
# How many sessions are counted at the same time.
_MAX_CONCURRENT_READS = 8


class ChangeNotifier:
    """Collects changes of sessions and notifies listeners once per turn of the event loop. Not thread-safe."""

    def __init__(self) -> None:
        self._listeners: dict[object, ChangeListener] = {}
        self._pending: set[SessionChange] = set()

    def listen(self, listener: ChangeListener) -> Callable[[], None]:
        """Add a listener and return a function that removes it."""
        key = object()
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def notify(self, change: SessionChange) -> None:
        """Record a change, and schedule the notification if it is the first one of this turn of the loop."""
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._pending.add(change)

    def _deliver(self) -> None:
        changes, self._pending = frozenset(self._pending), set()
        for listener in list(self._listeners.values()):
            try:
                listener(changes)
            except Exception as error:
                # Log it as a crash, and still notify the other listeners, among them callers that wait for a session.
                loop = asyncio.get_running_loop()
                loop.call_exception_handler({"message": "a listener for session changes failed", "exception": error})


class WorkspaceSessions:
    """The sessions of one workspace.

    Created with the first process of its agent, and kept when the agent is restarted.
    """

    def __init__(
        self,
        workspace_agent: WorkspaceAgent,
        cache: TranscriptCache,
        changes: ChangeNotifier,
        clock: Clock,
        is_current: Callable[[WorkspaceAgent], bool],
    ) -> None:
        self.workspace_agent = workspace_agent
        self.workspace = workspace_agent.workspace
        self.path = format_path(workspace_agent.workspace.path)
        self.toasts = ToastLog(workspace_agent.workspace.project.id, workspace_agent.workspace.name)
        self.transcripts = TranscriptStore(cache, self.use_agent)
        # The last process. Its state is still reported after it has ended.
        self.agent_run: AgentRun | None = None
        # The process before it, until the new one has reported its sessions.
        self._previous_run: AgentRun | None = None
        # The number of messages being sent to each session, and the ids of new messages that were already matched to a
        # sent one.
        self.sending: Counter[str] = Counter()
        self.matched_messages: deque[str] = deque(maxlen=_MAX_CLAIMED)
        # The number of processes that have ended.
        self.ended_runs = 0
        self._changes = changes
        self._clock = clock
        self._is_current = is_current

    def on_started(self, workspace_agent: WorkspaceAgent, agent_run: AgentRun) -> None:
        """Use a new process of the agent, which has not reported its sessions yet."""
        if self.agent_run is not None and self.agent_run.sessions is not None:
            self._previous_run = self.agent_run
        self.workspace_agent = workspace_agent
        self.workspace = workspace_agent.workspace
        self.agent_run = agent_run
        agent_run.listeners.append(self._on_event)

    # Queries

    def session(self, id_: str) -> Session | None:
        """Return an open root or child session, or None. A closed workspace has none."""
        if self.agent_run is None or not self._is_current(self.workspace_agent):
            return None
        agent_run = self.agent_run if self.agent_run.sessions is not None else self._previous_run or self.agent_run
        session = agent_run.watcher.session(id_)
        return session if session is not None and session.time.archived is None else None

    def roots(self) -> list[Session]:
        """Return the open root sessions, the most recently used first."""
        sessions = (self.session(state.id) for state in self.workspace_agent.supervisor.sessions)
        return [session for session in sessions if session is not None]

    def children(self) -> list[Session]:
        """Return the open sessions that work for another session."""
        children = self.agent_run.watcher.children if self.agent_run is not None else ()
        return [child for child in children if self.session(child.id) is not None]

    def last_used(self) -> dict[str, float]:
        """Return when each root session, or a child of it, was last used.

        Running a tool by name does not update the session itself.
        """
        times = {session.id: session.time.updated for session in self.roots()}
        for id_, updated in self.agent_run.watcher.last_used.items() if self.agent_run is not None else ():
            times[id_] = max(times.get(id_, 0), updated)
        return times

    def state(self, id_: str) -> SessionState | None:
        """Return the current state of a session, or the last known one while no process has reported its sessions."""
        if (
            self.agent_run is not None
            and self.agent_run is self.workspace_agent.supervisor.run
            and self.agent_run.sessions is not None
        ):
            return self.agent_run.watcher.state(id_)
        return next((state for state in self.workspace_agent.supervisor.sessions if state.id == id_), None)

    def is_running(self, id_: str) -> bool:
        """Return whether a turn runs in a session."""
        state = self.state(id_)
        return state is not None and state.state in _RUNNING_STATES

    async def info(self, session: Session, notes: tuple[str, ...] = ()) -> SessionInfo:
        """Return a session with the summary of its messages, which are read if they were not read before."""
        return self.make_info(session, await self.transcripts.summary(session), notes)

    def make_info(self, session: Session, summary: TranscriptSummary | None, notes: tuple[str, ...]) -> SessionInfo:
        """Return a session as a record. Without `summary`, its messages were not read and `message_count` is None."""
        state = self.state(session.id)
        status, error = _derive_status(state, summary)
        return SessionInfo(
            id=session.id,
            directory=session.directory,
            status=status,
            message_count=summary.count if summary is not None else None,
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

    def asks(self, session: str | None = None) -> list[SessionAsk]:
        """Return the open asks of all sessions, or of one."""
        workspace = self.workspace
        return [
            convert_ask(ask, state.id, workspace.project.id, workspace.name)
            for state in self.workspace_agent.supervisor.sessions
            if session in (None, state.id)
            for ask in state.asks
        ]

    @asynccontextmanager
    async def use_agent(self) -> AsyncGenerator[AgentRun]:
        """Start or wake the agent if necessary, wait until its sessions are known, and keep it awake for the block."""
        if not self._is_current(self.workspace_agent):
            # A caller that still waits for the workspace must not start its agent again.
            message = f"{self.workspace.name} was closed, or its agent was stopped"
            raise RookeryError("agent-unavailable", message, "start it: rookery agent start")
        async with self.workspace_agent.supervisor.keep_awake() as agent_run:
            await agent_run.watcher.wait_for_snapshot()
            yield agent_run

    def add_screen_toast(self, session: str, screen_toast: ScreenToast, seen_at: float) -> Toast | None:
        """Add a toast that the terminal of a session shows, unless the same toast arrived as an event."""
        if self.toasts.is_known(screen_toast.message, seen_at):
            return None
        toast = self.toasts.add_from_screen(screen_toast.title, screen_toast.message, session, seen_at)
        self._mark("toasts", None)
        return toast

    # Events

    def _on_event(self, event: AgentEvent) -> None:
        match event:
            case MessageUpdated() | MessageRemoved() | PartUpdated() | PartDelta() | PartRemoved():
                self.transcripts.apply(event)
                self._mark("messages", event.session)
            case ToastShown():
                self.toasts.add(event, self._clock.wall() * 1000)
                self._mark("toasts", None)
            case SnapshotLoaded():
                self._previous_run = None
                self.transcripts.resync((*self.roots(), *self.children()), self._is_unchanged)
                self._mark("messages", None)
                self._mark("session", None)
            case ProcessEnded():
                self.ended_runs += 1
                self._mark("session", None)
            case SessionUpdated(session):
                self.transcripts.record_update(session)
                self._mark("session", session.id)
            case SessionDeleted(id_):
                self.transcripts.drop(id_)
                self._mark("session", id_)
            case TurnFailed():
                self.transcripts.apply(event)
                self._mark("session", event.session or None)
            case SessionStatusChanged(id_, _):
                self._mark("session", id_)
            case _:
                # The ask may belong to a child session, so the root session is not known here.
                self._mark("session", None)

    def _is_unchanged(self, id_: str, updated: float) -> bool:
        """Return whether a session was not used after `updated` and has no running turn."""
        session = self.session(id_)
        return session is not None and session.time.updated == updated and not self.is_running(id_)

    def _mark(self, what: Literal["session", "messages", "toasts"], session: str | None) -> None:
        self._changes.notify(SessionChange(what, self.path, session))


def _derive_status(state: SessionState | None, summary: TranscriptSummary | None) -> tuple[SessionStatus, str | None]:
    """Return the status of a session, and the error of its last turn."""
    error = summary.error if summary is not None else None
    if state is not None and state.state in _RUNNING_STATES:
        return "active", None
    if state is not None and state.state == "interrupted":
        return "error", error or _CUT_OFF
    return ("error", error) if error is not None else ("idle", None)


@dataclass(frozen=True)
class SessionRef:
    """A session, and the sessions of its workspace."""

    workspace_sessions: WorkspaceSessions
    id: str

    @property
    def session(self) -> Session:
        """The current state of the session. Raises an error if it is no longer open."""
        session = self.workspace_sessions.session(self.id)
        if session is None:
            raise session_not_found(self.id)
        return session

    @property
    def is_running(self) -> bool:
        """Whether a turn runs in the session."""
        return self.workspace_sessions.is_running(self.id)

    async def info(self, notes: tuple[str, ...] = ()) -> SessionInfo:
        """Return the session as a record; its messages are read if they were not read before."""
        return await self.workspace_sessions.info(self.session, notes)

    def cached_info(self) -> SessionInfo:
        """Return the session as a record, without reading any messages."""
        return self.workspace_sessions.make_info(
            self.session, self.workspace_sessions.transcripts.cached_summary(self.id), ()
        )


class SessionIndex:
    """The sessions of every workspace whose agent has run, by workspace."""

    def __init__(self, agents: AgentManager, changes: ChangeNotifier, cache: TranscriptCache, clock: Clock) -> None:
        self._agents = agents
        self._changes = changes
        self._cache = cache
        self._clock = clock
        self._by_workspace: dict[Path, WorkspaceSessions] = {}
        agents.listeners.append(self._on_started)

    def _on_started(self, workspace_agent: WorkspaceAgent, agent_run: AgentRun) -> None:
        """Record a new process of an agent."""
        path = workspace_agent.workspace.path
        if path not in self._by_workspace:
            self._by_workspace[path] = WorkspaceSessions(
                workspace_agent, self._cache, self._changes, self._clock, self._is_current
            )
        self._by_workspace[path].on_started(workspace_agent, agent_run)

    def _is_current(self, workspace_agent: WorkspaceAgent) -> bool:
        """Return whether this agent is still the agent of its workspace."""
        return self._agents.agents.get(workspace_agent.workspace.path) is workspace_agent

    def of_agent(self, workspace_agent: WorkspaceAgent) -> WorkspaceSessions:
        """Return the sessions of a workspace whose agent has run."""
        return self._by_workspace[workspace_agent.workspace.path]

    def find_run(self, workspace: Path) -> AgentRun | None:
        """Return the running process of the agent of a workspace."""
        workspace_sessions = self._by_workspace.get(workspace)
        if workspace_sessions is None or not self._is_current(workspace_sessions.workspace_agent):
            return None
        return workspace_sessions.workspace_agent.supervisor.run

    async def find_root(self, workspace: Path, id_: str) -> str | None:
        """Return the root that a session works for, or its own id; None if the agent has no such session."""
        if (agent_run := self.find_run(workspace)) is None:
            return None
        await self.wait_until_known([self._by_workspace[workspace]])
        while True:
            session = agent_run.watcher.session(id_)
            if session is None:
                try:
                    # A child whose creation was not reported yet.
                    session = await agent_run.client.session(id_)
                except RookeryError:
                    return None
                agent_run.watcher.apply_early(SessionUpdated(session))
            if session.parent is None:
                return id_
            id_ = session.parent

    def visible_to(self, scope: Path | None) -> list[WorkspaceSessions]:
        """Return the sessions of each workspace that the caller may see, and drop those of closed workspaces."""
        for path in self._by_workspace.keys() - self._agents.agents.keys():
            self._by_workspace.pop(path).transcripts.clear()
        return [workspace_sessions for path, workspace_sessions in self._by_workspace.items() if scope in (None, path)]

    async def find(self, id_: str, scope: Path | None) -> SessionRef:
        """Return the session with this id, or the only one whose id starts with it.

        If the sessions are not known yet, as after a start of the daemon, wait for agents to report them.
        """
        await self._wait_for_agents(id_, scope)
        ref = await self._find(id_, scope)
        if ref is None and await self.wait_until_all_known(scope):
            ref = await self._find(id_, scope)
        if ref is None:
            raise self._not_found_error(id_, scope)
        return ref

    async def _find(self, id_: str, scope: Path | None) -> SessionRef | None:
        """Find a session by its id or prefix, else ask the agents for a child that they have not reported.

        Hidden ones do not count.
        """
        workspaces = self.visible_to(scope)
        await self.wait_until_known(workspaces)
        for workspace_sessions in workspaces:
            if (session := workspace_sessions.session(id_)) is not None:
                if is_hidden(session):
                    break
                return SessionRef(workspace_sessions, id_)
        if (match := _match_prefix(id_, workspaces)) is not None:
            return match
        results = await asyncio.gather(
            *(self._fetch_unreported(workspace_sessions, id_) for workspace_sessions in workspaces)
        )
        for workspace_sessions, exists in zip(workspaces, results, strict=True):
            if exists:
                return SessionRef(workspace_sessions, id_)
        return None

    async def last(self, scope: Path | None) -> SessionRef:
        """Return the root session that was used most recently."""
        workspaces = self.visible_to(scope)
        await self.wait_until_known(workspaces)
        candidates = [
            (used, workspace_sessions, id_)
            for workspace_sessions in workspaces
            for id_, used in workspace_sessions.last_used().items()
            if workspace_sessions.session(id_)
        ]
        if not candidates:
            raise RookeryError("session-not-found", "there is no open session", "create one: create_session")
        _, workspace_sessions, id_ = max(candidates, key=lambda candidate: candidate[0])
        return SessionRef(workspace_sessions, id_)

    async def list_open(self, scope: Path | None) -> list[SessionInfo]:
        """Return all root sessions, the most recently used first."""
        workspaces = self.visible_to(scope)
        await self.wait_until_known(workspaces)
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT_READS)

        async def get_info(workspace_sessions: WorkspaceSessions, session: Session) -> SessionInfo | None:
            async with semaphore:
                try:
                    return await workspace_sessions.info(session)
                except RookeryError as error:
                    # An agent that does not work must not hide the sessions of other agents, nor its own.
                    return (
                        workspace_sessions.make_info(session, TranscriptSummary(), (error.message,))
                        if error.code != "session-not-found"
                        else None
                    )

        infos = await asyncio.gather(
            *(
                get_info(workspace_sessions, session)
                for workspace_sessions in workspaces
                for session in workspace_sessions.roots()
            )
        )
        return sorted(filter(None, infos), key=lambda info: (-info.last_activity, info.id))

    @asynccontextmanager
    async def use_agent(self, ref: SessionRef) -> AsyncGenerator[AgentRun]:
        """Keep the agent of a session awake until the end of the block."""
        async with ref.workspace_sessions.use_agent() as agent_run:
            yield agent_run

    async def wait_until_known(self, workspaces: Iterable[WorkspaceSessions]) -> None:
        """Wait up to 10 s for running agents that have not reported their sessions yet."""
        agent_runs = [
            workspace_sessions.agent_run
            for workspace_sessions in workspaces
            if workspace_sessions.agent_run is workspace_sessions.workspace_agent.supervisor.run
        ]
        waiting = [
            agent_run.watcher.wait_for_snapshot()
            for agent_run in agent_runs
            if agent_run is not None and agent_run.sessions is None
        ]
        if waiting:
            try:
                async with asyncio.timeout(_REPORT_SECONDS):
                    await asyncio.gather(*waiting)
            except TimeoutError:
                pass  # the sessions of the other agents are known

    async def wait_until_all_known(self, scope: Path | None) -> bool:
        """Wait up to 50 s for agents that are starting to report their sessions; return whether there were any."""
        waited = not self._agents.restored.is_set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self._agents.restored.wait()
                starting = [
                    workspace_agent
                    for path, workspace_agent in self._agents.agents.items()
                    if scope in (None, path) and (workspace_agent.is_starting or _has_unknown_sessions(workspace_agent))
                ]
                waited = waited or bool(starting)
                await asyncio.gather(*map(_wait_until_known, starting))
        return waited

    async def wait_until_known_in(self, project: str, workspace: str) -> None:
        """Wait up to 50 s until the sessions of a workspace are known, if its agent is starting.

        If it has none, but a first prompt is about to be sent, wait for the session of that prompt.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self._agents.restored.wait()
                for entry in self._agents.workspaces():
                    if (entry.project.id, entry.name) == (project, workspace):
                        await self.wait_until_all_known(entry.path)
                        workspace_agent = self._agents.agents.get(entry.path)
                        if workspace_agent is not None and workspace_agent.is_prompt_pending:
                            await workspace_agent.wait_until_prompted()

    async def _wait_for_agents(self, id_: str, scope: Path | None) -> None:
        """Wait up to 50 s for starting agents that had this session before, as after a start of the daemon."""
        starting = [
            workspace_agent.supervisor.ensure_running()
            for path, workspace_agent in self._agents.agents.items()
            if scope in (None, path) and _is_starting(workspace_agent) and workspace_agent.activity.find_ids(id_)
        ]
        if starting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    # An agent that fails to start has no sessions, and the caller gets an error for the session.
                    await asyncio.gather(*starting, return_exceptions=True)

    async def _fetch_unreported(self, workspace_sessions: WorkspaceSessions, id_: str) -> bool:
        """Ask an agent for a session that it has not reported yet, such as a new child.

        Return whether the session exists and is not hidden.
        """
        agent_run = workspace_sessions.workspace_agent.supervisor.run
        if agent_run is None or agent_run.sessions is None:
            return False
        try:
            session = await agent_run.client.session(id_)
        except RookeryError:
            return False
        agent_run.watcher.apply_early(SessionUpdated(session))
        return workspace_sessions.session(id_) is not None and not is_hidden(session)

    def _not_found_error(self, id_: str, scope: Path | None) -> RookeryError:
        """Return the error for an unknown session. Its remedy names agents that are still starting."""
        error = session_not_found(id_)
        workspace_agents = [
            workspace_agent for path, workspace_agent in self._agents.agents.items() if scope in (None, path)
        ]
        names = [
            workspace_agent.workspace.name for workspace_agent in workspace_agents if _is_starting(workspace_agent)
        ]
        if names:
            error.remedy = f"the agent of {', '.join(names)} is still starting: try again in a moment"
        return error


def _is_starting(workspace_agent: WorkspaceAgent) -> bool:
    return workspace_agent.supervisor.state in ("starting", "restarting")


def _has_unknown_sessions(workspace_agent: WorkspaceAgent) -> bool:
    """Return whether the agent runs and has not reported its sessions."""
    agent_run = workspace_agent.supervisor.run
    return agent_run is not None and agent_run.sessions is None


async def _wait_until_known(workspace_agent: WorkspaceAgent) -> None:
    """Wait until an agent that is starting has reported its sessions."""
    await workspace_agent.wait_until_started()
    if (agent_run := workspace_agent.supervisor.run) is not None:
        await agent_run.watcher.wait_for_snapshot()


def _match_prefix(prefix: str, workspaces: Sequence[WorkspaceSessions]) -> SessionRef | None:
    """Return the session whose id starts with `prefix`.

    Lists show roots only, so a child counts only if no root matches.
    """
    roots = {
        session.id: workspace_sessions for workspace_sessions in workspaces for session in workspace_sessions.roots()
    }
    children = {
        session.id: workspace_sessions
        for workspace_sessions in workspaces
        for session in workspace_sessions.children()
        if not is_hidden(session)
    }
    for candidates in (roots, children):
        if (id_ := match_prefix(prefix, candidates, "sessions")) is not None:
            return SessionRef(candidates[id_], id_)
    return None


class SessionEventPublisher:
    """Publishes `session.changed` for new and changed sessions, `session.closed` and `session.toast`."""

    def __init__(self, index: SessionIndex, changes: ChangeNotifier, events: Bus) -> None:
        self._index = index
        self._events = events
        # The state that was last published of each workspace: its sessions, and its number of toasts.
        self._published: dict[str, tuple[tuple[SessionState, ...], int]] = {}
        changes.listen(self._on_changed)

    def _on_changed(self, changes: frozenset[SessionChange]) -> None:
        paths = {change.workspace for change in changes if change.what != "messages"}
        if not paths:
            return
        workspaces = {
            workspace_sessions.path: workspace_sessions for workspace_sessions in self._index.visible_to(None)
        }
        for path in self._published.keys() - workspaces.keys():
            # The workspace was closed, for which there is an event of its own.
            del self._published[path]
        for path in paths & workspaces.keys():
            self._publish_changes(workspaces[path])

    def _publish_changes(self, workspace_sessions: WorkspaceSessions) -> None:
        current = workspace_sessions.workspace_agent.supervisor.sessions, workspace_sessions.toasts.count
        # Sessions that existed before the agent started have not changed.
        previous = self._published.get(workspace_sessions.path, (current[0], 0))
        self._published[workspace_sessions.path] = current
        if current[0] is not previous[0]:
            self._publish_sessions(
                workspace_sessions, dict(map(_describe_state, previous[0])), dict(map(_describe_state, current[0]))
            )
        for toast in workspace_sessions.toasts.added_since(previous[1]):
            self._publish("session.toast", workspace_sessions, toast=toast.as_dict())

    def _publish_sessions(
        self, workspace_sessions: WorkspaceSessions, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        for id_, state in after.items():
            if state != before.get(id_):
                self._publish("session.changed", workspace_sessions, session=state)
        for id_ in before.keys() - after.keys():
            self._publish("session.closed", workspace_sessions, session={"id": id_})

    def _publish(self, event: str, workspace_sessions: WorkspaceSessions, **more: Any) -> None:
        workspace = workspace_sessions.workspace
        self._events.publish(
            event, project=workspace.project.id, name=workspace.name, path=workspace_sessions.path, **more
        )


def _describe_state(state: SessionState) -> tuple[str, dict[str, Any]]:
    """Return the id of a session and the fields that `session.changed` has."""
    return state.id, {"id": state.id, "title": state.title, "opencode": state.state, "asks": len(state.asks)}
