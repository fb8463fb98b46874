"""Starts the OpenCode of a workspace, wired to what is around it at that moment."""

import asyncio
import logging
from pathlib import Path

import msgspec

from rookery.agents.client import AgentClient
from rookery.agents.configs import config_for, user_config
from rookery.agents.environment import (
    EnvFrom,
    Wiring,
    agent_environment,
    forgotten,
    user_environment,
    warnings,
    without_plugins,
)
from rookery.agents.injection import Injection, inline_config, tool_provider
from rookery.agents.install import Installed
from rookery.agents.installing import Installations, Tell
from rookery.agents.life import Started
from rookery.agents.logins import FREE, logins
from rookery.agents.ports import AgentPorts
from rookery.agents.process import Launch, start_agent
from rookery.agents.project_config import ReadJson
from rookery.agents.wired import Surroundings, Wired
from rookery.system.ids import new_token
from rookery.system.spawn import Spawner
from rookery.workspaces.listing import Found
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.agents")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    env_from: EnvFrom = "daemon"
    start_seconds: float = 60.0
    background: bool = True


class Launcher:
    """`read` reads JSON with comments."""

    def __init__(
        self,
        state: Path,
        spawner: Spawner,
        workspaces: Workspaces,
        ports: AgentPorts,
        installations: Installations,
        *,
        read: ReadJson,
        options: Options,
    ) -> None:
        # Set before the first start, by whoever knows the gateway: that is made later.
        self.surroundings: Surroundings
        self.installations = installations
        self.state = state
        self.ports = ports
        self.spawner, self._workspaces = spawner, workspaces
        self._read, self._options = read, options

    async def start(self, workspace: Workspace, tell: Tell) -> Started:
        """The OpenCode of this workspace, once it listens."""
        tell("OpenCode is looked for")
        user = await self.user()
        installed = await self.installations.get(user, tell)
        tell("OpenCode starts")
        found = await self._workspaces.finding.there(workspace)
        wired = await self.surroundings.wired(found.workspace)
        wiring = await self._wiring(found, wired, installed, user)
        notes = warnings(user, wiring)
        for note in notes:
            logger.warning("the agent of %s: %s", workspace.name, note)
        launch = Launch(
            name=f"agent {workspace.name}",
            opencode=installed.opencode,
            version=installed.version,
            folder=found.workspace.path,
            environment={**await self._workspaces.environment(workspace), **agent_environment(user, wiring)},
            ports=[await self.ports.of(found.own), *await self.ports.others()],
            log=log_of(self.state, workspace),
            state=self.state,
            seconds=self._options.start_seconds,
            background=self._options.background,
        )
        process = await start_agent(self.spawner, launch)
        try:
            await self.ports.keep(found.own, process.port)
        except BaseException:
            await process.stop()
            raise
        client = AgentClient(self.surroundings.client(), process.url, found.workspace.path, process.password)
        return Started(process, client, wired, installed, tuple(notes))

    async def user(self) -> dict[str, str]:
        """The environment that agents start from."""
        return await user_environment(self._options.env_from, self.spawner)

    async def installed(self, *, again: bool = False) -> Installed:
        """The programs, brought here if they are not, or `again`."""
        user = await self.user()
        return await self.installations.get(user, again=again)

    async def _wiring(self, found: Found, wired: Wired, installed: Installed, user: dict[str, str]) -> Wiring:
        own = user_config(user, self._read)
        # Without our plugin its model could become the default.
        tool_port = wired.tool_port if not without_plugins(user) else None
        injection = Injection(
            project=found.workspace.project.id,
            workspace=found.workspace.name,
            servers=wired.servers,
            off=wired.off,
            gateway=wired.port is not None,
            providers=tool_provider(tool_port) if tool_port is not None else {},
            logins=await asyncio.to_thread(self._logins, user),
            forgotten=forgotten(user),
            user=own.content,
        )
        return Wiring(
            workspace=found.workspace.path,
            token=await self._workspaces.token(found.workspace),
            password=new_token(),
            port=wired.port,
            config=config_for(self.state, own) if wired.port is not None else None,
            content=inline_config(injection),
            ripgrep=installed.ripgrep,
            project_config=wired.project_config,
        )

    def _logins(self, user: dict[str, str]) -> list[str]:
        return [*(one.provider for one in logins(user, self._read)), FREE]


def log_of(state: Path, workspace: Workspace) -> Path:
    """What its agent printed, in its last lives."""
    return state / "logs" / "agents" / workspace.project.id / f"{workspace.name.replace('/', '%')}.log"
