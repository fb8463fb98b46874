"""The operations on the trash, over REST and MCP."""

from pathlib import Path

import pytest

from rookery.system.ids import project_id
from tests.support.gateway.gateway import OWNERS, Gateway, start_gateway
from tests.support.mcp.caller import ERAS, failure, told
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio


def repository(name: str = "app") -> Path:
    return make_repository(Path.home() / "src" / name)


async def deleted(gateway: Gateway, name: str, project: str = "app") -> Path:
    """A workspace that is in the trash now; where it was."""
    asked = {"name": name, "project": project, "wait": True}
    made = (await gateway.rest("POST", "/api/workspaces", asked))[1]
    (Path(made["path"]) / "note").write_text(name)
    place = f"/api/workspaces/{project}/{name.replace('/', '%2F')}"
    assert (await gateway.rest("DELETE", f"{place}?force=true&wait=true"))[0] == 200
    return Path(made["path"])


@requirement("ws.delete.restore")
async def test_what_is_in_the_trash_is_listed_and_comes_back() -> None:
    app = repository()
    async with start_gateway(None, app, repository("other")) as gateway:
        path = await deleted(gateway, "feature/x")
        await deleted(gateway, "theirs", "other")
        every = (await gateway.rest("GET", "/api/trash"))[1]
        assert [one["name"] for one in every] == ["feature/x", "theirs"]
        (mine,) = (await gateway.rest("GET", "/api/trash?project=app"))[1]
        assert mine == every[0]
        assert mine.items() >= {"project": project_id(app), "path": str(path), "branch": "feature/x"}.items()
        assert mine["size"] > 0
        status, back = await gateway.rest("POST", f"/api/trash/{mine['id'].replace('%', '%25')}/restore")
        assert (status, back["name"], back["path"]) == (200, "feature/x", str(path))
        assert (path / "note").read_text() == "feature/x"
        assert (await gateway.rest("GET", "/api/trash?project=app"))[1] == []


async def test_it_comes_back_by_name_and_to_another_place() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        await deleted(gateway, "fix")
        to = Path.home() / "elsewhere"
        status, told = await gateway.rest("POST", "/api/trash/fix/restore", {"to": "elsewhere"})
        assert (status, told["error"]["code"]) == (400, "invalid-input")
        status, back = await gateway.rest("POST", "/api/trash/fix/restore", {"to": str(to)})
        assert (status, back["path"]) == (200, str(to))
        assert (to / "note").exists()


async def test_a_name_that_is_taken_again_stays_in_the_trash() -> None:
    async with start_gateway(None, repository()) as gateway:
        path = await deleted(gateway, "fix")
        assert (await gateway.rest("POST", "/api/workspaces", {"name": "fix", "wait": True}))[0] == 201
        status, told = await gateway.rest("POST", "/api/trash/fix/restore", {"to": f"{path}-2"})
        assert (status, told["error"]["code"]) == (409, "workspace-exists")
        assert len((await gateway.rest("GET", "/api/trash"))[1]) == 1


async def test_the_trash_is_purged_one_by_one_by_project_and_whole() -> None:
    async with start_gateway(None, repository(), repository("other")) as gateway:
        for name, project in (("a", "app"), ("b", "app"), ("c", "app"), ("theirs", "other")):
            await deleted(gateway, name, project)
        gone = (await gateway.rest("DELETE", "/api/trash/a"))[1]["purged"]
        assert [one["name"] for one in gone] == ["a"]
        gone = (await gateway.rest("DELETE", "/api/trash?project=other"))[1]["purged"]
        assert [one["name"] for one in gone] == ["theirs"]
        gone = (await gateway.rest("DELETE", "/api/trash"))[1]["purged"]
        assert [one["name"] for one in gone] == ["b", "c"]
        assert (await gateway.rest("GET", "/api/trash"))[1] == []


async def test_what_is_not_in_the_trash_is_not_found() -> None:
    async with start_gateway(None, repository()) as gateway:
        for method, end in (("DELETE", ""), ("POST", "/restore")):
            status, told = await gateway.rest(method, f"/api/trash/no-such{end}")
            assert (status, told["error"]["code"]) == (404, "workspace-not-found")
        assert (await gateway.rest("GET", "/api/trash?project=no-such"))[1]["error"]["code"] == "project-not-found"


async def test_the_trash_of_a_forgotten_project_is_still_there() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        await deleted(gateway, "fix")
        assert (await gateway.rest("DELETE", "/api/projects/app"))[0] == 200
        place = f"/api/trash?project={project_id(app)}"
        assert [one["name"] for one in (await gateway.rest("GET", place))[1]] == ["fix"]
        assert len((await gateway.rest("DELETE", place))[1]["purged"]) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_the_owner_lists_restores_and_purges_over_mcp(era: str) -> None:
    async with start_gateway(None, repository()) as gateway:
        paths = [await deleted(gateway, name) for name in ("a", "b", "c")]
        caller = await gateway.caller("/mcp?toolsets=admin", era)
        entries = told(await caller.call("trash_list", {"project": "app"}))
        assert entries == (await gateway.rest("GET", "/api/trash"))[1]
        restored = told(await caller.call("trash_restore", {"entry": "a"}))
        assert (restored["name"], restored["path"]) == ("a", str(paths[0]))
        assert (paths[0] / "note").read_text() == "a"
        assert failure(await caller.call("trash_restore", {"entry": "c", "to": "relative"})) == "invalid-input"
        purged = told(await caller.call("trash_purge", {"entry": entries[1]["id"]}))["purged"]
        assert [entry["name"] for entry in purged] == ["b"]
        # Without an argument nothing is removed: a model has to say that it means all entries.
        assert failure(await caller.call("trash_purge", {})) == "invalid-input"
        assert [entry["name"] for entry in told(await caller.call("trash_list"))] == ["c"]
        assert len(told(await caller.call("trash_purge", {"entry": None}))["purged"]) == 1
        assert told(await caller.call("trash_list")) == []


async def test_the_token_of_a_workspace_does_not_reach_the_trash() -> None:
    async with start_gateway(None, repository(), with_tokens=True) as gateway:
        project = await gateway.parts.projects.get("app")
        created = await gateway.workspaces.create(project.id, "fix")
        fix = await gateway.workspaces.wait_until_prepared(created)
        owner = {"Authorization": f"Bearer {OWNERS}"}
        token = {"Authorization": f"Bearer {await gateway.workspaces.token(fix)}"}
        path = "/mcp?toolsets=admin,workspace"
        admin = await gateway.caller(path, headers=owner)
        assert "trash_purge" in [tool["name"] for tool in await admin.listed("tools")]
        agent = await gateway.caller(path, headers=token)
        names = [tool["name"] for tool in await agent.listed("tools")]
        assert "workspace_list" in names and "trash_purge" not in names
        refusal = await agent.call("trash_purge", {"entry": None})
        assert "trash_purge" in refusal["error"]["message"]
