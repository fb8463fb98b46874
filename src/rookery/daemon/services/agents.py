"""The agents as a service of the daemon: started after the gateway listens, and stopped before it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.agents.launch import Launcher, LaunchOptions
from rookery.agents.manager import AgentManager, StoppedAgents
from rookery.agents.opencode.config import (
    AgentServers,
    ConversationServers,
    LaunchContext,
    RedirectedServer,
    list_tool_names,
    write_config_file,
)
from rookery.agents.opencode.install import SharedInstaller
from rookery.agents.opencode.ports import AgentPorts
from rookery.daemon.approvals import OpenCodeConfigApprovals
from rookery.daemon.lifecycle import follow_bus
from rookery.daemon.services.gateway import GatewayService
from rookery.daemon.settings.schema import Settings
from rookery.gateway.conversations import ALL_CONVERSATIONS
from rookery.gateway.names import gateway_name
from rookery.gateway.rules import ALLOWED
from rookery.guard.subject import Key
from rookery.sessions.run_tool import ScriptedCalls
from rookery.system.bus import Bus, Event
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.upstreams.config.jsonc import parse_jsonc, to_python
from rookery.upstreams.server_set import ServerSet, ServerSetMembership
from rookery.workspaces.model import Workspace
from rookery.workspaces.service import Workspaces

# The statuses of servers to which an agent need not connect again before they have changed.
_FAILED = frozenset({"failed", "backoff", "needs_auth", "needs_client_registration"})
# Those of servers that have started: one that is stopped starts again by itself.
_READY = frozenset({"connected", "stopped"})

if TYPE_CHECKING:
    from rookery.testing.tool_model import ToolModel
    from rookery.wire.http_client.client import HttpClient


def make_agents(
    settings: Settings, state: Path, store: Store, spawner: Spawner, events: Bus, workspaces: Workspaces
) -> AgentManager:
    """Return the manager of the agents of all workspaces. `AgentsService` sets what it still needs of the daemon."""
    agent_settings = settings.agents
    ports = AgentPorts(store)
    installations = SharedInstaller(state, spawner, events, agent_settings.version)
    background = agent_settings.priority == "background"
    options = LaunchOptions(
        env_from=agent_settings.env_from,
        start_seconds=agent_settings.start_seconds,
        answer_seconds=agent_settings.answer_seconds,
        background=background,
        sandbox=agent_settings.sandbox,
    )
    launcher = Launcher(state, spawner, workspaces, ports, installations, parse_json=read_jsonc, options=options)
    return AgentManager(
        workspaces,
        launcher,
        StoppedAgents(store),
        events,
        start=agent_settings.start,
        idle_seconds=agent_settings.idle_seconds,
    )


def list_agent_servers(server_set: ServerSet) -> AgentServers:
    """Return the servers of a workspace as its agent gets them."""
    slots = list(server_set.slots())
    served = [slot.definition for slot in slots if slot.blocked_status is None and not slot.needs_approval]
    statuses = {slot.definition.name: server_set.running_status(slot) for slot in slots}
    failed = {name for name, status in statuses.items() if status in _FAILED}
    return AgentServers(
        tuple(RedirectedServer(definition.name, round(definition.timeouts.execution * 1000)) for definition in served),
        tuple(slot.definition.name for slot in slots if slot.definition not in served),
        frozenset(definition.name for definition in served) - failed,
        frozenset(definition.name for definition in served if statuses[definition.name] in _READY),
        {id_ or "": _list_off(server_set, id_) for id_ in (None, *sorted(server_set.conversations))}
        if server_set.conversations
        else {},
    )


def _list_off(server_set: ServerSet, conversation: str | None) -> ConversationServers:
    """Return what an agent is offered because of other conversations, and is off in this one."""
    membership = ServerSetMembership(server_set, lambda _: lambda server, tool, public: ALLOWED)
    rules = membership.rules(None, conversation)
    offered = membership.rules(None, ALL_CONVERSATIONS)
    own = set(server_set.servers(None, conversation))
    off = list[str]()
    tools = list[str]()
    for server in server_set.servers(None, ALL_CONVERSATIONS):
        if server not in own:
            off.append(server.name)
        for tool in server.catalog.tools if server.catalog is not None else ():
            public = gateway_name(server.name, tool.name)
            is_off = server not in own or not rules.is_shown(server.name, tool.name, public)
            if is_off and offered.is_shown(server.name, tool.name, public):
                tools += list_tool_names(server.name, tool.name, public)
    return ConversationServers(tuple(off), tuple(tools))


def read_jsonc(text: str) -> Any:
    """Parse JSON with comments into Python objects."""
    return to_python(parse_jsonc(text))


class AgentsService:
    """Runs the agents, and provides what they are launched with."""

    name = "agents"
    needs: Sequence[str] = ("endpoints",)

    def __init__(
        self, state: Path, agents: AgentManager, gateway: GatewayService, configs: OpenCodeConfigApprovals, events: Bus
    ) -> None:
        self.agents = agents
        self._state = state
        self._gateway = gateway
        self._configs = configs
        self._events = events
        self._unsubscribe: dict[Path, Callable[[], None]] = {}
        # The workspaces whose agent was launched, with the names that they had then.
        self._launched: dict[Path, Workspace] = {}
        # The workspaces whose servers have changed since their entries were written.
        self._changed: set[Path] = set()
        self._tasks = TaskSet("agents")
        self.client: Callable[[], HttpClient] = gateway.client
        # Scripted tool calls, and the model that plays them to agents with a valid token.
        self.scripted_calls = ScriptedCalls()
        self.is_valid_token: Callable[[bytes], bool] = lambda key: False
        self._tool_model: ToolModel | None = None
        agents.launcher.contexts = self

    async def start(self) -> None:
        write_config_file(self._state)
        self.agents.launcher.server_entries.clear()
        self._changed.clear()
        await self.agents.launcher.ports.release_deleted()
        self._tasks.keep_running(follow_bus(self._events, self._on_event), "events")
        self.agents.enable()

    async def stop(self) -> None:
        for path in list(self._unsubscribe):
            self._stop_listening(path)
        await self._tasks.close()
        await self.agents.close()
        if self._tool_model is not None:
            await self._tool_model.stop()

    async def prepare_launch(self, workspace: Workspace) -> LaunchContext:
        """Return what the agent of a workspace is to be started with at present."""
        # The lookup records which project the folder belongs to.
        await self._gateway.lookup.find(workspace.project.id, workspace.name)
        workspace_servers = await self._gateway.hub.server_set(workspace.path)
        self._stop_listening(workspace.path)
        servers = list_agent_servers(workspace_servers)
        self.agents.launcher.server_entries.write(workspace, servers)
        self._launched[workspace.path] = workspace
        self._unsubscribe[workspace.path] = workspace_servers.listen(
            lambda: self._recheck(workspace.path), lambda session: None
        )
        reason = await self._configs.explain_unapproved(workspace)
        return LaunchContext(
            port=self._gateway.hub.own_port,
            tool_port=await self._tool_port(),
            servers=servers,
            project_config=not reason,
            unapproved=reason,
        )

    async def _tool_port(self) -> int:
        if self._tool_model is None:
            # Imported with the first agent: a daemon without agents starts sooner.
            from rookery.testing.tool_model import ToolModel

            self._tool_model = ToolModel(self.scripted_calls, lambda key: self.is_valid_token(key))
        return await self._tool_model.port()

    async def on_decision(self, key: Key) -> None:
        """Notify the agents of a project that an approval was given or withdrawn."""
        for workspace in self.agents.workspaces():
            if workspace.project.path == key.place:
                await self.agents.check_outdated(workspace.path)

    def _stop_listening(self, path: Path) -> None:
        """Stop listening for changes of the MCP servers of this workspace."""
        if stop := self._unsubscribe.pop(path, None):
            stop()

    def _forget(self, path: Path) -> None:
        """Forget the MCP servers of a workspace whose agent has ended for good."""
        self._stop_listening(path)
        if workspace := self._launched.pop(path, None):
            self.agents.launcher.server_entries.remove(workspace)

    def _recheck(self, path: Path) -> None:
        self._tasks.start(self._update(path), f"look again at {path.name}")

    async def _update(self, path: Path) -> None:
        """Give an agent its current servers, and find out whether it needs a restart for anything else."""
        self._write_servers(path)
        await self.agents.check_outdated(path)

    def _write_servers(self, path: Path) -> None:
        """Write the current servers of an agent, which it uses from its next turn on.

        A workspace that is being closed has no servers any more, and gets none.
        """
        launched = self._launched.get(path)
        server_set = self._gateway.hub.find_set(path)
        if launched is not None and server_set is not None:
            self.agents.launcher.server_entries.write(launched, list_agent_servers(server_set))

    def _find_users(self, directory: str | None) -> set[Path]:
        """Return the launched workspaces that may use a server of this directory: those of its project may share it."""
        return {
            path for path, workspace in self._launched.items() if directory in (None, str(path), workspace.project.path)
        }

    async def _write_changed(self) -> None:
        """Write the servers of all agents whose servers have changed."""
        changed, self._changed = self._changed, set()
        for path in changed:
            self._write_servers(path)

    async def _on_event(self, event: Event) -> None:
        self.agents.barrier.on_event(event)
        if event.type == "workspace.closed":
            self._forget(Path(event.data["path"]))
        elif event.type == "mcp.status":
            # Servers that start together change their statuses together: their file is written once.
            is_waiting = bool(self._changed)
            self._changed |= self._find_users(event.data["workspace"])
            if self._changed and not is_waiting:
                self._tasks.start(self._write_changed(), "write the servers")
        elif event.type == "project.removed":
            for workspace in self.agents.workspaces():
                if workspace.project.path == event.data["project"]["path"]:
                    self._forget(workspace.path)
                    await self.agents.on_closed(workspace)
