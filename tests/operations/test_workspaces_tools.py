"""The workspace tools as the official SDK's client sees them, on `/mcp` with the header and on `/w/…`."""

import asyncio
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from rookery.daemon.settings.schema import Settings
from rookery.operations.table import make_unbound_operations
from rookery.system.errors import RookeryError
from rookery.system.ids import project_id
from rookery.workspaces.overview import Overview
from tests.support.gateway.gateway import start_gateway
from tests.support.gateway.sdk_client import WAYS, WorkspaceClient, open_client_at, open_workspace_client
from tests.support.mcp.caller import ERAS, failure, told
from tests.support.mcp.client import LIMIT
from tests.support.requirements import requirement
from tests.support.workspaces.service import branches, commit, git, make_repository

pytestmark = pytest.mark.anyio

NO_AGENT = {"type": "none", "counts": {"idle": 0, "busy": 0, "total": 0}}

# As it was specified; input may have been widened since, and never narrowed, and a description goes on.
SPECIFIED: dict[str, dict[str, Any]] = {
    "workspace_get_status": {
        "description": "Get the current workspace status including dirty flag and agent status",
        "properties": {},
        "required": [],
    },
    "workspace_get_metadata": {
        "description": "Get all metadata for the current workspace",
        "properties": {},
        "required": [],
    },
    "workspace_set_metadata": {
        "description": "Set or delete a metadata key for the current workspace",
        "properties": {
            "key": {
                "type": "string",
                "description": "Metadata key (must start with letter, contain only letters/digits/hyphens)",
            },
            "value": {"type": ["string", "null"], "description": "Value to set, or null to delete the key"},
        },
        "required": ["key", "value"],
    },
    "workspace_get_opencode_port": {
        "description": "Get the OpenCode server port for the current workspace",
        "properties": {},
        "required": [],
    },
    "workspace_delete": {
        "description": "Delete the current workspace. This will terminate the OpenCode session.",
        "properties": {
            "keepBranch": {
                "type": "boolean",
                "description": "If true, keep the git branch after deleting the worktree",
                "default": False,
            }
        },
        "required": [],
    },
}
# What names a session, or where one is to be.
SESSIONS = frozenset({"sessionId", "sessionIds", "askId", "directory"})
# Text as it stands, of which no schema could tell anything.
BULK = {"read_file", "get_project_context", "run_just_task"}
# Whatever a plugin tells or answers, which no schema of ours knows.
FREE = {"get_plugin_state", "trigger_plugin_action"}
# They need an agent, or a plugin, though no argument.
NEEDING = {"get_tui_state", "take_screenshot", "trigger_plugin_action"}
MORE = {
    *("workspace_create", "workspace_list", "workspace_get_agent_session", "workspace_restart_agent", "project_list"),
}


async def until(face: WorkspaceClient, event: str, name: str = "fix") -> None:
    events = face.gateway.events
    async with asyncio.timeout(LIMIT):
        while not any(told["name"] == name for told in events.of(event)):
            events.more.clear()
            await events.more.wait()


@requirement("ws.identity.no-arguments", "ws.tools.more", "ws.delete.input")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_every_tool_takes_what_was_specified_and_names_no_workspace(way: str, mode: str) -> None:
    async with open_workspace_client(way, mode) as face:
        listed = {tool.name: tool for tool in (await face.client.list_tools()).tools}
        for name, wanted in SPECIFIED.items():
            schema = listed[name].input_schema
            assert (listed[name].description or "").startswith(wanted["description"])
            assert schema["type"] == "object"
            assert set(schema["required"]) == set(wanted["required"])
            assert wanted["properties"].items() <= schema["properties"].items()
            assert schema.get("additionalProperties", True) is True
        assert set(listed) >= MORE


