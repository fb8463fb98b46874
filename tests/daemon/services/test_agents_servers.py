"""The MCP servers of agents: what the service does with the events of servers. No agent runs here."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.daemon.services.agents import AgentsService
from rookery.daemon.settings.schema import AgentSettings, Settings
from rookery.workspaces.model import Workspace
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.http.listener import within_limit
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def start_launched() -> AsyncGenerator[tuple[Gateway, AgentsService, Workspace]]:
    """Run a gateway with a workspace whose agent was prepared, with one server."""
    settings = Settings(agents=AgentSettings(version="path", start="use"))
    project = make_repository(Path.home() / "src" / "app")
    async with start_gateway(lambda scripted: {"one": scripted.server("one")}, project, settings=settings) as gateway:
        service, tools = gateway.parts.agents, gateway.parts.workspaces.tools
        await service.start()
        try:
            made = await tools.create(await tools.resolve_project(None), "fix", wait=True)
            await service.prepare_launch(made)
            yield gateway, service, made
        finally:
            await service.stop()


async def test_a_workspace_that_is_closed_gets_no_new_server_set(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_launched() as (gateway, service, made):
        removed = asyncio.Event()

        def remove(workspace: Workspace) -> None:
            removed.set()

        monkeypatch.setattr(service.agents.launcher.server_entries, "remove", remove)
        await gateway.hub.connect(made.path, None, "one")
        await gateway.workspaces.close(made)
        assert gateway.events.of("mcp.status")[-1]["status"] == "stopped"
        # With the event that follows those of the servers.
        await within_limit(removed.wait())
        assert gateway.hub.find_set(made.path) is None
        assert str(made.path) not in {record.workspace for record in await gateway.hub.all_records()}


async def test_many_events_of_servers_write_the_entries_of_an_agent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_launched() as (gateway, service, made):
        written, more = list[Any](), asyncio.Event()
        write = service.agents.launcher.server_entries.write

        def record(workspace: Workspace, servers: Any) -> None:
            written.append(servers)
            write(workspace, servers)
            more.set()

        monkeypatch.setattr(service.agents.launcher.server_entries, "write", record)
        for number in range(20):
            about = {"server": f"s{number}", "status": "connected", "error": None}
            gateway.events.publish("mcp.status", workspace=str(made.path), **about)
        await within_limit(more.wait())
        assert len(written) == 1
