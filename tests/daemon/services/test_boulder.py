"""Boulder's access to workspaces: plans through the sandbox, and tasks of approved justfiles."""

import asyncio
from pathlib import Path

import pytest

from rookery.daemon.services.boulder import BoulderWorkspaces
from rookery.daemon.settings.layers import list_settings
from rookery.system.ids import project_id
from tests.support.agents.sessions import refusal
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.client import LIMIT
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

JUSTFILE = "good:\n    @true\nbad:\n    @exit 3\nslow:\n    @sleep 600\n[confirm]\nrisky:\n    @touch risky\n"


def ground_of(gateway: Gateway) -> BoulderWorkspaces:
    parts = gateway.parts
    return BoulderWorkspaces(parts.files, parts.gateway.lookup, parts.projects, gateway.events)


@requirement("boulder.complete.checks")
async def test_a_plan_is_read_through_the_sandbox() -> None:
    app = make_repository(Path.home() / "src" / "app", {"PLAN.md": "- [ ] it\n", "data.bin": "\0\1"})
    (Path.home() / "outside.md").write_text("- [x] all\n")
    (app / "link.md").symlink_to(Path.home() / "outside.md")
    (app / "long.md").write_text("- [x] done\n" * 100_000)
    async with start_gateway(None, app) as gateway:
        ground = ground_of(gateway)
        assert (await ground.read(str(app), "PLAN.md")).startswith("- [ ] it")
        for path, code in (
            ("../outside.md", "path-outside-root"),
            ("link.md", "path-outside-root"),
            (".env", "path-denied"),
            ("missing.md", "file-not-found"),
            ("long.md", "file-unreadable"),
            ("data.bin", "file-unreadable"),
        ):
            async with refusal(code):
                await ground.read(str(app), path)
        async with refusal("workspace-not-found"):
            await ground.read(str(Path.home() / "src"), "app/PLAN.md")


@requirement("boulder.complete.checks")
async def test_only_a_task_of_an_approved_justfile_runs_and_nobody_confirms_one() -> None:
    app = make_repository(Path.home() / "src" / "app", {"justfile": JUSTFILE})
    async with start_gateway(None, app) as gateway:
        ground, place = ground_of(gateway), str(app)
        assert (await ground.run(place, "good"))[0] is True
        assert await ground.run(place, "bad") == (False, "fails with 3")
        async with refusal("task-not-found"):
            await ground.run(place, "nothing")
        async with refusal("tool-denied"):
            await ground.run(place, "risky")
        assert not (app / "risky").exists()
        (app / "justfile").write_text(f"{JUSTFILE}# changed\nmore:\n    @true\n")
        async with refusal("needs-approval"):
            await ground.run(place, "good")


async def test_a_switch_is_for_a_project_or_a_workspace_that_there_is() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_gateway(None, app) as gateway:
        ground = ground_of(gateway)
        assert await ground.subject("project", "app") == await ground.subject("project", project_id(app))
        assert await ground.subject("workspace", f"{project_id(app)}/@main") == str(app)
        assert await ground.subject("workspace", str(app)) == str(app)
        async with refusal("project-not-found"):
            await ground.subject("project", "other")
        async with refusal("workspace-not-found"):
            await ground.subject("workspace", str(Path.home()))


async def test_what_is_asked_of_it_is_told_to_everybody_who_watches() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_gateway(None, app) as gateway:
        await gateway.parts.plugins.start()
        try:
            asked = {"args": {"workspace": str(app), "checks": "todos"}}
            status, told = await gateway.rest("POST", "/api/plugins/boulder/actions/on", asked)
            assert status == 200 and told["result"]["sessions"] == {}
            (event,) = gateway.events.of("boulder.on")
            assert (event["who"], event["workspace"]) == ("owner", str(app)) and "todos" in event["why"]
            _, listed = await gateway.rest("GET", "/api/plugins")
            (shown,) = [one for one in listed if one["name"] == "boulder"]
            assert {one["name"] for one in shown["actions"]} >= {"on", "off", "pause", "resume", "stop", "reset"}
            assert {one["name"] for one in shown["actions"] if not one["ownerOnly"]} == {"status", "log"}
        finally:
            await gateway.parts.plugins.stop()


async def test_what_was_switched_on_is_not_on_for_another_one_in_its_place() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_gateway(None, app) as gateway:
        await gateway.parts.plugins.start()
        try:
            made = (await gateway.rest("POST", "/api/workspaces", {"name": "fix", "wait": True}))[1]
            for args in ({"workspace": made["path"]}, {"project": "app"}):
                await gateway.rest("POST", "/api/plugins/boulder/actions/on", {"args": args})
            place = f"/api/workspaces/{project_id(app)}/fix"
            assert (await gateway.rest("DELETE", f"{place}?wait=true"))[0] in (200, 202)
            assert (await gateway.rest("DELETE", f"/api/projects/{project_id(app)}"))[0] == 200
            async with asyncio.timeout(LIMIT):
                while len(gateway.events.of("boulder.off")) < 2:
                    gateway.events.more.clear()
                    await gateway.events.more.wait()
            gone = {one["why"] for one in gateway.events.of("boulder.off")}
            subjects = f"workspace {made['path']}", f"project {project_id(app)}"
            assert gone == {f"for the {one}, which was deleted" for one in subjects}
            book = gateway.parts.sessions._boulder._store
            assert await book.switches() == []
        finally:
            await gateway.parts.plugins.stop()


def test_no_repository_gives_boulder_a_setting_or_switches_it_on() -> None:
    found = {key: known for key, known in list_settings().items() if key.startswith("boulder.")}
    assert found and not [key for key, known in found.items() if known.allowed_in_project]
    assert "boulder.enabled" not in found
