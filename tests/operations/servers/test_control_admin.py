"""The tools of the owner for MCP servers: define, add, switch, connect, check and remove them over MCP."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway.gateway import OWNERS, Gateway, checkout, start_gateway, user_file
from tests.support.mcp.caller import ERAS, Caller, failure, told
from tests.support.mcp.client import PROGRAMS

pytestmark = pytest.mark.anyio

ODD = {"command": [sys.executable, str(PROGRAMS / "odd_server.py")]}
ADMIN = "/mcp?toolsets=admin,hub"
SECRET = "hush-hush-0123456789"
TOOLS = {
    "server_add",
    "server_define",
    "server_get",
    "server_remove",
    "server_connect",
    "server_disconnect",
    "server_enable",
    "server_disable",
    "server_debug",
    "server_check",
    "server_list_tools",
    "server_problems",
    "server_costs",
    "server_login",
    "server_wait_login",
    "server_cancel_login",
    "server_logout",
}


async def rest(gateway: Gateway, method: str, path: str, body: Any = None) -> Any:
    return (await gateway.rest(method, path, body))[1]


async def call(caller: Caller, tool_name: str, /, **arguments: Any) -> Any:
    return told(await caller.call(tool_name, arguments))


@pytest.mark.parametrize("era", ERAS)
async def test_the_owner_manages_servers_over_mcp_as_over_rest(era: str) -> None:
    async with start_gateway() as gateway:
        admin = await gateway.caller(ADMIN, era)
        entry = {**ODD, "environment": {"MY_TOKEN": SECRET}}
        written = await call(admin, "server_define", name="odd", config=entry)
        assert (written["file"], written["record"]["status"]) == (str(user_file()), "pending")
        assert failure(await admin.call("server_define", {"name": "odd", "config": entry})) == "server-exists"
        assert (await call(admin, "server_connect", name="odd"))["status"] == "connected"
        found = await call(admin, "server_get", name="odd")
        assert found == await rest(gateway, "GET", "/api/mcp/odd")
        assert found["definition"]["written"]["environment"] == {"MY_TOKEN": "(hidden)"}
        tools = await call(admin, "server_list_tools", server="odd")
        assert tools == await rest(gateway, "GET", "/api/tools?server=odd")
        assert [tool["tool"] for tool in tools] == ["a", "b", "c"] and tools[0]["definition"]["name"] == "a"
        assert await call(admin, "server_costs") == await rest(gateway, "GET", "/api/costs")
        steps = await call(admin, "server_debug", name="odd")
        assert steps["connected"] and steps["steps"][-1]["what"] == "close process"
        checked = await call(admin, "server_check", servers=["odd"])
        assert [(server["name"], server["tools"]) for server in checked["servers"]] == [("odd", 3)]
        assert (await call(admin, "server_disable", name="odd", tool="*"))["status"] == "connected"
        assert (await call(admin, "server_enable", name="odd", tool="c"))["status"] == "connected"
        assert [tool["name"] for tool in await admin.listed("tools") if tool["name"].startswith("odd__")] == ["odd__c"]
        assert (await call(admin, "server_disable", name="odd"))["status"] == "disabled"
        assert (await call(admin, "server_enable", name="odd"))["status"] == "pending"
        assert (await call(admin, "server_connect", name="odd"))["status"] == "connected"
        assert (await call(admin, "server_disconnect", name="odd"))["status"] == "stopped"
        assert await call(admin, "server_remove", name="odd") == {"removed": "odd", "source": f"{user_file()}:2"}
        assert json.loads(user_file().read_text()) == {"servers": {}}
        added = await call(admin, "server_add", name="new", config=ODD)
        assert added == await rest(gateway, "GET", "/api/mcp") and added["new"]["status"] == "connected"
        assert SECRET not in str([event.data for event in gateway.events.all])
        user_file().write_text('{"servers": {\n  "x": {"comand": ["true"]}\n}}')
        problems = await call(admin, "server_problems")
        assert problems == await rest(gateway, "GET", "/api/problems") and problems[0]["line"] == 2
        assert failure(await admin.call("server_get", {"name": "nobody"})) == "server-not-found"
        for tool in TOOLS:
            assert failure(await admin.call(tool, {"unknown": 1})) == "invalid-input"


async def test_tools_act_on_the_servers_of_the_selected_workspace_or_of_the_named_one() -> None:
    app, other = checkout("app"), checkout("other")
    async with start_gateway(None, app, other) as gateway:
        inside = await gateway.caller(ADMIN, headers={"X-Workspace-Path": str(app)})
        outside = await gateway.caller(ADMIN)
        place = {"place": "project", "client": "claude"}
        written = await call(inside, "server_define", name="mine", config=ODD, **place)
        assert (written["file"], written["record"]["status"]) == (str(app / ".mcp.json"), "needs_approval")
        # What a repository defines is for its user to approve, and no tool does that.
        assert failure(await inside.call("server_debug", {"name": "mine"})) == "needs-approval"
        assert failure(await outside.call("server_get", {"name": "mine"})) == "server-not-found"
        assert (await call(outside, "server_get", name="mine", workspace=str(app)))["workspace"] == str(app)
        assert (await call(inside, "server_disable", name="mine"))["status"] == "disabled"
        assert await gateway.status("mine", app) == "disabled"
        named = await call(inside, "server_add", name="new", config=ODD, workspace=str(other))
        assert named["new"]["workspace"] == str(other) and await rest(gateway, "GET", "/api/mcp") == {}
        for wrong, code in (("/nowhere", "workspace-not-found"), ("", "invalid-input")):
            assert failure(await outside.call("server_get", {"name": "new", "workspace": wrong})) == code
        # An empty workspace in a query is no way to all of them.
        for query in ("workspace=", "session="):
            status, refused = await gateway.rest("DELETE", f"/api/mcp/new?{query}")
            assert (status, refused["error"]["code"]) == (400, "invalid-input")
        assert await gateway.status("new", other) == "connected"


async def test_no_token_of_a_workspace_sees_or_calls_tools_for_servers() -> None:
    app = checkout()
    async with start_gateway({"odd": ODD}, app, with_tokens=True) as gateway:
        workspace = await gateway.workspaces.at(app)
        token = await gateway.workspaces.token(workspace)
        owner = await gateway.caller(ADMIN, headers={"Authorization": f"Bearer {OWNERS}"})
        assert {tool["name"] for tool in await owner.listed("tools")} >= TOOLS
        # Without `?toolsets=` no view has them, and no model pays for them.
        default = await gateway.caller("/mcp", headers={"Authorization": f"Bearer {OWNERS}"})
        assert not TOOLS & {tool["name"] for tool in await default.listed("tools")}
        agent = await gateway.caller(ADMIN, headers={"Authorization": f"Bearer {token}"})
        assert not TOOLS & {tool["name"] for tool in await agent.listed("tools")}
        for tool in TOOLS:
            refused = await agent.call(tool, {"name": "odd"})
            assert tool in refused["error"]["message"]
        assert await gateway.status("odd", app) == "pending"
        assert not (Path.home() / ".mcp.json").exists()
