"""Agents as the daemon starts them, with the real OpenCode, offline."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.agents.opencode.config import (
    InlineConfig,
    prepare_config_file,
    read_user_config,
    render_inline_config,
    write_config_file,
)
from rookery.agents.opencode.environment import EnvironmentSpec, build_environment, startup_variables
from rookery.agents.opencode.process import AgentProcess, LaunchSpec, start_agent
from rookery.system.ids import new_id, new_token
from rookery.system.process.spawn import Spawner
from rookery.upstreams.config.jsonc import parse_jsonc, to_python
from tests.support.opencode.api import OpenCodeApi
from tests.support.opencode.home import OPENCODE_VERSION, OpenCodeHome
from tests.support.opencode.process import START_SECONDS, installed


def read_jsonc(text: str) -> Any:
    return to_python(parse_jsonc(text))


@dataclass(frozen=True)
class AgentLauncher:
    """What the agents of one test share: a state folder, a home, a spawner, and the user's environment."""

    state: Path
    home: OpenCodeHome
    spawner: Spawner = field(default_factory=lambda: Spawner(new_id()))
    user: Mapping[str, str] = field(default_factory=dict[str, str])
    opencode: Path | None = None

    def launch(
        self, folder: Path, *, ports: tuple[int, ...] = (), seconds: float = START_SECONDS, **more: Any
    ) -> LaunchSpec:
        """Return a launch in `folder`. `more`: wiring (`port`, `project_config`, `packages`) and injection."""
        here = installed()
        environment = {"PATH": os.environ["PATH"], **self.home.environment(), **self.user}
        own = read_user_config(environment, read_jsonc)
        port: int | None = more.pop("port", 7777)
        background: bool = more.pop("background", True)
        packages: bool = more.pop("packages", True)
        wire = {"project_config": more.pop("project_config", False), "packages": packages}
        told: dict[str, Any] = {"project": "app-1", "workspace": "ws", "gateway": port is not None}
        told |= {"forgotten": startup_variables(environment, packages=packages), "user": own.content} | more
        write_config_file(self.state)
        wiring = EnvironmentSpec(
            workspace=folder,
            token=new_token(),
            password=new_id(),
            port=port,
            config=prepare_config_file(self.state, own) if port is not None else None,
            content=render_inline_config(InlineConfig(**told)),
            ripgrep=here.ripgrep,
            **wire,
        )
        return LaunchSpec(
            name="agent",
            opencode=self.opencode or here.opencode,
            version=OPENCODE_VERSION,
            folder=folder,
            environment=build_environment(environment, wiring),
            ports=ports,
            log=self.state / "logs" / f"agent-{new_id()}.log",
            state=self.state,
            seconds=seconds,
            background=background,
        )

    @asynccontextmanager
    async def agent(self, folder: Path, **more: Any) -> AsyncGenerator[tuple[AgentProcess, OpenCodeApi]]:
        """Run an agent until the end of the block, and yield it with an API client once it listens."""
        launch = await asyncio.to_thread(self.launch, folder, **more)
        agent = await start_agent(self.spawner, launch)
        try:
            async with OpenCodeApi(agent.url, folder, agent.password) as api:
                yield agent, api
        finally:
            await agent.stop()


def make_launcher(state: Path, **more: Any) -> AgentLauncher:
    return AgentLauncher(state, OpenCodeHome.make(Path(os.environ["HOME"]) / "opencode"), **more)


async def shell(api: OpenCodeApi, command: str) -> str:
    """Return the output of a command in the agent's bash tool."""
    session = await api.session()
    await api.ask("POST", f"/session/{session}/shell", {"agent": "build", "command": command})
    return (await api.tools(session))[-1]["state"]["output"]


def config_with(**more: Any) -> str:
    """Return a config with a schema; OpenCode writes one into a file that has none."""
    return json.dumps({"$schema": "https://opencode.ai/config.json", **more})
