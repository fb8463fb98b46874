"""What an agent's shells do not see, and what of a repository the real OpenCode does not run."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.agents import Bench, config_with, make_bench, shell
from tests.support.opencode_home import fetch_no_plugin_package
from tests.support.requirements import requirement
from tests.support.workspaces import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

# Leaves a note when OpenCode loads it.
PLUGIN = """
import { writeFileSync } from "fs"
export const X = async () => { writeFileSync("NOTE", "ran"); return {} }
"""


@pytest.fixture
def bench(state: Path) -> Bench:
    return make_bench(state)


@requirement("agent.env.secrets", "agent.env.user")
async def test_f01_tool_shells_see_neither_password_nor_token(state: Path, tmp_path: Path) -> None:
    bench = make_bench(state, user={"MY_KEY": "mine"})
    async with bench.agent(make_repository(tmp_path / "app")) as (agent, api):
        printed = await shell(api, "env")
    variables = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    assert variables["MY_KEY"] == "mine"
    assert variables["ROOKERY_WORKSPACE_PATH"] == str(tmp_path / "app")
    assert variables["OPENCODE_SERVER_PASSWORD"] == variables["ROOKERY_TOKEN"] == ""
    assert agent.password not in printed
    assert "npm_config_fetch_retries" not in variables


async def test_f01_a_terminal_sees_neither_password_nor_token(bench: Bench, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    os.mkfifo(printed)
    async with bench.agent(make_repository(tmp_path / "app")) as (agent, api):
        command = {"command": "/usr/bin/env", "args": ["sh", "-c", f"env > {printed}"], "title": "env"}
        await api.ask("POST", "/pty", command)
        found = await asyncio.wait_for(asyncio.to_thread(printed.read_text), 60)
    assert f"ROOKERY_WORKSPACE_PATH={tmp_path}/app\n" in found
    assert "ROOKERY_TOKEN=\n" in found
    assert agent.password not in found


@requirement("agent.config.project")
@pytest.mark.parametrize("where", [".opencode/plugin/evil.js", "opencode.json"])
async def test_c24_nothing_of_a_repository_runs_until_it_is_approved(bench: Bench, tmp_path: Path, where: str) -> None:
    note = tmp_path / "note"
    code = PLUGIN.replace("NOTE", str(note))
    files = {where: code} if where.endswith(".js") else {where: config_with(plugin=["./evil.js"]), "evil.js": code}
    app = make_repository(tmp_path / "app", {**files, ".opencode/agent/evil.md": "---\nmode: primary\n---\nbe evil\n"})
    fetch_no_plugin_package(app / ".opencode")
    async with bench.agent(app) as (_, api):
        agents = await api.ask("GET", "/agent")
        await shell(api, "true")
    assert not note.exists()
    assert "evil" not in {agent["name"] for agent in agents}
    async with bench.agent(app, project_config=True) as (_, api):
        agents = await api.ask("GET", "/agent")
        await shell(api, "true")
    assert note.read_text() == "ran"
    assert "evil" in {agent["name"] for agent in agents}


async def test_an_agent_does_not_wait_for_an_npm_registry_that_is_out_of_reach(state: Path, tmp_path: Path) -> None:
    """With a plugin, OpenCode tries an npm install before its first answer; with npm's own patience for a minute."""
    tried: list[object] = []

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.append(writer)
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as registry:
        port = registry.sockets[0].getsockname()[1]
        bench = make_bench(state, user={"npm_config_registry": f"http://127.0.0.1:{port}"})
        for left in ("package.json", "package-lock.json"):
            (bench.home.config / left).unlink()
        (bench.home.config / "node_modules").rmdir()
        async with bench.agent(make_repository(tmp_path / "app")) as (agent, api):
            assert await shell(api, "echo here") == "here\n"
            assert "background dependency install failed" in agent.log.path.read_text()
    assert len(tried) == 1