@requirement("ws.status.shape", "ws.status.more")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_status_is_that_of_the_workspace_of_the_request(way: str, mode: str) -> None:
    async with open_workspace_client(way, mode) as face:
        clean = await face.tell("workspace_get_status")
        assert clean.items() >= {"isDirty": False, "agent": NO_AGENT, "unmergedCommits": 0}.items()
        commit(face.path, "work")
        (face.path / "dirty").write_text("dirty\n")
        told = await face.tell("workspace_get_status")
        assert told.items() >= {"isDirty": True, "unmergedCommits": 1, "ahead": 1, "behind": 0}.items()
        assert told == (await face.rest("GET", "/status"))[1]


@requirement("ws.metadata.get", "ws.metadata.set", "ws.metadata.delete")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_metadata_is_set_read_and_removed(way: str, mode: str) -> None:
    async with open_workspace_client(way, mode) as face:
        assert await face.tell("workspace_get_metadata") == {"base": "main"}
        assert await face.tell("workspace_set_metadata", key="custom-key", value="custom-value") is None
        assert await face.tell("workspace_get_metadata") == {"base": "main", "custom-key": "custom-value"}
        assert (await face.rest("GET", "/metadata"))[1] == {"base": "main", "custom-key": "custom-value"}
        assert await face.tell("workspace_set_metadata", key="custom-key", value=None) is None
        assert await face.tell("workspace_get_metadata") == {"base": "main"}


@requirement("ws.metadata.key", "ws.error.shape")
@pytest.mark.parametrize(
    "given",
    [
        *({"key": key, "value": "x"} for key in ("1a", "-a", "a_b", "a b", "", "ä", "a\n")),
        *({"key": "a", "value": value} for value in (1, ["x"], {"x": 1})),
        {"key": "a"},
        {"value": "x"},
    ],
)
async def test_metadata_that_does_not_fit_is_refused_and_nothing_is_stored(given: dict[str, Any]) -> None:
    async with open_workspace_client() as face:
        assert await face.fail("workspace_set_metadata", **given) == "invalid-input"
        assert await face.tell("workspace_get_metadata") == {"base": "main"}


@requirement("ws.port.get")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_without_an_agent_there_is_no_port_no_session_and_nothing_to_restart(way: str, mode: str) -> None:
    async with open_workspace_client(way, mode) as face:
        assert await face.tell("workspace_get_opencode_port") is None
        assert await face.tell("workspace_get_agent_session") is None
        assert await face.fail("workspace_restart_agent") == "agent-unavailable"
        assert await face.fail("workspace_create", name="new", prompt="hello") == "agent-unavailable"
        assert branches(face.app) == {"main", "fix"}


@requirement("ws.delete.started", "ws.delete.input")
@pytest.mark.parametrize(("way", "mode"), WAYS)
@pytest.mark.parametrize("keep", [False, True])
async def test_a_workspace_is_deleted_from_within(way: str, mode: str, keep: bool) -> None:
    async with open_workspace_client(way, mode) as face:
        # A client that does not know the tools yet would ask for them afterwards, of a workspace that goes.
        await face.client.list_tools()
        given = {"keepBranch": True} if keep else {}
        assert await face.tell("workspace_delete", **given) == {"started": True}
        await until(face, "workspace.deleted")
        assert not face.path.exists()
        assert ("fix" in branches(face.app)) == keep
        told = [data["progress"] for data in face.gateway.events.of("workspace.deleting")]
        assert told and all(one.keys() >= {"trash", "done", "step", "processes", "error"} for one in told)


@requirement("ws.delete.preflight", "ws.delete.started")
async def test_work_is_listed_and_kept_unless_deletion_is_forced() -> None:
    async with open_workspace_client() as face:
        (face.path / "new.txt").write_text("new\n")
        refused = await face.client.call_tool("workspace_delete", {"wait": True})
        assert refused.is_error
        assert refused.structured_content is not None
        assert refused.structured_content["error"]["code"] == "workspace-not-clean"
        assert refused.structured_content["error"]["details"] == ["?? new.txt"]
        assert face.path.exists()
        assert await face.tell("workspace_delete", force=True, wait=True) == {"started": True}
        assert not face.path.exists()


