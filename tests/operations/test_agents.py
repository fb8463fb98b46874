"""The operations on agents, over REST and in the toolset admin. With a real OpenCode."""

from pathlib import Path
from typing import Any

import pytest

from rookery.system.ids import project_id
from tests.support.agents.host import LIMIT, AgentHost, start_agent_host
from tests.support.gateway.gateway import OWNERS, start_gateway
from tests.support.mcp.caller import ERAS, Caller, failure, told
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

SCRIPT: dict[str, Any] = {
    "conversation": [
        {
            "when": "work",
            "turn": [{"step": [{"say": "Never said.", "hold": "for ever"}]}, {"step": [{"say": "Continued."}]}],
        },
        {"when": "fail", "turn": [{"step": [{"error": 401, "message": "invalid key"}]}]},
    ]
}
FIX = {"project": "app", "workspace": "fix"}
TOOLS = {"agent_get", "agent_start", "agent_stop", "agent_resume", "agent_dismiss", "agent_logs", "agent_install"}


def make_app() -> Path:
    return make_repository(Path.home() / "src" / "app")


async def open_admin(host: AgentHost, **headers: str) -> Caller:
    return await host.gateway.caller("/mcp?toolsets=admin,workspace", headers=headers, limit=LIMIT)


async def test_the_owner_starts_reads_and_stops_an_agent_of_any_workspace() -> None:
    async with start_agent_host(SCRIPT, make_app(), start="use") as host:
        fix = await host.create("fix")
        caller = await open_admin(host)
        assert told(await caller.call("agent_get", FIX)) == (await host.rest("GET", fix))[1]
        installed = told(await caller.call("agent_install"))
        assert installed == (await host.gateway.rest("POST", "/api/agents/install", {}))[1]
        assert Path(installed["opencode"]).exists()
        started = told(await caller.call("agent_start", FIX))
        assert started["state"] == "running" and started["port"] > 0
        assert started == told(await caller.call("agent_get", FIX)) == (await host.rest("GET", fix))[1]
        output = told(await caller.call("agent_logs", FIX | {"tail": 1}))
        assert len(output["lines"]) == 1 and output["lines"][0] == Path(output["path"]).read_text().splitlines()[-1]
        assert output == (await host.rest("GET", fix, "/logs?tail=1"))[1]
        assert (await host.rest("GET", fix, "/session")) == (200, None)
        stopped = told(await caller.call("agent_stop", FIX))
        assert (stopped["state"], stopped["port"]) == ("stopped", None)
        assert stopped == (await host.rest("GET", fix))[1]


async def test_interrupted_turns_are_resumed_and_failed_ones_dismissed_over_mcp() -> None:
    async with start_agent_host(SCRIPT, make_app()) as host:
        fix, failing = await host.create_only("fix", prompt="work"), await host.create_only("failing", prompt="fail")
        session = await host.session_is(fix, "busy")
        caller = await open_admin(host, **{"X-Workspace-Path": str(fix.path)})
        port = told(await caller.call("workspace_restart_agent"))
        assert port == told(await caller.call("agent_get"))["port"]
        await host.session_is(fix, "interrupted")
        assert told(await caller.call("agent_get"))["attention"][0]["reason"] == "interrupted"
        # Without a name, the workspace that the client has selected is meant.
        assert told(await caller.call("agent_resume"))["resumed"] == [session]
        assert await host.said(fix, "Continued.") == session
        assert (await host.rest("GET", fix, "/session"))[1] == {"port": port, "sessionId": session}

        await host.until(failing, lambda agent: agent.activity == "failed")
        other = {"project": "app", "workspace": "failing"}
        (failed,) = told(await caller.call("agent_get", other))["sessions"]
        assert "invalid key" in failed["failure"]
        unknown = await caller.call("agent_dismiss", other | {"sessionId": session})
        assert failure(unknown) == "session-not-found"
        dismissed = told(await caller.call("agent_dismiss", other | {"sessionId": failed["id"]}))
        assert (dismissed["dismissed"], dismissed["attention"]) == ([failed["id"]], [])
        assert told(await caller.call("agent_dismiss", other))["dismissed"] == []


@pytest.mark.parametrize("era", ERAS)
async def test_without_agents_the_operations_say_so_and_change_nothing(era: str) -> None:
    app = make_app()
    async with start_gateway(None, app) as gateway:
        caller = await gateway.caller("/mcp?toolsets=admin", era)
        assert told(await caller.call("agent_get", {"workspace": "@main"}))["state"] == "stopped"
        assert told(await caller.call("agent_logs", {"workspace": "@main"}))["lines"] == []
        for tool in ("agent_start", "agent_resume"):
            assert failure(await caller.call(tool, {"workspace": "@main"})) == "agent-unavailable"
        assert failure(await caller.call("agent_get", {"workspace": "fox"})) == "workspace-not-found"
        assert failure(await caller.call("agent_get", {"project": "fox", "workspace": "@main"})) == "project-not-found"
        # No workspace is selected, and a project alone selects none.
        for arguments in ({}, {"project": "app"}):
            assert failure(await caller.call("agent_stop", arguments)) == "invalid-input"
        assert failure(await caller.call("agent_get", {"workspace": "@main", "name": "fix"})) == "invalid-input"
        place = f"/api/workspaces/{project_id(app)}/@main/agent"
        assert (await gateway.rest("GET", f"{place}/session")) == (200, None)
        # Of a route that takes nothing in a body, a body is ignored.
        for body in (None, {"wait": True}, 7):
            status, refused = await gateway.rest("POST", f"{place}/start", body)
            assert (status, refused["error"]["code"]) == (409, "agent-unavailable")
        for tail in ("x", "-1", "1.5", "1e3", "1000000000"):
            status, refused = await gateway.rest("GET", f"{place}/logs?tail={tail}")
            assert (status, refused["error"]["code"]) == (400, "invalid-input")


async def test_the_password_of_an_agent_is_refused_over_a_port() -> None:
    app = make_app()
    async with start_gateway(None, app) as gateway:
        status, body = await gateway.rest("GET", f"/api/workspaces/{project_id(app)}/@main/agent/attach")
        assert (status, body["error"]["code"]) == (403, "forbidden")
        # The reason is complete: what else is open over the socket alone, such as approvals, is not mentioned.
        assert body["error"]["message"] == "the password of an agent is given only to its user, over the Unix socket"
        assert "rookery agent password" in body["error"]["remedy"]


async def test_the_token_of_a_workspace_restarts_its_own_agent_and_manages_none() -> None:
    async with start_gateway(None, make_app(), with_tokens=True) as gateway:
        project = await gateway.parts.projects.get("app")
        created = await gateway.workspaces.create(project.id, "fix")
        fix = await gateway.workspaces.wait_until_prepared(created)
        path = "/mcp?toolsets=admin,workspace"
        owner = await gateway.caller(path, headers={"Authorization": f"Bearer {OWNERS}"})
        assert {tool["name"] for tool in await owner.listed("tools")} >= TOOLS
        token = {"Authorization": f"Bearer {await gateway.workspaces.token(fix)}"}
        agent = await gateway.caller(path, headers=token)
        names = {tool["name"] for tool in await agent.listed("tools")}
        assert "workspace_restart_agent" in names and not names & TOOLS
        assert told(await agent.call("workspace_get_agent_session")) is None
        assert failure(await agent.call("workspace_restart_agent")) == "agent-unavailable"
        for tool in TOOLS:
            assert tool in (await agent.call(tool, FIX))["error"]["message"]
