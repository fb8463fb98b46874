"""The operations on projects, over REST and MCP."""

from pathlib import Path

import pytest

from rookery.system.ids import project_id
from tests.support.gateway.gateway import OWNERS, start_gateway
from tests.support.mcp.caller import ERAS, failure, told
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository, snapshot

pytestmark = pytest.mark.anyio


@requirement("ws.project.add")
async def test_registering_opens_nothing_and_lists_existing_worktrees_as_closed() -> None:
    app = make_repository(Path.home() / "app")
    git(app, "worktree", "add", "-q", str(Path.home() / "mine"), "-b", "mine")
    before = snapshot(app)
    async with start_gateway(None) as gateway:
        (app / "deep").mkdir()
        status, told = await gateway.rest("POST", "/api/projects", {"path": str(app / "deep")})
        wanted = {"id": project_id(app), "name": "app", "path": str(app)}
        assert (status, told) == (201, {**wanted, "added": True, "approved": [], "note": ""})
        assert (await gateway.rest("POST", "/api/projects", {"path": str(app)}))[0] == 200
        assert (await gateway.rest("GET", "/api/projects"))[1] == [wanted]
        listed = (await gateway.rest("GET", "/api/workspaces"))[1]
        assert {one["name"]: one["open"] for one in listed} == {"@main": False, "mine": False}
    assert snapshot(app) == before


@requirement("ws.project.add")
async def test_a_project_is_forgotten_and_nothing_of_it_is_touched() -> None:
    app = make_repository(Path.home() / "app")
    async with start_gateway(None, app) as gateway:
        made = (await gateway.rest("POST", "/api/workspaces", {"name": "fix", "wait": True}))[1]
        before = snapshot(app)
        status, told = await gateway.rest("DELETE", f"/api/projects/{project_id(app)}")
        assert (status, told["id"], told["removed"]) == (200, project_id(app), True)
        assert (await gateway.rest("GET", "/api/projects"))[1] == []
        assert (await gateway.rest("GET", "/api/workspaces"))[1] == []
        assert snapshot(app) == before
        assert Path(made["path"]).is_dir()
        status, told = await gateway.rest("DELETE", f"/api/projects/{project_id(app)}")
        assert (status, told["error"]["code"]) == (404, "project-not-found")


@pytest.mark.parametrize("path", ["app", "", "/no/such/place", "/"])
async def test_what_is_no_repository_is_refused(path: str) -> None:
    async with start_gateway(None) as gateway:
        status, told = await gateway.rest("POST", "/api/projects", {"path": path})
        assert status in (400, 404), told
        assert (await gateway.rest("GET", "/api/projects"))[1] == []


@pytest.mark.parametrize("era", ERAS)
async def test_the_owner_adds_and_removes_projects_over_mcp(era: str) -> None:
    app = make_repository(Path.home() / "app")
    (app / "deep").mkdir()
    async with start_gateway(None) as gateway:
        caller = await gateway.caller("/mcp?toolsets=workspace,admin", era)
        project = {"id": project_id(app), "name": "app", "path": str(app)}
        added = told(await caller.call("project_add", {"path": str(app / "deep")}))
        assert added == {**project, "added": True, "approved": [], "note": ""}
        assert told(await caller.call("project_add", {"path": str(app)}))["added"] is False
        assert told(await caller.call("project_list")) == [{**project, "workspaces": ["@main"]}]
        for path, code in (
            ("deep", "invalid-input"),
            ("/", "repository-not-found"),
            (str(Path.home()), "repository-not-found"),
        ):
            assert failure(await caller.call("project_add", {"path": path})) == code
        assert told(await caller.call("project_remove", {"project": "app"})) == {**project, "removed": True}
        assert (await gateway.rest("GET", "/api/projects"))[1] == []
        assert failure(await caller.call("project_remove", {"project": "app"})) == "project-not-found"


async def test_what_a_model_adds_is_not_approved_by_that() -> None:
    apps = [
        make_repository(Path.home() / name, {"justfile": "build:\n  echo done\n"}) for name in ("by-tool", "by-route")
    ]
    async with start_gateway(None) as gateway:
        caller = await gateway.caller()
        by_tool = told(await caller.call("project_add", {"path": str(apps[0])}))
        assert by_tool["approved"] == [] and "approves nothing because" in by_tool["note"]
        # As `rookery project add` does it.
        by_route = (await gateway.rest("POST", "/api/projects", {"path": str(apps[1])}))[1]
        assert [approved["kind"] for approved in by_route["approved"]] == ["justfile"] and not by_route["note"]


async def test_the_workspaces_of_projects_are_listed_on_request() -> None:
    app = make_repository(Path.home() / "app")
    async with start_gateway(None, app) as gateway:
        (project,) = (await gateway.rest("GET", "/api/projects?workspaces=true"))[1]
        assert project["workspaces"] == ["@main"]
        assert "workspaces" not in (await gateway.rest("GET", "/api/projects?workspaces=false"))[1][0]


async def test_a_workspace_is_not_offered_the_tool_that_adds_projects() -> None:
    app, other = (make_repository(Path.home() / name) for name in ("app", "other"))
    async with start_gateway(None, app, with_tokens=True) as gateway:
        project = await gateway.parts.projects.get("app")
        workspace = await gateway.workspaces.create(project.id, "fix")
        token = await gateway.workspaces.token(await gateway.workspaces.wait_until_prepared(workspace))
        path = f"/w/{project_id(app)}/fix/mcp"
        for url in ("/mcp", "/mcp?toolsets=workspace,admin", path):
            agent = await gateway.caller(url, headers={"Authorization": f"Bearer {token}"})
            assert "project_list" in [tool["name"] for tool in await agent.listed("tools")]
            for name, arguments in (("project_add", {"path": str(other)}), ("project_remove", {"project": "app"})):
                assert name in (await agent.call(name, arguments))["error"]["message"]
        owner = await gateway.caller(path, headers={"Authorization": f"Bearer {OWNERS}"})
        assert "project_add" in [tool["name"] for tool in await owner.listed("tools")]
        assert [entry.name for entry in await gateway.parts.projects.all()] == ["app"]