@requirement("ws.delete.started")
async def test_who_waits_for_a_deletion_that_fails_is_told_what_failed() -> None:
    async with open_workspace_client() as face:
        # A ref that is in the way of those by which the trash keeps commits.
        git(face.app, "update-ref", "refs/rookery/trash", "HEAD")
        found = await face.client.call_tool("workspace_delete", {"wait": True})
        assert found.is_error and found.structured_content is not None
        error = found.structured_content["error"]
        assert error["code"] == "git-failed" and "refs/rookery/trash" in error["message"], error
        (failed,) = face.gateway.events.of("workspace.failed")
        assert failed["progress"]["error"]["message"] == error["message"]
        assert (face.path / "README").exists() and "fix" in branches(face.app)
        git(face.app, "update-ref", "-d", "refs/rookery/trash")
        assert await face.tell("workspace_delete", wait=True) == {"started": True}
        assert not face.path.exists()


@requirement("ws.delete.started")
async def test_a_deletion_that_is_asked_for_many_times_happens_once() -> None:
    async with open_workspace_client() as face:
        asked = [face.client.call_tool("workspace_delete", {"wait": True}) for _ in range(5)]
        found = await asyncio.gather(*asked)
        assert any(not one.is_error for one in found)
        for one in found:
            assert one.structured_content is not None
            told = one.structured_content
            assert told == {"started": True} or told["error"]["code"] == "workspace-not-found"
        assert len((await face.gateway.rest("GET", "/api/trash"))[1]) == 1


async def test_the_main_checkout_is_not_deleted() -> None:
    async with open_workspace_client(name="@main") as face:
        assert await face.fail("workspace_delete", force=True) == "invalid-input"
        assert (face.app / "README").exists()


@requirement("ws.tools.more")
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_an_agent_makes_workspaces_beside_its_own_and_sees_them(way: str, mode: str) -> None:
    async with open_workspace_client(way, mode) as face:
        made = await face.tell("workspace_create", name="feature/x", base="main", wait=True)
        assert made.items() >= {"name": "feature/x", "branch": "feature/x", "state": "ready"}.items()
        assert Path(made["path"], "README").exists()
        assert made["start"] == {"ref": "main", "commit": git(face.app, "rev-parse", "main"), "reason": "given"}
        listed = await face.tell("workspace_list")
        assert [one["name"] for one in listed] == ["@main", "feature/x", "fix"]
        assert made in listed
        told = await face.tell("workspace_list", status=True)
        assert all(one["status"]["agent"] == NO_AGENT for one in told)
        (project,) = await face.tell("project_list")
        assert project == {
            "id": project_id(face.app),
            "name": "app",
            "path": str(face.app),
            "workspaces": ["@main", "feature/x", "fix"],
        }
        assert await face.fail("workspace_create", name="feature/x") == "workspace-exists"
        assert await face.fail("workspace_create", name="new", base="no-such") == "invalid-input"
        assert await face.fail("workspace_create", name="new", colour="red") == "invalid-input"


async def test_the_view_of_a_workspace_is_of_its_own_project() -> None:
    async with open_workspace_client() as face:
        other = make_repository(Path.home() / "src" / "other")
        await face.gateway.rest("POST", "/api/projects", {"path": str(other)})
        assert await face.fail("workspace_create", name="new", project="other") == "invalid-input"
        assert await face.fail("workspace_list", project="other") == "invalid-input"
        assert [one["name"] for one in await face.tell("project_list")] == ["app"]
        assert {one["project"] for one in await face.tell("workspace_list")} == {project_id(face.app)}
        assert branches(other) == {"main"}


