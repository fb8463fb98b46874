"""The effect of our environment and configs on the real OpenCode."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web

from rookery.agents.opencode.config import AgentServers, RedirectedServer
from tests.support.agents.launch import AgentLauncher, config_with, make_launcher
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository, snapshot

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

PROVIDER = {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": "http://127.0.0.1:9/v1"},
    "models": {"m": {"name": "M"}},
}


@pytest.fixture
def launcher(state: Path) -> AgentLauncher:
    return make_launcher(state)


@asynccontextmanager
async def a_gateway() -> AsyncGenerator[tuple[int, list[web.Request]]]:
    """A port on which every request is kept and refused."""
    asked: list[web.Request] = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(status=404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


def user_writes(launcher: AgentLauncher, config: dict[str, Any]) -> Path:
    file = launcher.home.config / "opencode.json"
    file.write_text(config_with(**config))
    return file


@requirement("agent.config.merged", "agent.servers.redirected", "agent.config.file")
async def test_servers_are_redirected_and_the_users_own_settings_stay_in_force(
    launcher: AgentLauncher, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    local = {"type": "local", "command": ["touch", str(started)], "environment": {"A": "b"}}
    file = user_writes(
        launcher, {"username": "zed", "mcp": {"github": local, "pending": local, "own": {**local, "enabled": False}}}
    )
    before = file.read_bytes()
    app = make_repository(tmp_path / "app", {"opencode.json": config_with(mcp={"rookery": local})})
    files = snapshot(app)
    async with a_gateway() as (port, asked):
        served = (RedirectedServer("github", 7000), RedirectedServer("rookery"))
        told = {"servers": AgentServers(served, ("pending",))}
        async with launcher.agent(app, port=port, project_config=True, **told) as (_, api):
            config = await api.ask("GET", "/config")
            statuses = await api.ask("GET", "/mcp")
    assert config["username"] == "zed"
    assert config["mcp"]["github"]["type"] == "remote"
    assert config["mcp"]["github"]["url"] == f"http://127.0.0.1:{port}/w/app-1/ws/s/github/mcp"
    assert config["mcp"]["github"]["timeout"] == 7000
    assert config["mcp"]["rookery"]["url"] == f"http://127.0.0.1:{port}/mcp"
    assert statuses["pending"] == statuses["own"] == {"status": "disabled"}
    assert {request.path for request in asked} == {"/mcp", "/w/app-1/ws/s/github/mcp"}
    assert not started.exists(), "OpenCode started a server of its own"
    assert file.read_bytes() == before
    assert snapshot(app) == files
    assert git(app, "status", "--porcelain", "--ignored") == ""


@requirement("agent.env.path", "agent.env.port", "agent.env.secrets", "agent.config.shape")
async def test_our_entry_reaches_the_gateway_with_path_and_token(launcher: AgentLauncher, tmp_path: Path) -> None:
    app = make_repository(tmp_path / '日本 "100%"')
    async with a_gateway() as (port, asked):
        launch = launcher.launch(app, port=port)
        async with launcher.agent(app, port=port) as (_, api):
            assert "rookery" in await api.ask("GET", "/mcp")
    first = asked[0]
    assert first.path == "/mcp"
    assert unquote(first.headers["X-Workspace-Path"]) == str(app)
    assert first.headers["X-Workspace-Path"] == launch.environment["ROOKERY_WORKSPACE_HEADER"]
    assert first.headers["Authorization"].startswith("Bearer rk_")


@requirement("agent.config.no-port")
async def test_without_a_gateway_port_an_agent_has_no_entry_of_ours(launcher: AgentLauncher, tmp_path: Path) -> None:
    async with launcher.agent(make_repository(tmp_path / "app"), port=None) as (agent, api):
        assert agent.is_alive
        assert await api.ask("GET", "/mcp") == {}
        assert "mcp" not in await api.ask("GET", "/config")


@requirement("agent.env.user", "agent.config.merged")
async def test_the_users_own_variables_take_effect_below_the_repositorys_config(state: Path, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("from a file")
    mine = tmp_path / "mine.jsonc"
    mine.write_text('{"username": "zed", // mine\n "model": "a/b", "small_model": "{file:key.txt}"}')
    user = {"OPENCODE_CONFIG": str(mine), "OPENCODE_CONFIG_CONTENT": '{"autoupdate": false, "share": "disabled"}'}
    launcher = make_launcher(state, user=user)
    before = mine.read_bytes()
    app = make_repository(tmp_path / "app", {"opencode.json": config_with(model="of/repository")})
    async with launcher.agent(app, project_config=True) as (_, api):
        config = await api.ask("GET", "/config")
    assert (config["username"], config["small_model"]) == ("zed", "from a file")
    assert config["model"] == "of/repository", "the user's file must not outrank the repository's"
    assert (config["autoupdate"], config["share"]) == (False, "disabled")
    assert config["mcp"]["rookery"]["type"] == "remote"
    assert mine.read_bytes() == before


@requirement("agent.config.merged")
async def test_our_provider_is_added_to_the_users_enabled_ones_wherever_they_are_listed(
    launcher: AgentLauncher, tmp_path: Path
) -> None:
    user_writes(launcher, {"enabled_providers": ["anthropic"], "provider": {"anthropic": PROVIDER, "other": PROVIDER}})
    app = make_repository(tmp_path / "app")
    async with launcher.agent(app, providers={"scripted": PROVIDER}) as (_, api):
        config = await api.ask("GET", "/config")
        providers = await api.ask("GET", "/config/providers")
    assert config["enabled_providers"] == ["anthropic", "scripted"]
    assert {one["id"] for one in providers["providers"]} == {"anthropic", "scripted"}


async def test_a_user_who_lists_no_providers_keeps_them_all(launcher: AgentLauncher, tmp_path: Path) -> None:
    user_writes(launcher, {"provider": {"other": PROVIDER}})
    async with launcher.agent(make_repository(tmp_path / "app"), providers={"scripted": PROVIDER}) as (_, api):
        assert "enabled_providers" not in await api.ask("GET", "/config")
        providers = await api.ask("GET", "/config/providers")
    assert {one["id"] for one in providers["providers"]} >= {"other", "scripted"}


@requirement("agent.config.merged")
async def test_our_provider_is_never_the_one_whose_model_is_taken_by_default(state: Path, tmp_path: Path) -> None:
    launcher = make_launcher(state, user={"ANTHROPIC_API_KEY": "none"})
    ours = {"providers": {"scripted": PROVIDER}, "logins": ["anthropic", "opencode"]}
    chosen: list[Any] = []
    for more in ({}, ours):
        async with launcher.agent(make_repository(tmp_path / f"app{len(chosen)}"), **more) as (_, api):
            said = {"parts": [{"type": "text", "text": "Hi"}], "noReply": True}
            chosen.append((await api.ask("POST", f"/session/{await api.session()}/message", said))["info"]["model"])
    assert chosen[0]["providerID"] == "anthropic"
    assert chosen[1] == chosen[0]


@requirement("agent.install.npm")
async def test_opencode_finds_the_ripgrep_that_came_with_it(launcher: AgentLauncher, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app", {"haystack.txt": "a needle\n"})
    async with launcher.agent(app) as (_, api):
        (found,) = await api.ask("GET", "/find?pattern=needle")
    assert found["path"]["text"].endswith("haystack.txt")
