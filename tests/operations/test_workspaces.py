"""The operations on workspaces over REST, with the real listener and real repositories."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rookery.system.ids import project_id
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.client import LIMIT
from tests.support.requirements import requirement
from tests.support.workspaces.service import branches, commit, git, make_repository

pytestmark = pytest.mark.anyio

# Text that no program can get as an argument.
UNUSABLE = ("\0", "a\0b", "x" * 200_000)
NO_AGENT = {"type": "none", "counts": {"idle": 0, "busy": 0, "total": 0}}


def repository(name: str = "app", files: dict[str, str] | None = None) -> Path:
    return make_repository(Path.home() / "src" / name, files)


async def created(gateway: Gateway, name: str = "fix", **more: Any) -> Any:
    status, made = await gateway.rest("POST", "/api/workspaces", {"name": name, "wait": True, **more})
    assert status == 201, made
    return made


async def gone(gateway: Gateway, name: str) -> None:
    """Wait until a deletion has ended well."""
    async with asyncio.timeout(LIMIT):
        while not any(told["name"] == name for told in gateway.events.of("workspace.deleted")):
            gateway.events.more.clear()
            await gateway.events.more.wait()


@requirement("ws.create.base")
async def test_a_workspace_is_made_listed_shown_and_deleted() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        made = await created(gateway, project=project_id(app))
        assert made.items() >= {
            "project": project_id(app), "name": "fix", "branch": "fix", "main": False, "state": "ready", "error": None,
            "open": True, "attention": [], "status": None,
        }.items()  # fmt: skip
        listed = (await gateway.rest("GET", "/api/workspaces"))[1]
        assert [one["name"] for one in listed] == ["@main", "fix"]
        assert listed[1] == made
        status, shown = await gateway.rest("GET", "/api/workspaces/app/fix")
        assert (status, shown["metadata"], shown["status"]["agent"]) == (200, {"base": "main"}, NO_AGENT)
        assert await gateway.rest("DELETE", "/api/workspaces/app/fix") == (202, {"started": True})
        await gone(gateway, "fix")
        assert (await gateway.rest("GET", "/api/workspaces/app/fix"))[0] == 404
    assert branches(app) == {"main"}


async def test_without_wait_a_workspace_is_answered_while_it_is_prepared() -> None:
    app = repository(files={".rookery/config.toml": "[workspace]\nsetup = 'sleep 300'\n"})
    async with start_gateway(None, app) as gateway:
        status, made = await gateway.rest("POST", "/api/workspaces", {"name": "fix"})
        assert (status, made["state"]) == (201, "preparing")
        failed = await created(gateway, "next")
        assert (failed["state"], failed["code"]) == ("failed", "needs-approval")
        assert [one["reason"] for one in failed["attention"]] == ["needs-approval"]
        again = await gateway.rest("POST", "/api/workspaces/app/next/prepare", {"wait": True})
        assert (again[0], again[1]["code"]) == (202, "needs-approval")


async def test_a_list_tells_the_status_only_if_it_is_asked_for() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        path = Path((await created(gateway))["path"])
        commit(path, "new")
        (path / "dirty").write_text("dirty\n")
        plain = (await gateway.rest("GET", "/api/workspaces?project=app&status=false"))[1]
        assert [one["status"] for one in plain] == [None, None]
        told = (await gateway.rest("GET", "/api/workspaces?project=app&status=true"))[1]
        assert [one["status"]["isDirty"] for one in told] == [False, True]
        assert told[1]["status"].items() >= {"unmergedCommits": 1, "ahead": 1, "behind": 0, "conflicts": []}.items()
        assert (await gateway.rest("GET", "/api/workspaces/app/fix/status"))[1] == told[1]["status"]


async def test_one_that_git_cannot_read_hides_no_other() -> None:
    app, other = repository(), repository("other")
    async with start_gateway(None, app, other) as gateway:
        broken = Path((await created(gateway, "broken", project="app"))["path"])
        await created(gateway, "fine", project="app")
        index = Path(git(broken, "rev-parse", "--path-format=absolute", "--git-path", "index"))
        index.write_bytes(b"not an index")
        listed = (await gateway.rest("GET", "/api/workspaces?status=true"))[1]
        told = {(one["project"], one["name"]): one["status"] for one in listed}
        assert {name for (_, name), status in told.items() if status is None} == {"broken"}
        assert len(told) == 4
        assert (await gateway.rest("GET", "/api/workspaces/app/broken/status"))[1]["error"]["code"] == "git-failed"
        assert (await gateway.rest("GET", "/api/status"))[0] == 200


async def test_a_name_is_one_segment_however_it_is_encoded() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        await created(gateway, "feature/x")
        for spelt in ("feature%2Fx", "feature%2fx", "f%65ature%2Fx"):
            assert (await gateway.rest("GET", f"/api/workspaces/app/{spelt}"))[1]["name"] == "feature/x"
        for spelt in ("@main", "%40main"):
            assert (await gateway.rest("GET", f"/api/workspaces/{project_id(app)}/{spelt}/metadata"))[0] == 200
        status, found = await gateway.rest("GET", "/api/workspaces/app/feature/x")
        assert (status, found["error"]["code"]) == (404, "route-not-found")
        assert (await gateway.rest("DELETE", "/api/workspaces/app/feature%2Fx?wait=true"))[0] == 200


@requirement("ws.metadata.get", "ws.metadata.set", "ws.metadata.delete", "ws.metadata.key")
async def test_metadata_is_read_set_and_removed() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        await created(gateway)
        place = "/api/workspaces/app/fix/metadata"
        assert await gateway.rest("PUT", place, {"key": "note", "value": "x"}) == (200, {"base": "main", "note": "x"})
        assert await gateway.rest("GET", place) == (200, {"base": "main", "note": "x"})
        assert await gateway.rest("PUT", place, {"key": "note", "value": None}) == (200, {"base": "main"})
        for wrong in ({"key": "1x", "value": "x"}, {"key": "note"}, {"key": "note", "value": 1}, {"value": "x"}):
            status, told = await gateway.rest("PUT", place, wrong)
            assert (status, told["error"]["code"]) == (400, "invalid-input"), wrong
        assert await gateway.rest("GET", place) == (200, {"base": "main"})


@requirement("ws.delete.input", "ws.delete.preflight", "ws.delete.started")
async def test_work_that_would_go_unasked_is_listed_and_refused() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        path = Path((await created(gateway))["path"])
        head = commit(path, "done")[:7]
        (path / "new.txt").write_text("new\n")
        status, told = await gateway.rest("DELETE", "/api/workspaces/app/fix")
        assert (status, told["error"]["code"]) == (409, "workspace-not-clean")
        assert told["error"]["details"] == ["?? new.txt", f"{head} done"]
        assert path.exists()
        status, told = await gateway.rest("DELETE", "/api/workspaces/app/fix?force=perhaps")
        assert (status, told["error"]["code"]) == (400, "invalid-input")
        wanted = {"force": True, "keepBranch": True, "wait": True}
        assert await gateway.rest("DELETE", "/api/workspaces/app/fix", wanted) == (200, {"started": True})
        assert not path.exists()
        assert branches(app) == {"main", "fix"}
        status, told = await gateway.rest("DELETE", "/api/workspaces/app/@main?force=true")
        assert (status, told["error"]["code"]) == (400, "invalid-input")


@requirement("ws.create.name")
@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"name": "fix"}, 409, "workspace-exists"),
        ({"name": "-x"}, 400, "invalid-input"),
        ({"name": "new", "base": "no-such"}, 400, "invalid-input"),
        ({"name": "new", "project": "no-such"}, 404, "project-not-found"),
        ({"name": "new", "prompt": "hello"}, 409, "agent-unavailable"),
        ({"name": "new", "prompt": "hello", "agent": False}, 400, "invalid-input"),
        ({"name": "new", "colour": "red"}, 400, "invalid-input"),
        *(({"name": "new", field: text}, 400, "invalid-input") for field in ("base", "branch") for text in UNUSABLE),
        ({}, 400, "invalid-input"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_made_is_refused_before_anything_is(asked: Any, status: int, code: str) -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        await created(gateway)
        before = git(app, "for-each-ref")
        found, told = await gateway.rest("POST", "/api/workspaces", asked)
        assert (found, told["error"]["code"]) == (status, code)
        assert told["error"]["message"]
        assert git(app, "for-each-ref") == before


async def test_without_a_project_the_only_one_is_meant() -> None:
    async with start_gateway(None) as gateway:
        status, told = await gateway.rest("POST", "/api/workspaces", {"name": "fix"})
        assert (status, told["error"]["code"]) == (404, "project-not-found")
    async with start_gateway(None, repository(), repository("other")) as gateway:
        status, told = await gateway.rest("POST", "/api/workspaces", {"name": "fix"})
        assert (status, told["error"]["code"]) == (400, "invalid-input")
        assert "app-" in told["error"]["remedy"]


async def test_a_folder_leads_to_the_workspace_that_it_lies_in() -> None:
    app, stranger = repository(files={"src/a": "a\n"}), make_repository(Path.home() / "stranger")
    async with start_gateway(None, app) as gateway:
        path = Path((await created(gateway))["path"])
        link = Path.home() / "link"
        link.symlink_to(path)
        make_repository(path / "inner")
        for folder, name in ((app / "src", "@main"), (path, "fix"), (link / "src", "fix"), (path / "inner", "fix")):
            status, found = await gateway.rest("GET", f"/api/workspaces/at?path={folder}")
            assert (status, found.get("name")) == (200, name), found
        wrong = {"": 400, "?path=src": 400, f"?path={Path.home()}": 404, f"?path={stranger}": 404}
        codes = ["invalid-input", "invalid-input", "workspace-not-found", "project-not-found"]
        for (query, status), code in zip(wrong.items(), codes, strict=True):
            found = await gateway.rest("GET", f"/api/workspaces/at{query}")
            assert (found[0], found[1]["error"]["code"]) == (status, code)


@requirement("ws.daily.merged")
async def test_what_is_merged_is_told_with_how() -> None:
    app = repository()
    async with start_gateway(None, app, repository("other")) as gateway:
        for name in ("done", "open", "fresh"):
            path = Path((await created(gateway, name, project="app"))["path"])
            if name != "fresh":
                commit(path, name)
        git(app, "merge", "-q", "done")
        for query in ("", "?project=app"):
            found = (await gateway.rest("GET", f"/api/workspaces/merged{query}"))[1]
            assert [(one["name"], one["how"]) for one in found] == [("done", "merged")]
        assert (await gateway.rest("GET", "/api/workspaces/merged?project=other"))[1] == []


async def test_a_workspace_is_opened_and_closed_and_tells_its_environment() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        path = (await created(gateway))["path"]
        for verb, is_open in (("close", False), ("open", True)):
            status, told = await gateway.rest("POST", f"/api/workspaces/app/fix/{verb}")
            assert (status, told["open"]) == (200, is_open)
            assert (await gateway.rest("GET", "/api/workspaces/app/fix"))[1]["open"] is is_open
        environment = (await gateway.rest("GET", "/api/workspaces/app/fix/environment"))[1]
        assert environment["ROOKERY_WORKSPACE_PATH"] == path
        assert environment["ROOKERY_PORTS"].startswith(environment["ROOKERY_PORT"])


@requirement("ws.error.shape")
async def test_every_route_of_a_workspace_that_is_not_there_says_so() -> None:
    async with start_gateway(None, repository()) as gateway:
        for method, end in (
            ("GET", ""), ("DELETE", ""), ("GET", "/status"), ("GET", "/metadata"), ("GET", "/environment"),
            ("GET", "/diff"), ("POST", "/open"), ("POST", "/close"), ("POST", "/prepare"),
        ):  # fmt: skip
            for place, code in (("app/no-such", "workspace-not-found"), ("no-such/fix", "project-not-found")):
                status, told = await gateway.rest(method, f"/api/workspaces/{place}{end}")
                assert (status, told["error"]["code"]) == (404, code), (method, end)


async def test_one_whose_folder_is_missing_is_shown_with_what_is_wrong() -> None:
    app = repository()
    async with start_gateway(None, app) as gateway:
        path = Path((await created(gateway))["path"])
        path.rename(path.with_name("elsewhere"))
        shown = (await gateway.rest("GET", "/api/workspaces/app/fix"))[1]
        assert (shown["state"], shown["status"], shown["metadata"]) == ("missing", None, {})
        assert [one["reason"] for one in shown["attention"]] == ["missing"]
        for end in ("status", "metadata", "diff"):
            assert (await gateway.rest("GET", f"/api/workspaces/app/fix/{end}"))[0] == 404
        told = next(one for one in (await gateway.rest("GET", "/api/status"))[1]["workspaces"] if one["name"] == "fix")
        assert (told["state"], told["status"]) == ("missing", None)