@requirement("ws.identity.missing", "ws.identity.unknown", "ws.tools.more")
async def test_a_client_that_has_selected_no_workspace_can_list_and_make_them() -> None:
    async with open_workspace_client() as face:
        other = make_repository(Path.home() / "src" / "other")
        await face.gateway.rest("POST", "/api/projects", {"path": str(other)})
        async with open_client_at(face.gateway, "none", "legacy", face.app, face.path, face.name) as client:
            owner = WorkspaceClient(face.gateway, client, face.app, face.path, face.name)
            needing = [*SPECIFIED, "workspace_get_agent_session", "workspace_restart_agent"]
            for tool in needing:
                given = {"key": "note", "value": "x"} if tool == "workspace_set_metadata" else {}
                found = await client.call_tool(tool, given)
                assert found.is_error and found.structured_content is not None
                error = found.structured_content["error"]
                assert error["code"] == "invalid-input" and "X-Workspace-Path" in error["message"], tool
                assert await owner.fail(tool, **given) == "invalid-input"
            assert {one["name"] for one in await owner.tell("project_list")} == {"app", "other"}
            assert await owner.fail("workspace_create", name="new") == "invalid-input"
            assert await owner.fail("workspace_create", name="new", project="no-such") == "project-not-found"
            assert await owner.fail("workspace_list", project="no-such") == "project-not-found"
            assert (await owner.tell("workspace_create", name="new", project="other", wait=True))["state"] == "ready"
            assert [one["name"] for one in await owner.tell("workspace_list", project="other")] == ["@main", "new"]
            assert len(await owner.tell("workspace_list")) == 4


@requirement("wire.tools.structured")
async def test_every_tool_answers_what_its_output_schema_says() -> None:
    async with open_workspace_client() as face:
        given: dict[str, dict[str, Any]] = {
            "workspace_set_metadata": {"key": "a", "value": "b"},
            "workspace_create": {"name": "new", "wait": True},
            "workspace_list": {"status": True},
            "project_add": {"path": str(face.app)},
            "list_directory": {"path": "."},
            "hub_find_tool": {"query": "read a file"},
        }
        every = (await face.client.list_tools()).tools
        assert {tool.name for tool in every if tool.output_schema is None} == BULK
        # Those that need an agent are called where there is one, by the official client, which checks the schema too.
        driven = {tool.name for tool in every if SESSIONS.intersection(tool.input_schema.get("required", []))}
        assert len(driven) == 13
        tools = {tool.name: tool for tool in every if tool.name not in BULK | NEEDING | driven}
        assert all(tool.output_schema and tool.output_schema["type"] == "object" for tool in tools.values())
        # The last one ends the workspace; and without an agent there is none to restart.
        for name in [*(tools.keys() - {"workspace_delete", "workspace_restart_agent"}), "workspace_delete"]:
            # Tells nothing but what it tells as text, which `tell` looks at.
            told = await face.tell(name, **given.get(name, {}))
            schema: Any = tools[name].output_schema
            wrapped = schema["anyOf"][0].get("properties", {}).keys() == {"result"}
            wrapped = wrapped or (name in FREE and told == [])
            jsonschema.validate({"result": told} if wrapped else told, schema)


async def test_an_output_schema_tells_an_answer_from_something_else() -> None:
    async with open_workspace_client() as face:
        for tool in (await face.client.list_tools()).tools:
            schema: Any = tool.output_schema
            if tool.name in BULK | FREE:
                continue
            for wrong in [{"result": object()}, *([{}] if "required" in schema["anyOf"][0] else [])]:
                with pytest.raises(jsonschema.ValidationError):
                    jsonschema.validate(wrong, schema)


async def test_an_output_schema_has_room_for_an_error_since_clients_check_failures_too() -> None:
    async with open_workspace_client() as face:
        for tool in (await face.client.list_tools()).tools:
            schema: Any = tool.output_schema
            if tool.name in BULK:
                continue
            jsonschema.validate({"error": {"code": "invalid-input", "message": "no"}}, schema)
            if tool.name in FREE:
                continue
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({"error": {}}, schema)


