"""The routes about projects."""

from pathlib import Path

import pytest

from rookery.system.ids import project_id
from tests.support.gateway.gateway import a_gateway
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository, snapshot

pytestmark = pytest.mark.anyio


@requirement("ws.project.add")
async def test_registering_opens_nothing_and_lists_existing_worktrees_as_closed() -> None:
    app = make_repository(Path.home() / "app")
    git(app, "worktree", "add", "-q", str(Path.home() / "mine"), "-b", "mine")
    before = snapshot(app)
    async with a_gateway(None) as gateway:
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
    async with a_gateway(None, app) as gateway:
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
    async with a_gateway(None) as gateway:
        status, told = await gateway.rest("POST", "/api/projects", {"path": path})
        assert status in (400, 404), told
        assert (await gateway.rest("GET", "/api/projects"))[1] == []
