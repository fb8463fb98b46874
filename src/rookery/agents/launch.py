"""Start the OpenCode of a workspace with its environment, configs and port."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import msgspec

from rookery.agents.first_prompt import foresee_failure
from rookery.agents.opencode.api import RESPONSE_SECONDS, AgentClient
from rookery.agents.opencode.config import (
    InlineConfig,
    LaunchContext,
    LaunchContextSource,
    build_tool_provider,
    prepare_config_file,
    read_user_config,
    render_inline_config,
)
from rookery.agents.opencode.environment import (
    FREE_PROVIDER,
    EnvironmentSource,
    EnvironmentSpec,
    are_plugins_disabled,
    build_environment,
    find_logins,
    list_opencode_paths,
    list_warnings,
    load_user_environment,
    needs_packages,
    prepare_private_data,
    remove_database,
    startup_variables,
)
from rookery.agents.opencode.install import Installation, ProgressCallback, SharedInstaller
from rookery.agents.opencode.ports import AgentPorts
from rookery.agents.opencode.process import AgentSandbox, LaunchSpec, start_agent
from rookery.agents.opencode.project_config import ParseJson
from rookery.agents.opencode.server_entries import ServerEntryFiles
from rookery.agents.run import StartedAgent
from rookery.system.confinement.locations import confine_environment
from rookery.system.errors import RookeryError
from rookery.system.ids import new_token
from rookery.system.network import has_default_route
from rookery.system.process.spawn import Spawner
from rookery.workspaces.confinement import SandboxMode
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.agents")


_REFUSAL_NOTE = (
    "[rookery] This may be the sandbox: outside of this workspace only programs and libraries can be read, and nothing "
    "can be written; Unix sockets and processes outside are out of reach. Use $TMPDIR instead of /tmp. If the task "
    "needs more, ask the user, who can widen it with the settings sandbox.read and sandbox.write."
)


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for the start of agents."""

    env_from: EnvironmentSource = "daemon"
    start_seconds: float = 60.0
    answer_seconds: float = RESPONSE_SECONDS
    background: bool = True
    sandbox: SandboxMode = "off"