@requirement("ws.error.internal")
async def test_a_failure_of_ours_is_told_and_the_next_call_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def crash(self: Overview, workspace: object) -> object:
        raise RuntimeError("a fault of ours")

    async with open_workspace_client() as face:
        with monkeypatch.context() as patch:
            patch.setattr(Overview, "status", crash)
            assert await face.fail("workspace_get_status") == "internal-error"
        assert "a fault of ours" in caplog.text
        assert (await face.tell("workspace_get_status"))["isDirty"] is False


@requirement("ws.error.internal")
async def test_an_error_behind_a_tool_comes_through_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: Overview, workspace: object) -> object:
        raise RookeryError("timeout", "it took too long", "try again")

    async with open_workspace_client() as face:
        monkeypatch.setattr(Overview, "status", refuse)
        assert await face.fail("workspace_get_status") == "timeout"


@requirement("ws.identity.unknown", "ws.error.shape")
async def test_a_workspace_that_goes_while_a_client_is_there_is_not_found() -> None:
    async with open_workspace_client() as face:
        assert await face.tell("workspace_get_metadata") == {"base": "main"}
        assert (await face.rest("DELETE", "?wait=true"))[0] == 200
        assert await face.fail("workspace_get_metadata") == "workspace-not-found"


@requirement("ws.delete.started")
async def test_who_waits_hears_how_far_it_is() -> None:
    heard: list[tuple[float, str | None]] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with open_workspace_client() as face:
        await face.client.call_tool("workspace_create", {"name": "new", "wait": True}, progress_callback=progressed)
        made = [message for _, message in heard]
        assert made[0] == "created"
        assert "ready" in made
        heard.clear()
        await face.client.call_tool("workspace_delete", {"wait": True}, progress_callback=progressed)
        assert [number for number, _ in heard] == list(range(1, len(heard) + 1))
        assert [message for _, message in heard][-1] == "deleted"
        assert "deleting: stop" in [message for _, message in heard]


@requirement("ws.tools.more")
async def test_a_workspace_is_created_without_an_agent_over_mcp() -> None:
    async with open_workspace_client() as face:
        created = await face.tell("workspace_create", name="new", agent=False, wait=True)
        assert (created["name"], created["state"]) == ("new", "ready")
        assert await face.fail("workspace_create", name="more", agent=False, prompt="hello") == "invalid-input"
        assert branches(face.app) == {"main", "fix", "new"}


@pytest.mark.parametrize("era", ERAS)
async def test_the_owner_manages_any_workspace_with_the_toolset_admin(era: str) -> None:
    app = make_repository(Path.home() / "src" / "app")
    other = make_repository(Path.home() / "src" / "other")
    async with start_gateway(None, app, other) as gateway:
        admin = await gateway.caller("/mcp?toolsets=admin,workspace", era)
        fix = {"project": "app", "workspace": "fix"}
        created = told(await admin.call("workspace_create", {"name": "fix", "project": "app", "wait": True}))
        path = Path(created["path"])
        assert told(await admin.call("workspace_find", {"path": str(path)}))["name"] == "fix"
        assert failure(await admin.call("workspace_find", {"path": "fix"})) == "invalid-input"
        assert failure(await admin.call("workspace_find", {"path": str(Path.home())})) == "workspace-not-found"
        shown = told(await admin.call("workspace_get", fix))
        rest = (await gateway.rest("GET", "/api/workspaces/app/fix"))[1]
        assert rest["mcp"].keys() - shown["mcp"].keys() == {"app_url", "tools", "traffic"}
        assert shown | {"mcp": {}} == rest | {"mcp": {}}
        environment = told(await admin.call("workspace_get_environment", fix))
        assert environment["ROOKERY_WORKSPACE_PATH"] == str(path)
        (path / "new.txt").write_text("new\n")
        diff = told(await admin.call("workspace_diff", fix))
        assert [file["path"] for file in diff["files"]] == ["new.txt"] and "+new" in diff["text"]
        for name, is_open in (("workspace_close", False), ("workspace_open", True)):
            assert told(await admin.call(name, fix))["open"] is is_open
        prepared = told(await admin.call("workspace_prepare", {**fix, "wait": True}))
        assert (prepared["name"], prepared["state"]) == ("fix", "ready")
        (path / "new.txt").unlink()
        commit(path, "work")
        git(app, "merge", "-q", "fix")
        merged = told(await admin.call("workspace_merged"))
        assert [(one["name"], one["how"], one["mergedInto"]) for one in merged] == [("fix", "merged", "main")]
        assert told(await admin.call("workspace_merged", {"project": "other"})) == []


