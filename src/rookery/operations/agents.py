"""The operations on agents: the agent of a workspace, and the OpenCode that all agents run."""

from typing import Annotated

import msgspec
from msgspec import Meta

from rookery.agents.manager import AgentManager
from rookery.agents.opencode.environment import FOLDER_VARIABLES
from rookery.agents.records import (
    AgentAccess,
    AgentAsk,
    AgentOutput,
    AgentReport,
    AgentSessionRecord,
    DismissedAgent,
    InstallationRecord,
    ResumedAgent,
)
from rookery.agents.run import AgentRun
from rookery.agents.status import SessionState
from rookery.operations.operation import (
    ADMIN_TOOLSET,
    AGENT_START_LIMIT,
    Caller,
    CallerRefusal,
    McpTool,
    Parameters,
    RestRoute,
    operation,
)
from rookery.operations.target import OMIT_TARGET, TOOL_NAMES, WORKSPACE_PATH, InWorkspace, find_workspace
from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix
from rookery.workspaces.model import AgentSession, Workspace, format_path
from rookery.workspaces.operations import WorkspaceOperations

_MAX_LINES = 10_000
_AGENT_PATH = f"{WORKSPACE_PATH}/agent"


class GetAgentOutput(InWorkspace):
    tail: Annotated[
        int, Meta(ge=0, lt=10**9, description="Maximum number of lines; the last ones are returned, at most 10000")
    ] = 100


class DismissTurns(InWorkspace):
    session: Annotated[str | None, Meta(description="Id of a session; default: all sessions of the workspace")] = None


class AttachToAgent(InWorkspace):
    session: Annotated[
        str | None,
        Meta(description="Id of the session to open; default: that of the first prompt, else the one used last"),
    ] = None


class InstallAgent(Parameters):
    force: Annotated[bool, Meta(description="If true, install it again even if it is present")] = False


def _select_port(report: AgentReport) -> int:
    if report.port is None:
        raise RookeryError("agent-unavailable", report.error or "the agent has ended", "see `rookery agent logs`")
    return report.port


