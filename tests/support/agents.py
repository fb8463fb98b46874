"""Agents as the daemon starts them, with the real OpenCode, offline."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.agents.configs import config_for, user_config, write_config
from rookery.agents.environment import Wiring, agent_environment, forgotten
from rookery.agents.injection import Injection, inline_config
from rookery.agents.process import AgentProcess, Launch, start_agent
from rookery.system.ids import new_id, new_token
from rookery.system.spawn import Spawner
from rookery.upstreams.jsonc import parse, plain
from tests.support.opencode import START_SECONDS, installed
from tests.support.opencode_api import OpenCodeApi
from tests.support.opencode_home import OPENCODE_VERSION, OpenCodeHome


def read_jsonc(text: str) -> Any:
    return plain(parse(text))


@dataclass(frozen=True)
class Bench:
    """All that agents of one test share: a state folder, a home, a spawner, and the user's own environment."""

    state: Path
    home: OpenCodeHome
    spawner: Spawner = field(default_factory=lambda: Spawner(new_id()))
    user: Mapping[str, str] = field(default_factory=dict[str, str])
    opencode: Path | None = None

    def launch(
        self, folder: Path, *, ports: tuple[int, ...] = (), seconds: float = START_SECONDS, **more: Any
    ) -> Launch:
        """A launch in `folder`. `more` goes to the wiring (`port`, `project_config`) and to the injection."""
        here = installed()
        environment = {"PATH": os.environ["PATH"], **self.home.environment(), **self.user}
        own = user_config(environment, read_jsonc)
        port: int | None = more.pop("port", 7777)
        background: bool = more.pop("background", True)
        wire = {"project_config": more.pop("project_config", False)}
        told: dict[str, Any] = {"project": "app-1", "workspace": "ws", "gateway": port is not None}
        told |= {"forgotten": forgotten(environment), "user": own.content} | more
        write_config(self.state)
        wiring = Wiring(
            workspace=folder,
            token=new_token(),
            password=new_id(),
            port=port,
            config=config_for(self.state, own) if port is not None else None,
            content=inline_config(Injection(**told)),
            ripgrep=here.ripgrep,
            **wire,
        )
        return Launch(
            name="agent",
            opencode=self.opencode or here.opencode,
            version=OPENCODE_VERSION,
            folder=folder,
            environment=agent_environment(environment, wiring),
            ports=ports,
            log=self.state / "logs" / f"agent-{new_id()}.log",
            state=self.state,
            seconds=seconds,
            background=background,
        )

    @asynccontextmanager
    async def agent(self, folder: Path, **more: Any) -> AsyncGenerator[tuple[AgentProcess, OpenCodeApi]]:
        """An agent that listens, with what speaks to it, until the end of the block."""
        launch = await asyncio.to_thread(self.launch, folder, **more)
        agent = await start_agent(self.spawner, launch)
        try:
            async with OpenCodeApi(agent.url, folder, agent.password) as api:
                yield agent, api
        finally:
            await agent.stop()


def make_bench(state: Path, **more: Any) -> Bench:
    return Bench(state, OpenCodeHome.make(Path(os.environ["HOME"]) / "opencode"), **more)


async def shell(api: OpenCodeApi, command: str) -> str:
    """What a command prints in the agent's bash tool."""
    session = await api.session()
    await api.ask("POST", f"/session/{session}/shell", {"agent": "build", "command": command})
    return (await api.tools(session))[-1]["state"]["output"]


def config_with(**more: Any) -> str:
    """Without a schema OpenCode would write one into the file."""
    return json.dumps({"$schema": "https://opencode.ai/config.json", **more})