@pytest.mark.parametrize("era", ERAS)
async def test_the_toolset_admin_acts_in_the_selected_workspace_by_default(era: str) -> None:
    app = make_repository(Path.home() / "src" / "app")
    other = make_repository(Path.home() / "src" / "other")
    async with start_gateway(None, app, other) as gateway:
        await gateway.rest("POST", "/api/workspaces", {"name": "fix", "project": "app", "wait": True})
        here = await gateway.caller("/mcp?toolsets=admin", era, headers={"X-Workspace-Path": str(app)})
        assert told(await here.call("workspace_get"))["path"] == str(app)
        # A name is one of the same project, unless another project is named.
        assert told(await here.call("workspace_get", {"workspace": "fix"}))["project"] == project_id(app)
        at = {"workspace": "@main", "project": "other"}
        assert told(await here.call("workspace_get", at))["path"] == str(other)
        assert failure(await here.call("workspace_get", {"project": "other"})) == "invalid-input"
        assert failure(await here.call("workspace_get", {"workspace": "no-such"})) == "workspace-not-found"
        nowhere = await gateway.caller("/mcp?toolsets=admin", era)
        assert failure(await nowhere.call("workspace_get")) == "invalid-input"
        assert failure(await nowhere.call("workspace_get", {"workspace": "fix"})) == "invalid-input"
        assert failure(await nowhere.call("workspace_get", {"name": "fix"})) == "invalid-input"


async def test_the_token_of_a_workspace_is_not_offered_the_toolset_admin() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_gateway(None, app, with_tokens=True, settings=agent_settings("workspace,admin")) as gateway:
        project = await gateway.parts.projects.get("app")
        workspaces = [await gateway.workspaces.create(project.id, name) for name in ("fix", "other")]
        fix, _ = [await gateway.workspaces.wait_until_prepared(workspace) for workspace in workspaces]
        headers = {"Authorization": f"Bearer {await gateway.workspaces.token(fix)}"}
        names = {
            bound.operation.declared.mcp.name
            for bound in make_unbound_operations()
            if bound.operation.declared.mcp is not None and bound.operation.declared.mcp.toolset == "admin"
        }
        assert "workspace_close" in names
        for path in ("/mcp", "/mcp?toolsets=admin", "/mcp?toolsets=admin&mode=search", f"/w/{project.id}/fix/mcp"):
            agent = await gateway.caller(path, headers=headers)
            assert not names & {tool["name"] for tool in await agent.listed("tools")}
            answer = await agent.call("workspace_close", {"project": "app", "workspace": "other"})
            assert "workspace_close" in answer["error"]["message"]
        every = {workspace.name: workspace.open for workspace in await gateway.workspaces.list(None)}
        assert every["other"] is True


def agent_settings(toolsets: str) -> Settings:
    """Return settings with these toolsets for agents, also such as a settings file may not contain."""
    return msgspec.structs.replace(Settings(), agents=msgspec.structs.replace(Settings().agents, toolsets=toolsets))