class Launcher:
    """Starts the agents of workspaces. `parse_json` parses JSON with comments."""

    def __init__(
        self,
        state: Path,
        spawner: Spawner,
        workspaces: Workspaces,
        ports: AgentPorts,
        installations: SharedInstaller,
        *,
        parse_json: ParseJson,
        options: LaunchOptions,
    ) -> None:
        # Set before the first start, by the code that creates the gateway, which is created later.
        self.contexts: LaunchContextSource
        self.installations = installations
        self.state = state
        self.server_entries = ServerEntryFiles(state)
        self.ports = ports
        self.spawner = spawner
        self._workspaces = workspaces
        self._read = parse_json
        self._options = options

    async def start(self, workspace: Workspace, on_progress: ProgressCallback) -> StartedAgent:
        """Start the OpenCode of a workspace and return it once it listens."""
        on_progress("looking for OpenCode")
        user = await self.user_environment()
        installation = await self.installations.get(user, on_progress)
        on_progress("starting OpenCode")
        located = await self._workspaces.finder.refresh(workspace)
        context = await self.contexts.prepare_launch(located.workspace)
        ports = [await self.ports.get_or_assign(located.git_folder), *await self.ports.find_free()]
        original = user
        sandbox = await self._make_sandbox(located, context, installation, user, ports)
        if sandbox is not None:
            user = confine_environment(remove_database(user), sandbox.variables)
        spec = await self._build_spec(located, context, installation, original, confined=sandbox is not None)
        notes = list_warnings(user, spec)
        if sandbox is None and self._options.sandbox != "off":
            notes.append("this machine cannot confine it, and sandbox.unavailable lets it run unconfined")
        for note in notes:
            logger.warning("the agent of %s: %s", workspace.name, note)
        launch = LaunchSpec(
            name=f"agent {workspace.name}",
            opencode=installation.opencode,
            version=installation.version,
            folder=located.workspace.path,
            environment={**await self._workspaces.environment(workspace), **build_environment(user, spec)},
            ports=ports,
            log=agent_log_path(self.state, workspace),
            state=self.state,
            seconds=self._options.start_seconds,
            background=self._options.background,
            sandbox=sandbox,
        )
        process = await start_agent(self.spawner, launch)
        try:
            await self.ports.assign(located.git_folder, process.port)
        except BaseException:
            await process.stop()
            raise
        client_args = process.url, located.workspace.path, process.password, self._options.answer_seconds
        client = AgentClient(self.contexts.client(), *client_args)
        follows_servers = context.port is not None and not are_plugins_disabled(user)
        return StartedAgent(process, client, context, installation, tuple(notes), follows_servers)

    async def user_environment(self) -> dict[str, str]:
        """Return the environment that agents start from."""
        return await load_user_environment(self._options.env_from, self.spawner)

    async def foresee_failure(self, workspace: Workspace) -> RookeryError | None:
        """Return why no model will answer a prompt in a workspace, if that is known before its agent has started."""
        return await foresee_failure(await self.user_environment(), workspace.path, self._read)

    async def get_installation(self, *, again: bool = False) -> Installation:
        """Return the installed programs; install them if they are missing, or with `again`."""
        user = await self.user_environment()
        return await self.installations.get(user, again=again)

    async def _make_sandbox(
        self,
        located: LocatedWorkspace,
        context: LaunchContext,
        installation: Installation,
        user: dict[str, str],
        ports: list[int],
    ) -> AgentSandbox | None:
        """Return the sandbox of an agent: that of its workspace, with OpenCode's programs and logins."""
        mode = self._options.sandbox
        if mode == "off":
            return None
        own_ports = [port for port in (context.port, context.tool_port, *ports) if port is not None]
        sandbox = await self._workspaces.make_sandbox(located.workspace, mode, user, own_ports)
        if sandbox is None:
            return None
        await asyncio.to_thread(prepare_private_data, user, sandbox.variables)
        programs = [path.resolve().parent for path in (installation.opencode, installation.ripgrep) if path is not None]
        config = prepare_config_file(self.state, read_user_config(user, self._read))
        # The folder, since the file is replaced when it changes, and a rule is about one file.
        entries = self.server_entries.path_for(located.workspace).parent
        policy = replace(
            sandbox.policy,
            read=(*sandbox.policy.read, *map(str, (config, entries, *list_opencode_paths(user)))),
            execute=(*sandbox.policy.execute, *map(str, programs)),
        )
        return AgentSandbox(policy, sandbox.variables, user)

    async def _build_spec(
        self,
        located: LocatedWorkspace,
        context: LaunchContext,
        installation: Installation,
        user: dict[str, str],
        *,
        confined: bool,
    ) -> EnvironmentSpec:
        user_config = read_user_config(user, self._read)
        # Without Rookery's plugin, the model of Rookery's provider could become the default.
        tool_port = context.tool_port if not are_plugins_disabled(user) else None
        packages = are_plugins_disabled(user) or await asyncio.to_thread(
            needs_packages, user, located.workspace.path, project_config=context.project_config, read=self._read
        )
        injection = InlineConfig(
            project=located.workspace.project.id,
            workspace=located.workspace.name,
            servers=context.servers,
            gateway=context.port is not None,
            entries=self.server_entries.path_for(located.workspace) if context.port is not None else None,
            providers=build_tool_provider(tool_port) if tool_port is not None else {},
            logins=await asyncio.to_thread(self._logins, user),
            forgotten=startup_variables(user, packages=packages),
            refusal_note=_REFUSAL_NOTE if confined else "",
            user=user_config.content,
        )
        return EnvironmentSpec(
            workspace=located.workspace.path,
            token=await self._workspaces.token(located.workspace),
            password=new_token(),
            port=context.port,
            config=prepare_config_file(self.state, user_config) if context.port is not None else None,
            content=render_inline_config(injection),
            ripgrep=installation.ripgrep,
            project_config=context.project_config,
            online=await asyncio.to_thread(has_default_route),
            packages=packages,
        )

    def _logins(self, user: dict[str, str]) -> list[str]:
        return [*(login.provider for login in find_logins(user, self._read)), FREE_PROVIDER]


def agent_log_path(state: Path, workspace: Workspace) -> Path:
    """Return the path of the log of the workspace's agent, which has the output of its last runs."""
    return state / "logs" / "agents" / workspace.project.id / f"{workspace.name.replace('/', '%')}.log"
