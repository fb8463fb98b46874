"""The agents of all workspaces: start, stop and query them.

An agent starts when its workspace is opened and ends when it is closed. One that the user stopped stays stopped until
somebody starts it, also after a restart of the daemon. A workspace can also be opened without its agent.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from rookery.agents import first_prompt
from rookery.agents.activity import ActivityStore
from rookery.agents.admission import FirstTurnLimiter, PreparationBarrier
from rookery.agents.launch import Launcher, agent_log_path
from rookery.agents.opencode.process import read_last_lines
from rookery.agents.policy import SupervisionIntervals
from rookery.agents.run import AgentRun
from rookery.agents.status import SessionState, mark_interrupted
from rookery.agents.workspace_agent import WorkspaceAgent
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix
from rookery.system.store import Store
from rookery.workspaces.model import AgentInfo, AgentSession, AgentStatus, Workspace
from rookery.workspaces.service import Workspaces
from rookery.workspaces.worktrees import read_creation_time, read_git_folder

if TYPE_CHECKING:
    from collections.abc import Callable


_SNAPSHOT_SECONDS = 60.0


class StoppedAgents:
    """The workspaces in which no agent is to run, identified by the workspace's git folder.

    Until `start`, it stays so until somebody starts the agent; until `close`, the workspace was opened without one.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, git_folder: Path) -> Literal["start", "close"] | None:
        """Return until when no agent is to run in this workspace; None if one may."""
        row: tuple[int, Literal["start", "close"]] | None = await self._store.read(
            lambda db: db.execute(
                "SELECT made, until FROM stopped_agents WHERE workspace = ?", (str(git_folder),)
            ).fetchone()
        )
        return row[1] if row is not None and row[0] == read_creation_time(git_folder) else None

    async def add(self, git_folder: Path, until: Literal["start", "close"]) -> None:
        row = (str(git_folder), read_creation_time(git_folder), until)
        await self._store.write(lambda db: db.execute("INSERT OR REPLACE INTO stopped_agents VALUES (?, ?, ?)", row))

    async def drop(self, git_folder: Path) -> None:
        await self._store.write(
            lambda db: db.execute("DELETE FROM stopped_agents WHERE workspace = ?", (str(git_folder),))
        )


