"""Agents as the daemon runs them, in the test process: real OpenCodes with a scripted model."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from rookery.agents.manager import AgentManager
from rookery.agents.policy import SupervisionIntervals
from rookery.daemon.settings.schema import AgentSettings, LimitSettings, NotifySettings, Settings
from rookery.testing.model import ScriptedModel, scripted_model
from rookery.workspaces.model import AgentInfo, Workspace
from rookery.workspaces.operations import WorkspaceOperations
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.opencode.home import OFFLINE, fetch_no_plugin_package, scripted_config
from tests.support.opencode.process import installed

# OpenCode takes seconds on a quiet machine, and tests run side by side.
LIMIT = 400.0


class AgentHost:
    """The parts of a daemon with working agents, without the daemon."""

    def __init__(self, gateway: Gateway, model: ScriptedModel) -> None:
        self.gateway, self.model = gateway, model

    @property
    def tools(self) -> WorkspaceOperations:
        return self.gateway.parts.workspaces.tools

    @property
    def agents(self) -> AgentManager:
        return self.gateway.parts.workspaces.agents

    async def create(self, name: str, **more: Any) -> Workspace:
        """Create a workspace of the only project, and wait until it is prepared."""
        return await self.tools.create(await self.tools.resolve_project(None), name, wait=True, **more)

    async def create_only(self, name: str, **more: Any) -> Workspace:
        """Create a workspace of the only project, without waiting for its preparation."""
        return await self.tools.create(await self.tools.resolve_project(None), name, **more)

    async def until(self, workspace: Workspace, true: Callable[[AgentInfo], object]) -> AgentInfo:
        """Wait until its agent meets the condition, and return it."""
        news = self.gateway.events.more
        try:
            async with asyncio.timeout(LIMIT):
                while not true(found := await self.agents.process(workspace)):
                    news.clear()
                    await news.wait()
                return found
        except TimeoutError:
            raise AssertionError(f"that did not come to hold: {await self.agents.process(workspace)}") from None

    async def until_is(self, workspace: Workspace, state: str) -> AgentInfo:
        return await self.until(workspace, lambda agent: agent.state == state)

    async def session_is(self, workspace: Workspace, state: str) -> str:
        """Wait until its only session has this state, and return the session's id."""
        await self.until(workspace, lambda _: [one.state for one in self.agents.sessions(workspace)] == [state])
        return self.agents.sessions(workspace)[0].id

    async def said(self, workspace: Workspace, text: str) -> str:
        """Wait until the last message of its only session is this, and return the session's id."""
        news = self.gateway.events.more
        life = await self.agents.ensure_running(workspace)
        async with asyncio.timeout(LIMIT):
            while True:
                news.clear()
                for one in self.agents.sessions(workspace):
                    last = (await life.client.messages(one.id, 1))[-1:]
                    if one.state == "idle" and last and last[0].text == text:
                        return one.id
                await news.wait()

    async def rest(self, method: str, workspace: Workspace, what: str = "") -> tuple[int, Any]:
        """Call the route of its agent, or one below it."""
        place = f"/api/workspaces/{workspace.project.id}/{quote(workspace.name, safe='')}/agent{what}"
        return await self.gateway.rest(method, place)

    def told(self, workspace: Workspace) -> list[str]:
        """Return the states that were published for its agent, in order."""
        states = [
            one["agent"]["state"] for one in self.gateway.events.of("agent.state") if one["name"] == workspace.name
        ]
        return [one for at, one in enumerate(states) if at == 0 or states[at - 1] != one]


@asynccontextmanager
async def start_agent_host(
    script: Mapping[str, Any],
    *projects: Path,
    model: bool = True,
    gateway_port: bool = True,
    servers: Mapping[str, Any] | None = None,
    pace: SupervisionIntervals | None = None,
    notify: str = "",
    with_tokens: bool = False,
    limits: LimitSettings | None = None,
    **agents: Any,
) -> AsyncGenerator[AgentHost]:
    """Start a host; all agents are stopped at the end. Without a `model` OpenCode has none; `agents` are settings."""
    agents = {"start_seconds": 300.0, **agents}
    settings = Settings(
        agents=AgentSettings(version="path", **agents),
        notify=NotifySettings(notify),
        limits=limits or LimitSettings(),
    )
    async with scripted_model(script) as made:
        with pytest.MonkeyPatch.context() as patch:
            await asyncio.to_thread(_surround, patch, made.url if model else None)
            async with start_gateway(servers, *projects, settings=settings, with_tokens=with_tokens) as gateway:
                if gateway_port:
                    gateway.service.on_bound(gateway.site.port)
                host = AgentHost(gateway, made)
                if pace is not None:
                    host.agents._intervals = pace
                await gateway.parts.agents.start()
                try:
                    yield host
                finally:
                    await gateway.parts.agents.stop()


def environment_of(pid: int) -> dict[str, str]:
    return psutil.Process(pid).environ()


def _surround(patch: pytest.MonkeyPatch, model_url: str | None) -> None:
    """Set the environment of a user who has OpenCode on PATH and no network."""
    config = Path(os.environ["HOME"]) / ".config" / "opencode"
    fetch_no_plugin_package(config)
    told = scripted_config(model_url) if model_url is not None else {"enabled_providers": ["nobody"]}
    (config / "opencode.json").write_text(json.dumps({"$schema": "https://opencode.ai/config.json", **told}))
    for name, value in {"PATH": installed().search_path, "LANG": "C.UTF-8", **OFFLINE}.items():
        patch.setenv(name, value)