class AgentOperations:
    """The operations on agents."""

    group = "agent"

    def __init__(self, workspaces: WorkspaceOperations, agents: AgentManager) -> None:
        self._workspaces = workspaces
        self._agents = agents

    @operation(
        changes=False,
        rest=RestRoute("GET", _AGENT_PATH),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "agent_get",
            "Get the agent of a workspace: the state, port and error of its process, its sessions, and the reasons why "
            "it needs its user.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
    )
    async def show(self, caller: Caller, arguments: InWorkspace) -> AgentReport:
        """The agent of a workspace: its process, its status, and its sessions."""
        return await self._describe(await self._find(caller, arguments))

    @operation(
        access="workspace",
        changes=False,
        time_limit=AGENT_START_LIMIT,
        rest=RestRoute("GET", f"{_AGENT_PATH}/session"),
        mcp=McpTool(
            "workspace",
            "workspace_get_agent_session",
            "Get the address of the current workspace's agent: port and sessionId, or null if none runs. "
            "The port requires the password that the user prints with `rookery agent password`.",
            omit=OMIT_TARGET,
        ),
        socketio="api:workspace:getAgentSession",
    )
    async def session(self, caller: Caller, arguments: InWorkspace) -> AgentSession | None:
        """The port of the agent and the session that a client connects to, or null if none runs; wakes the agent."""
        return await self._agents.session(await self._find(caller, arguments))

    @operation(
        access="workspace",
        changes=False,
        time_limit=AGENT_START_LIMIT,
        mcp=McpTool(
            "workspace",
            "workspace_get_opencode_port",
            "Get the OpenCode server port for the current workspace, or null if none runs. The server answers only "
            "with a password, which the user prints with `rookery agent password`; other processes get 401.",
            omit=OMIT_TARGET,
        ),
        absent={
            "rest": f"`GET {_AGENT_PATH}` returns the port with the rest of the agent, and `POST {_AGENT_PATH}/start` "
            "wakes an agent that sleeps",
            "python": "`Workspace.agent` has the port, and `Workspace.start_agent` wakes an agent that sleeps",
        },
    )
    async def port(self, caller: Caller, arguments: InWorkspace) -> int | None:
        """The port of the agent, or null if none runs; wakes the agent."""
        return await self._agents.port(await self._find(caller, arguments))

    @operation(
        time_limit=AGENT_START_LIMIT,
        rest=RestRoute("POST", f"{_AGENT_PATH}/start"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "agent_start",
            "Start the agent of a workspace, or wake it, and wait until it listens. A closed workspace is opened. "
            "Returns the agent.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
        python="Workspace.start_agent",
    )
    async def start(self, caller: Caller, arguments: InWorkspace) -> AgentReport:
        """Start or wake the agent; returns when it listens."""
        workspace = await self._find(caller, arguments)
        await self._agents.ensure_running(workspace)
        return await self._describe(workspace)

    @operation(
        rest=RestRoute("POST", f"{_AGENT_PATH}/stop"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "agent_stop",
            "Stop the agent of a workspace until it is started again; the workspace stays open. A running turn is "
            "aborted. Returns the agent.",
            names=TOOL_NAMES,
            destructive=True,
            forbid_unknown=True,
        ),
        python="Workspace.stop_agent",
    )
    async def stop(self, caller: Caller, arguments: InWorkspace) -> AgentReport:
        """Stop the agent until it is started again; the workspace stays open."""
        workspace = await self._find(caller, arguments)
        await self._agents.stop(workspace)
        return await self._describe(workspace)

    @operation(
        access="workspace",
        time_limit=AGENT_START_LIMIT,
        rest=RestRoute("POST", f"{_AGENT_PATH}/restart"),
        mcp=McpTool(
            "workspace",
            "workspace_restart_agent",
            "Restart the agent of the current workspace, for example after its settings were changed. It keeps "
            "its port, which is returned. A running turn is aborted.",
            omit=OMIT_TARGET,
            present=_select_port,
            result=int,
            destructive=True,
        ),
    )
    async def restart(self, caller: Caller, arguments: InWorkspace) -> AgentReport:
        """Restart the agent on its previous port; returns when it listens. A running turn is interrupted."""
        workspace = await self._find(caller, arguments)
        await self._agents.restart(workspace)
        return await self._describe(workspace)

    @operation(
        time_limit=AGENT_START_LIMIT,
        rest=RestRoute("POST", f"{_AGENT_PATH}/resume"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "agent_resume",
            "Continue every turn of a workspace's agent that was interrupted, and send its first prompt if that "
            "failed; starts the agent if necessary. Returns the agent, and the ids of these sessions as `resumed`.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
    )
    async def resume(self, caller: Caller, arguments: InWorkspace) -> ResumedAgent:
        """Resume every interrupted turn; returns the `resumed` sessions too."""
        workspace = await self._find(caller, arguments)
        resumed = await self._agents.resume(workspace)
        report = await self._describe(workspace)
        return ResumedAgent(**msgspec.structs.asdict(report), resumed=resumed)

    @operation(
        rest=RestRoute("POST", f"{_AGENT_PATH}/dismiss"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "agent_dismiss",
            "Dismiss failed turns in a workspace, so that they no longer count as a reason why it needs its user. "
            "Returns the agent, and the ids of the sessions that had one as `dismissed`.",
            names=TOOL_NAMES | {"session": "sessionId"},
            forbid_unknown=True,
        ),
        python="Workspace.dismiss",
    )
    async def dismiss(self, caller: Caller, arguments: DismissTurns) -> DismissedAgent:
        """Dismiss failed turns of all sessions or of `session`; returns the sessions that had one."""
        workspace = await self._find(caller, arguments)
        dismissed = self._agents.dismiss(workspace, arguments.session)
        report = await self._describe(workspace)
        return DismissedAgent(**msgspec.structs.asdict(report), dismissed=dismissed)

    @operation(
        changes=False,
        rest=RestRoute("GET", f"{_AGENT_PATH}/logs"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "agent_logs",
            "Read the last lines that the OpenCode of a workspace's agent printed, also in earlier runs, and the path "
            "of its log.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
    )
    async def logs(self, caller: Caller, arguments: GetAgentOutput) -> AgentOutput:
        """The last `?tail=` lines of the agent's output, and the `path` of its log."""
        workspace = await self._find(caller, arguments)
        lines = await self._agents.log_lines(workspace, min(arguments.tail, _MAX_LINES))
        return AgentOutput(format_path(self._agents.log(workspace)), lines)

    @operation(
        access="person",
        # With the password, an agent could answer what its own session asks its user.
        refusal=CallerRefusal(
            "the password of an agent is given only to its user, over the Unix socket",
            "run `rookery agent attach` or `rookery agent password` yourself, in a terminal that Rookery did not open",
        ),
        time_limit=AGENT_START_LIMIT,
        rest=RestRoute("GET", f"{_AGENT_PATH}/attach"),
        absent={
            "mcp": "the password would reach the provider of the model, and an agent could answer its own asks with it"
        },
    )
    async def attach(self, caller: Caller, arguments: AttachToAgent) -> AgentAccess:
        """The agent's address, password and session, or `?session=`; starts or wakes it. Only for its user."""
        workspace = await self._find(caller, arguments)
        run = await self._agents.ensure_running(workspace)
        session = await self._choose_session(workspace, run, arguments.session)
        self._agents.mark_seen(workspace)
        return AgentAccess(
            url=run.process.url,
            directory=format_path(run.client.directory),
            password=run.process.password,
            opencode=str(run.started.installation.opencode),
            session=session,
            folders={name: run.process.folders.get(name) for name in FOLDER_VARIABLES},
        )

    @operation(
        time_limit=AGENT_START_LIMIT,
        rest=RestRoute("POST", "/api/agents/install"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "agent_install",
            "Install the OpenCode that agents run, at the version of the setting agents.version, if it is missing. "
            "Returns its version and the paths of its programs.",
            forbid_unknown=True,
        ),
    )
    async def install(self, caller: Caller, arguments: InstallAgent) -> InstallationRecord:
        """Install the OpenCode of `agents.version` if it is missing, or always with `force`; events report progress."""
        installation = await self._agents.launcher.get_installation(again=arguments.force)
        ripgrep = str(installation.ripgrep) if installation.ripgrep is not None else None
        return InstallationRecord(installation.version, str(installation.opencode), ripgrep)

    async def _find(self, caller: Caller, arguments: InWorkspace) -> Workspace:
        return await find_workspace(self._workspaces, caller, arguments)

    async def _choose_session(self, workspace: Workspace, run: AgentRun, session: str | None) -> str | None:
        """Return the requested session if it belongs to this workspace, else the one that a person wants to see."""
        if session is not None:
            session_id = match_prefix(
                session, (open_session.id for open_session in self._agents.sessions(workspace)), "sessions"
            )
            return (await run.client.session(session_id or session)).id
        current = await self._agents.session(workspace)
        return current.session_id if current is not None else None

    async def _describe(self, workspace: Workspace) -> AgentReport:
        """Return the agent of a workspace with its status and its sessions."""
        info = await self._agents.process(workspace)
        return AgentReport(
            **msgspec.structs.asdict(info),
            status=await self._agents.status(workspace),
            sessions=[_describe_session(session) for session in self._agents.sessions(workspace)],
        )


def _describe_session(session: SessionState) -> AgentSessionRecord:
    return AgentSessionRecord(
        id=session.id,
        title=session.title,
        state=session.state,
        detail=session.detail,
        asks=[AgentAsk(ask.id, ask.kind, ask.text) for ask in session.asks],
        failure=session.failure.text if session.failure is not None else None,
    )
