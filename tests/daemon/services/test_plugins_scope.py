"""Plugins with the token of one workspace, and OpenCode's plugins in workspaces with different agents."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rookery.agents.manager import AgentManager
from rookery.daemon.services.plugins import OpenCodePlugins
from rookery.daemon.settings.schema import AgentSettings, Settings
from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from tests.support.gateway.gateway import OWNERS, start_gateway
from tests.support.mcp.caller import failure, told, words
from tests.support.plugins.project import in_plugins, source
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

ACTIONS = """
@plugin.action("owners")
async def owners(args, house):
    return "done"

@plugin.action("anybodys", scoped=True)
async def anybodys(args, house):
    return str(house.scope)
"""


@requirement("plugin.list.all", "plugin.state.get", "plugin.action.trigger")
async def test_a_workspace_token_sees_plugins_of_its_project_and_runs_scoped_actions() -> None:
    apps = [
        make_repository(
            Path.home() / "src" / name, {in_plugins("own.py"): source(name, more=ACTIONS), ".omo/boulder.json": "{}"}
        )
        for name in ("one", "two")
    ]
    settings = Settings(agents=AgentSettings(toolsets="workspace,session"))
    async with start_gateway(None, *apps, settings=settings, with_tokens=True) as gateway:
        service = gateway.parts.plugins
        await service.start()
        try:
            token = await gateway.workspaces.tokens.get((apps[0] / ".git").resolve())
            agent = await gateway.caller(headers={"Authorization": f"Bearer {token}"})
            owner = await gateway.caller(headers={"Authorization": f"Bearer {OWNERS}"})
            for caller, names in ((agent, ["boulder", "one"]), (owner, ["boulder", "one", "two"])):
                assert [one["name"] for one in told(await caller.call("list_plugins"))] == names
                states = told(await caller.call("get_plugin_state"))
                assert [one["plugin"] for one in states] == [*names, *["oh-my-opencode"] * (len(names) - 1)]
            assert told(await agent.call("get_plugin_state", {"pluginName": "one"}))["scope"] == str(apps[0])
            assert failure(await agent.call("get_plugin_state", {"pluginName": "two"})) == "plugin-not-found"
            mine = {"pluginName": "one", "action": "anybodys"}
            assert words(await agent.call("trigger_plugin_action", mine)) == f'"{apps[0]}"'
            assert words(await owner.call("trigger_plugin_action", mine)) == '"None"'
            theirs = {"pluginName": "one", "action": "owners"}
            assert failure(await agent.call("trigger_plugin_action", theirs)) == "forbidden"
            assert words(await owner.call("trigger_plugin_action", theirs)) == '"done"'
            foreign = mine | {"args": {"sessionId": "ses_of_another"}}
            assert failure(await agent.call("trigger_plugin_action", foreign)) == "session-not-found"
            assert failure(await agent.call("trigger_plugin_action", {"pluginName": "two"})) == "plugin-not-found"
        finally:
            await service.stop()


class Client:
    """An agent's, which names one plugin, or does not answer."""

    def __init__(self, directory: Path, answers: bool) -> None:
        self.directory, self._answers = str(directory), answers

    async def config(self) -> dict[str, Any]:
        if not self._answers:
            raise RookeryError("agent-unavailable", "it does not answer")
        return {"plugin": ["some-package@1.0"]}


def tenant(path: Path, life: Any) -> Any:
    workspace = Workspace(Project("app-1", "app", str(path)), path.name, path, None, False, "ready")
    return SimpleNamespace(workspace=workspace, supervisor=SimpleNamespace(run=life))


def life(path: Path, *, answers: bool = True, approved: bool = True) -> Any:
    wired = SimpleNamespace(project_config=approved)
    return SimpleNamespace(client=Client(path, answers), started=SimpleNamespace(context=wired))


@requirement("plugin.list.all")
async def test_files_that_no_agent_names_are_listed_with_why(tmp_path: Path) -> None:
    made: dict[Path, Any] = {}
    for name, running in (
        ("asleep", None),
        ("silent", {"answers": False}),
        ("kept-off", {"approved": False}),
        ("approved", {}),
    ):
        path = tmp_path / name
        (path / ".opencode" / "plugins").mkdir(parents=True)
        (path / ".opencode" / "plugins" / "own.ts").write_text("export {}\n")
        (path / ".opencode" / "plugins" / "notes.md").write_text("# Notes\n")
        made[path] = tenant(path, life(path, **running) if running is not None else None)

    async def no_lines(workspace: Workspace, count: int) -> list[str]:
        return []

    agents = OpenCodePlugins(cast(AgentManager, SimpleNamespace(agents=made, log_lines=no_lines)))
    found = [(Path(one.workspace or "").name, one.name, one.status) for one in await agents.all(None)]
    assert found == [
        ("asleep", "own", "unknown"),
        ("silent", "own", "unknown"),
        ("kept-off", "some-package", "unknown"),
        ("kept-off", "own", "needs_approval"),
        ("approved", "some-package", "unknown"),
    ]
    assert [one.name for one in await agents.all(tmp_path / "approved")] == ["some-package"]
