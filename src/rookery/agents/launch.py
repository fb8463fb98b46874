"""Start the OpenCode of a workspace with its environment, configs and port."""

import asyncio
import logging
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
    list_warnings,
    load_user_environment,
    needs_packages,
    startup_variables,
)
from rookery.agents.opencode.install import Installation, ProgressCallback, SharedInstaller
from rookery.agents.opencode.ports import AgentPorts
from rookery.agents.opencode.process import LaunchSpec, start_agent
from rookery.agents.opencode.project_config import ParseJson
from rookery.agents.opencode.server_entries import ServerEntryFiles
from rookery.agents.run import StartedAgent
from rookery.system.errors import RookeryError
from rookery.system.ids import new_token
from rookery.system.network import has_default_route
from rookery.system.process.spawn import Spawner
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.agents")


class LaunchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for the start of agents."""

    env_from: EnvironmentSource = "daemon"
    start_seconds: float = 60.0
    answer_seconds: float = RESPONSE_SECONDS
    background: bool = True


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
        self.spawner, self._workspaces = spawner, workspaces
        self._read, self._options = parse_json, options

    async def start(self, workspace: Workspace, on_progress: ProgressCallback) -> StartedAgent:
        """Start the OpenCode of a workspace and return it once it listens."""
        on_progress("looking for OpenCode")
        user = await self.user_environment()
        installation = await self.installations.get(user, on_progress)
        on_progress("starting OpenCode")
        located = await self._workspaces.finder.refresh(workspace)
        context = await self.contexts.prepare_launch(located.workspace)
        spec = await self._build_spec(located, context, installation, user)
        notes = list_warnings(user, spec)
        for note in notes:
            logger.warning("the agent of %s: %s", workspace.name, note)
        launch = LaunchSpec(
            name=f"agent {workspace.name}",
            opencode=installation.opencode,
            version=installation.version,
            folder=located.workspace.path,
            environment={**await self._workspaces.environment(workspace), **build_environment(user, spec)},
            ports=[await self.ports.get_or_assign(located.git_folder), *await self.ports.find_free()],
            log=agent_log_path(self.state, workspace),
            state=self.state,
            seconds=self._options.start_seconds,
            background=self._options.background,
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

    async def _build_spec(
        self, located: LocatedWorkspace, context: LaunchContext, installation: Installation, user: dict[str, str]
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
