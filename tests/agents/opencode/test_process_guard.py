"""Variables that are hidden from an agent's shells, and code of a repository that OpenCode does not run."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from rookery.agents.opencode.process import start_agent
from rookery.system.errors import RookeryError
from tests.support.agents.launch import AgentLauncher, config_with, make_launcher, shell
from tests.support.npm.registry import npm_registry
from tests.support.opencode.api import OpenCodeApi
from tests.support.opencode.home import fetch_no_plugin_package
from tests.support.opencode.process import installed
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

# Leaves a note when it is imported; and is a plugin to both of OpenCode's loaders.
PLUGIN = """
import { writeFileSync } from "fs"
writeFileSync("NOTE", "ran")
export default { id: "evil", server: async () => ({}), effect: async () => {} }
"""


@pytest.fixture
def launcher(state: Path) -> AgentLauncher:
    return make_launcher(state)


@requirement("agent.env.secrets", "agent.env.user")
async def test_f01_neither_tool_shells_nor_terminals_see_password_or_token(state: Path, tmp_path: Path) -> None:
    launcher = make_launcher(state, user={"MY_KEY": "mine"})
    printed = tmp_path / "printed"
    os.mkfifo(printed)
    async with launcher.agent(make_repository(tmp_path / "app")) as (agent, api):
        in_shell = await shell(api, "env")
        command = {"command": "/usr/bin/env", "args": ["sh", "-c", f"env > {printed}"], "title": "env"}
        await api.ask("POST", "/pty", command)
        in_terminal = await asyncio.wait_for(asyncio.to_thread(printed.read_text), 60)
    variables = dict(line.split("=", 1) for line in in_shell.splitlines() if "=" in line)
    assert variables["MY_KEY"] == "mine"
    assert variables["ROOKERY_WORKSPACE_PATH"] == str(tmp_path / "app")
    assert variables["OPENCODE_SERVER_PASSWORD"] == variables["ROOKERY_TOKEN"] == ""
    assert agent.password not in in_shell
    assert "npm_config_fetch_retries" not in variables
    assert f"ROOKERY_WORKSPACE_PATH={tmp_path}/app\n" in in_terminal
    assert "ROOKERY_TOKEN=\n" in in_terminal
    assert agent.password not in in_terminal


async def used(api: OpenCodeApi) -> str:
    """Have OpenCode load all that it loads, by both of its interfaces; what it tells of agents and commands."""
    await shell(api, "true")
    paths = ["/agent", "/command", "/config", "/mcp", "/find?pattern=x", "/experimental/tool/ids"]
    paths += [f"/api/{what}" for what in ("agent", "command", "skill", "session", "model", "provider")]
    return json.dumps({path: await api.ask("GET", path) for path in paths})


# Each place from which OpenCode takes code of a repository.
PLACES = [".opencode/plugin/a.js", ".opencode/plugins/b.ts", "opencode.json", ".opencode/opencode.jsonc"]


def brought_along(tmp_path: Path) -> dict[str, str]:
    """Files of a repository that bring plugins in every way, each with a name and a note of its own."""
    files = {".opencode/agent/evil.md": "---\nmode: primary\n---\nbe evil\n"}
    for number, place in enumerate(PLACES):
        if "plugin" in place:
            files[place] = _plugin(f"evil-{number}", tmp_path)
            continue
        inside, outside = f"evil-{number}-in", f"evil-{number}-out"
        files[str(Path(place).parent / f"{inside}.js")] = _plugin(inside, tmp_path)
        (tmp_path / f"{outside}.js").write_text(_plugin(outside, tmp_path))
        named = config_with(plugin=[f"./{inside}.js", (tmp_path / f"{outside}.js").as_uri()])
        files[place] = named.replace("evil", "\\u0065vil")
    return files


def _plugin(name: str, notes: Path) -> str:
    return PLUGIN.replace("evil", name).replace("NOTE", str(notes / f"note-{name}"))


@requirement("agent.config.project")
async def test_c24_nothing_of_a_repository_runs_until_it_is_approved(launcher: AgentLauncher, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app", brought_along(tmp_path))
    fetch_no_plugin_package(app / ".opencode")
    async with launcher.agent(app) as (agent, api):
        assert "evil" not in {one["name"] for one in await api.ask("GET", "/agent")}
        await used(api)
        assert "BUN_INSPECT_PRELOAD" not in await shell(api, "env")
        assert "config is kept off" in agent.log.path.read_text()
    assert not list(tmp_path.glob("note-*"))
    async with launcher.agent(app, project_config=True) as (_, api):
        assert "evil" in {one["name"] for one in await api.ask("GET", "/agent")}
        await used(api)
    ran = {note.name.removeprefix("note-") for note in tmp_path.glob("note-*")}
    wanted = {"evil-0", "evil-1", "evil-2-in", "evil-2-out", "evil-3-in", "evil-3-out"}
    assert ran == wanted, "one would not have run anyway"


@requirement("agent.config.project")
async def test_c24_no_package_that_a_repository_names_runs_until_it_is_approved(state: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    app = make_repository(tmp_path / "app", {"opencode.json": config_with(plugin=["evil-package@1.0.0"])})
    with npm_registry() as registry:
        code = PLUGIN.replace("NOTE", str(note))
        registry.publish("evil-package", "1.0.0", {"index.js": code}, type="module", main="index.js")
        launcher = make_launcher(state, user={"npm_config_registry": registry.url})
        async with launcher.agent(app) as (_, api):
            await used(api)
        assert not note.exists()
        async with launcher.agent(app, project_config=True) as (_, api):
            await used(api)
    assert note.read_text() == "ran", "it would not have run anyway"


async def test_the_users_own_plugins_run_though_the_repositorys_do_not(launcher: AgentLauncher, tmp_path: Path) -> None:
    note = tmp_path / "note"
    mine = launcher.home.config / "plugin" / "mine.js"
    mine.parent.mkdir()
    mine.write_text(PLUGIN.replace("NOTE", str(note)))
    app = make_repository(tmp_path / "app", {"opencode.json": config_with(plugin=["./mine.js"])})
    async with launcher.agent(app) as (_, api):
        await used(api)
    assert note.read_text() == "ran"


async def test_c24_an_opencode_that_cannot_be_guarded_does_not_start_before_approval(
    state: Path, tmp_path: Path
) -> None:
    program = tmp_path / "opencode"
    program.write_text(f'#!/bin/sh\nunset BUN_INSPECT_PRELOAD\nexec "{installed().opencode}" "$@"\n')
    program.chmod(0o755)
    launcher = make_launcher(state, opencode=program)
    app = make_repository(tmp_path / "app")
    with pytest.raises(RookeryError, match="cannot be prevented from running the repository's own code") as caught:
        await start_agent(launcher.spawner, launcher.launch(app))
    assert caught.value.code == "needs-approval"
    assert not launcher.spawner.children
    async with launcher.agent(app, project_config=True) as (agent, _):
        assert agent.is_alive


async def test_an_agent_does_not_wait_for_an_npm_registry_that_is_out_of_reach(state: Path, tmp_path: Path) -> None:
    """With a plugin, OpenCode tries an npm install before its first answer; with npm's own patience for a minute."""
    tried: list[object] = []

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.append(writer)
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as registry:
        port = registry.sockets[0].getsockname()[1]
        launcher = make_launcher(state, user={"npm_config_registry": f"http://127.0.0.1:{port}"})
        for left in ("package.json", "package-lock.json"):
            (launcher.home.config / left).unlink()
        (launcher.home.config / "node_modules").rmdir()
        async with launcher.agent(make_repository(tmp_path / "app")) as (agent, api):
            assert await shell(api, "echo here") == "here\n"
            assert "background dependency install failed" in agent.log.path.read_text()
    assert len(tried) == 1


async def test_an_agent_whose_user_has_no_plugins_asks_no_npm_registry_at_its_start(
    state: Path, tmp_path: Path
) -> None:
    """One that takes connections and says nothing would be waited for, for minutes."""
    tried: list[object] = []
    async with await asyncio.start_server(lambda _, writer: tried.append(writer), "127.0.0.1", 0) as registry:
        port = registry.sockets[0].getsockname()[1]
        launcher = make_launcher(state, user={"npm_config_registry": f"http://127.0.0.1:{port}"})
        for left in ("package.json", "package-lock.json"):
            (launcher.home.config / left).unlink()
        (launcher.home.config / "node_modules").rmdir()
        async with launcher.agent(make_repository(tmp_path / "app"), packages=False) as (_, api):
            assert await shell(api, "echo ${npm_config_offline-unset}") == "unset\n"
        assert tried == []