class AgentManager:
    """The agents of all workspaces.

    No agent starts before `enable` is called. If the setting `start` is `use`, an agent starts only when it is
    needed.
    """

    def __init__(
        self,
        workspaces: Workspaces,
        launcher: Launcher,
        stopped: StoppedAgents,
        events: Bus,
        *,
        start: Literal["open", "use"] = "open",
        idle_seconds: float = 0.0,
        intervals: SupervisionIntervals = SupervisionIntervals(),  # noqa: B008 - frozen
    ) -> None:
        self.launcher = launcher
        self.barrier = PreparationBarrier(workspaces)
        self._admission = FirstTurnLimiter()
        self._workspaces = workspaces
        self._stopped = stopped
        self._events = events
        self._starts_on_open = start == "open"
        self._idle_seconds = idle_seconds
        self._intervals = intervals
        self.agents: dict[Path, WorkspaceAgent] = {}
        # Cleared while workspaces that were open when the daemon stopped still have to be opened.
        self.restored = asyncio.Event()
        self.restored.set()
        # Called with every new process, before any of its events is received.
        self.listeners: list[Callable[[WorkspaceAgent, AgentRun], None]] = []
        self._enabled = False

    def enable(self) -> None:
        """Allow agents to start."""
        self._enabled = True

    async def close(self) -> None:
        """Stop all agents concurrently."""
        self._enabled = False
        await asyncio.gather(*(agent.close() for agent in self.agents.values()))
        self.agents.clear()
        await self.launcher.installations.close()

    # Lifecycle of workspaces

    async def on_opened(self, workspace: Workspace) -> None:
        """Start the agent of an opened workspace, if it starts with its workspace or if a first prompt waits."""
        if not self._enabled:
            return
        agent = await self._get_or_create(workspace)
        stopped_until = await self._stopped.get(agent.git_folder)
        has_prompt = first_prompt.load(agent.git_folder) is not None and stopped_until != "close"
        if has_prompt or (self._starts_on_open and stopped_until is None):
            agent.start_and_prompt()

    async def on_closed(self, workspace: Workspace) -> bool:
        """Stop the agent of a closed workspace and return whether there was anything to stop."""
        git_folder = read_git_folder(workspace.path)
        if git_folder is not None and await self._stopped.get(git_folder) == "close":
            await self._stopped.drop(git_folder)
        moved = await self.stop_moved(workspace)
        return await self._remove([agent] if (agent := self.agents.get(workspace.path)) is not None else []) or moved

    async def stop_moved(self, workspace: Workspace) -> bool:
        """Stop the agent at the path that the workspace had before it was moved; return whether there was one."""
        return await self._remove(self._agents_before_move(workspace.path, read_git_folder(workspace.path)))

    async def _remove(self, agents: "Sequence[WorkspaceAgent]") -> bool:
        """Stop these agents and return whether there was anything to stop."""
        for agent in agents:
            del self.agents[agent.workspace.path]
            self.barrier.forget(agent.workspace.path)
        return any([await self._stop_agent(agent) for agent in agents])

    async def _stop_agent(self, agent: WorkspaceAgent) -> bool:
        await agent.end_turns()
        return await agent.close()

    def _agents_before_move(self, path: "Path", git_folder: "Path | None") -> list[WorkspaceAgent]:
        """Return the agents at paths that a workspace had before it was moved: its git folder stays the same."""
        others = (
            [agent for agent in self.agents.values() if agent.workspace.path != path] if git_folder is not None else []
        )
        return [
            agent for agent in others if git_folder is not None and agent.git_folder.resolve() == git_folder.resolve()
        ]

    def check(self, prompt: str | None) -> None:
        """Raise RookeryError if the prompt is not valid, or if no agent can receive it."""
        first_prompt.check(prompt)
        if prompt is not None and not self._enabled:
            raise RookeryError("agent-unavailable", "no agent can receive the prompt", "omit the prompt")

    def starts_agent(self, prompt: str | None) -> bool:
        """Return whether the agent of a new workspace with this first prompt starts at once."""
        return self._enabled and (prompt is not None or self._starts_on_open)

    def has_agent(self, workspace: Workspace) -> bool:
        """Return whether the agent of the workspace runs, or is about to run."""
        agent = self.agents.get(workspace.path)
        return agent is not None and agent.is_active

    async def begin_workspace(self, workspace: Workspace, prompt: str | None) -> None:
        """Save the first prompt of a new workspace, and start its agent if it starts at once."""
        if not self._enabled:
            return
        agent = await self._get_or_create(workspace)
        if prompt is not None:
            first_prompt.save(agent.git_folder, prompt)
        if self.starts_agent(prompt):
            agent.start_and_prompt()

    async def wait_until_prompted(self, workspace: Workspace) -> None:
        """Wait until the first prompt was sent; raise RookeryError if it was not sent or not answered."""
        agent = self.agents.get(workspace.path)
        if agent is None or workspace.code == "needs-approval":
            return
        await agent.wait_until_prompted()
        agent.require_sent(f"{workspace.name} was created, but its prompt was not sent: ")

    async def disable_agent(self, workspace: Workspace) -> None:
        """Stop the agent, and keep it stopped until somebody starts it."""
        await self._stopped.add((await self._workspaces.finder.refresh(workspace)).git_folder, "start")
        await self.on_closed(workspace)

    async def before_open(self, workspace: Workspace, *, agent: bool) -> None:
        """Record whether the agent starts with a workspace that is about to be opened.

        If the workspace is open without its agent, and is opened with it, the agent starts now.
        """
        located = await self._workspaces.finder.refresh(workspace)
        stopped_until = await self._stopped.get(located.git_folder)
        if not agent and not located.workspace.open and stopped_until is None:
            await self._stopped.add(located.git_folder, "close")
        elif agent and stopped_until == "close":
            await self._stopped.drop(located.git_folder)
            if located.workspace.open:
                await self.on_opened(located.workspace)

    async def require_agent(self, workspace: Workspace) -> WorkspaceAgent:
        """Return the agent for a caller that needs it. Open a closed workspace, and unmark a stopped agent."""
        if not self._enabled:
            raise RookeryError(
                "agent-unavailable", f"no agent runs in {workspace.name}", "use the workspace without an agent"
            )
        if not workspace.open:
            workspace = await self._workspaces.open(workspace)
        agent = await self._get_or_create(workspace)
        await self._stopped.drop(agent.git_folder)
        return agent

    def _on_started(self, agent: WorkspaceAgent, run: "AgentRun") -> None:
        for listener in self.listeners:
            listener(agent, run)

    async def _get_or_create(self, workspace: Workspace) -> WorkspaceAgent:
        located = await self._workspaces.finder.refresh(workspace)
        if located.workspace.state == "deleting":
            raise RookeryError("invalid-input", f"{workspace.name} is being deleted", "restore it: rookery ws restore")
        await self._remove(self._agents_before_move(located.workspace.path, located.git_folder))
        if (agent := self.agents.get(located.workspace.path)) is None:
            agent = self.agents[located.workspace.path] = WorkspaceAgent(
                msgspec.structs.replace(located.workspace, state="ready", error=None, code=None),
                located.git_folder,
                launcher=self.launcher,
                barrier=self.barrier,
                admission=self._admission,
                events=self._events,
                idle_seconds=self._idle_seconds,
                intervals=self._intervals,
                on_started=self._on_started,
            )
        return agent

    # Queries

    async def status(self, workspace: Workspace) -> AgentStatus:
        agent = self.agents.get(workspace.path)
        return agent.supervisor.status if agent is not None else AgentStatus()

    async def process(self, workspace: Workspace) -> AgentInfo:
        """Return the state of the agent; without an agent, the activity of its last run."""
        agent = self.agents.get(workspace.path)
        if agent is not None:
            return agent.info()
        await self.stop_moved(workspace)
        record = self._activity(workspace)
        if record is None:
            return AgentInfo()
        sessions = mark_interrupted(record.sessions())
        return AgentInfo(activity=record.summary(sessions), attention=tuple(record.needs(sessions)))

    def sessions(self, workspace: Workspace) -> Sequence[SessionState]:
        """Return the states of the agent's sessions, as far as they are known."""
        agent = self.agents.get(workspace.path)
        return agent.supervisor.sessions if agent is not None else ()

    async def port(self, workspace: Workspace) -> int | None:
        """Return the port of the agent, or None if it does not run; wake it if it sleeps."""
        run = await self._current_run(workspace)
        return run.process.port if run is not None else None

    async def session(self, workspace: Workspace) -> AgentSession | None:
        """Return the session of the first prompt, or else the most recently used session."""
        if await self._current_run(workspace) is None:
            return None
        agent = self.agents[workspace.path]
        async with agent.supervisor.keep_awake() as run:
            first = agent.session
            ids = [first] if first is not None else [session.id for session in await run.client.sessions()]
            return AgentSession(run.process.port, ids[0]) if ids else None

    def log(self, workspace: Workspace) -> Path:
        return agent_log_path(self.launcher.state, workspace)

    async def log_lines(self, workspace: Workspace, count: int) -> list[str]:
        """Return the last lines that the agent printed."""
        return await asyncio.to_thread(read_last_lines, self.log(workspace), count)

    # Seen and dismissed sessions

    def mark_seen(self, workspace: Workspace) -> None:
        """Record that the user looks at the workspace: no session in it counts as finished any longer."""
        if (record := self._activity(workspace)) is not None:
            record.mark_seen()
            self._publish(workspace)

    def mark_session_seen(self, session: str) -> None:
        """Record that the user looks at a session, which is given by its id or the beginning of it."""
        for agent in self.agents.values():
            for id_ in (matching := agent.activity.find_ids(session)):
                agent.activity.mark_seen(id_)
            if matching:
                agent.publish_changes()

    def dismiss(self, workspace: Workspace, session: str | None = None) -> list[str]:
        """Dismiss the failure of the last turn of one session, or of all; return the ids of the sessions that had one.

        Raise RookeryError `session-not-found`, or `ambiguous-id` for the beginning of several ids.
        """
        record = self._activity(workspace)
        if session is not None:
            matches = record.find_ids(session) if record is not None else []
            if (id_ := match_prefix(session, matches, "sessions")) is None:
                message = f"there is no session {session!r} in {workspace.name}"
                raise RookeryError("session-not-found", message, "list the sessions: rookery session list")
            session = id_
        dismissed = record.dismiss(session) if record is not None else []
        self._publish(workspace)
        return dismissed

    def _activity(self, workspace: Workspace) -> ActivityStore | None:
        if (agent := self.agents.get(workspace.path)) is not None:
            return agent.activity
        git_folder = read_git_folder(workspace.path)
        return ActivityStore(git_folder) if git_folder is not None else None

    def _publish(self, workspace: Workspace) -> None:
        if (agent := self.agents.get(workspace.path)) is not None:
            agent.publish_changes()

    # Commands

    async def start(self, workspace: Workspace) -> AgentInfo:
        """Start or wake the agent, whether or not the workspace is prepared, and wait until it listens."""
        await self.ensure_running(workspace)
        return await self.process(workspace)

    async def stop(self, workspace: Workspace) -> AgentInfo:
        """Stop the agent until somebody starts it."""
        await self.disable_agent(workspace)
        return AgentInfo()

    async def restart(self, workspace: Workspace) -> int:
        """Restart the agent and return its port."""
        return (await (await self.require_agent(workspace)).supervisor.restart()).process.port

    async def resume(self, workspace: Workspace) -> list[str]:
        """Resume every turn that was cut off, and send the first prompt if that failed; return the session ids."""
        agent = await self.require_agent(workspace)
        async with agent.supervisor.keep_awake() as run:
            await _wait_for_snapshot(run)
            cut_off = [session.id for session in run.watcher.sessions if session.state == "interrupted"]
            for session in cut_off:
                await run.watcher.resume(session)
                agent.watch_turn(run, session)
        if agent.unsent is not None:
            agent.start_and_prompt()
            await agent.wait_until_prompted()
            agent.require_sent()
            cut_off += [agent.session] if agent.session is not None else []
        return cut_off

    async def ensure_running(self, workspace: Workspace) -> AgentRun:
        """Return the running process of the agent; start or wake it if necessary."""
        return await (await self.require_agent(workspace)).supervisor.ensure_running()

    async def check_outdated(self, path: Path) -> None:
        """Compare the current launch context with the one that the agent was started with, and publish the result."""
        agent = self.agents.get(path)
        run = agent.supervisor.run if agent is not None else None
        if agent is not None and run is not None:
            context = await self.launcher.contexts.prepare_launch(agent.workspace)
            started = run.started
            agent.outdated = started.context.has_changed(context, follows_servers=started.follows_servers)
            agent.publish_changes()

    def workspaces(self) -> list[Workspace]:
        """Return the workspaces that have an agent, whatever its state."""
        return [agent.workspace for agent in self.agents.values()]

    async def _current_run(self, workspace: Workspace) -> AgentRun | None:
        """Return the running process of the agent; wake it if it sleeps."""
        agent = self.agents.get(workspace.path)
        if agent is None:
            return None
        return await agent.supervisor.ensure_running() if agent.supervisor.state == "asleep" else agent.supervisor.run


async def _wait_for_snapshot(run: AgentRun) -> None:
    try:
        async with asyncio.timeout(_SNAPSHOT_SECONDS):
            await run.watcher.wait_for_snapshot()
    except TimeoutError:
        raise RookeryError(
            "timeout", "the agent did not report its sessions in time", "restart it: rookery agent restart"
        ) from None
