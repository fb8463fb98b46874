"""Servers that change while the real OpenCode runs reach it in its next turn."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rookery.testing.request_log import LoggedRequest
from rookery.workspaces.model import Workspace
from tests.support.agents.host import AgentHost, start_agent_host
from tests.support.agents.watcher import make_script
from tests.support.opencode.api import OpenCodeApi
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = make_script(
    look=[{"say": "I have looked"}],
    work=[{"call": "early_echo", "with": {}}, {"say": "at last", "hold": "work"}],
    late=[{"call": "late_echo", "with": {"text": "a heron"}}, {"say": "it said {{result}}"}],
)


@asynccontextmanager
async def opencode_of(host: AgentHost, workspace: Workspace) -> AsyncGenerator[OpenCodeApi]:
    process = (await host.agents.ensure_running(workspace)).process
    async with OpenCodeApi(process.url, workspace.path, process.password) as api:
        yield api


async def define(host: AgentHost, name: str) -> None:
    """Add a server to the user's file, as `rookery mcp add` does."""
    config = host.gateway.scripted.server(name)
    status, answer = await host.gateway.rest("PUT", f"/api/mcp/{name}", {"config": config})
    assert status == 201, answer


def last_request(host: AgentHost) -> LoggedRequest:
    return [request for request in host.model.requests if request.kind == "step"][-1]


def third_party(host: AgentHost) -> set[str]:
    """Return the tools of servers that the model was offered last."""
    return {name for name in last_request(host).tools if name.endswith("_echo")}


@requirement("servers.agent.live", "servers.traffic.agents")
async def test_f04_servers_reach_a_running_agent_in_its_next_turn_and_cut_no_turn() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_agent_host(SCRIPT, app, with_tokens=True) as host:
        await define(host, "early")
        made = await host.create("one")
        first = await host.until_is(made, "running")
        async with opencode_of(host, made) as api:
            busy, other = await api.session("busy"), await api.session("other")
            await api.prompt(busy, "work")
            await host.until(made, lambda _: busy in [one.id for one in host.agents.sessions(made)])
            await host.model.requests.wait_for(lambda request: request.step == 2 and request.kind == "step")

            # Added, while a turn runs: the next turn of another session has it, and the running one is not cut.
            await define(host, "late")
            assert "a heron" in said(await api.turn(other, "late"))
            (run,) = [part for part in await api.tools(other) if part["tool"] == "late_echo"]
            assert run["state"]["status"] == "completed" and "a heron" in run["state"]["output"]
            host.model.release("work")
            await host.until(made, lambda _: not is_busy(host, made))
            assert said((await api.messages(busy))[-1]) == "at last"

            # Switched off, on again, and removed.
            place = f"workspace={quote(str(made.path))}"
            for verb, tools in (("disable", {"early_echo"}), ("enable", {"early_echo", "late_echo"})):
                assert (await host.gateway.rest("POST", f"/api/mcp/late/{verb}?{place}", {}))[0] == 200
                await api.turn(other, "look")
                assert third_party(host) == tools, verb
            assert (await host.gateway.rest("DELETE", "/api/mcp/early"))[0] == 200
            await api.turn(other, "look")
            assert third_party(host) == {"late_echo"}

            # OpenCode reads its config again, and still has what is current, under the identity of this workspace.
            await api.ask("POST", "/instance/dispose")
            await api.turn(other, "late")
            assert third_party(host) == {"late_echo"}
            assert (await api.tools(other))[-1]["state"]["status"] == "completed"
        last = await host.agents.process(made)
        assert (last.pid, last.needs_restart) == (first.pid, False)
        # The calls count in the traffic of the workspace.
        _, page = await host.gateway.rest("GET", f"/api/workspaces/{made.project.id}/one/traffic")
        calls = [(line["server"], line["tool"]) for line in page["lines"] if line["method"] == "tools/call"]
        assert calls == [("early", "echo"), ("late", "echo"), ("late", "echo")]


@requirement("servers.agent.live")
async def test_a_server_that_is_approved_or_works_again_reaches_a_running_agent() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_agent_host(SCRIPT, app, with_tokens=True) as host:
        scripted, cure = host.gateway.scripted, Path.home() / "cure"
        files = {"late": scripted.server("late"), "sick": scripted.server("sick")}
        files["sick"]["command"] = ["sh", "-c", f'test -e {cure} && exec "$@"', "sh", *files["sick"]["command"]]
        made = await host.create("one")
        (made.path / ".mcp.json").write_text(json.dumps({"mcpServers": files}))
        async with opencode_of(host, made) as api:
            session = await api.session()
            await api.turn(session, "look")
            assert third_party(host) == set()
            for subject in await host.gateway.service.list_waiting():
                await host.gateway.approvals.approve(subject, subject.digest)
                await host.gateway.parts._on_decision(subject.key)
            await api.turn(session, "late")
            assert third_party(host) == {"late_echo"}
            assert (await api.tools(session))[-1]["state"]["status"] == "completed"
            # It failed to start; after it was connected by hand, the agent has it.
            await host.gateway.becomes("sick", "failed", "backoff", directory=made.path)
            cure.touch()
            place = f"workspace={quote(str(made.path))}"
            _, record = await host.gateway.rest("POST", f"/api/mcp/sick/connect?{place}")
            assert record["status"] == "connected"
            await api.turn(session, "look")
            assert third_party(host) == {"late_echo", "sick_echo"}


@requirement("servers.agent.live")
async def test_a_server_that_starts_slowly_reaches_a_running_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.gateway.view._MAX_WAIT_SECONDS", 0.5)
    app = make_repository(Path.home() / "src" / "app")
    async with start_agent_host(SCRIPT, app, with_tokens=True) as host:
        started = Path.home() / "started"
        os.mkfifo(started)
        slow = host.gateway.scripted.server("slow")
        slow["command"] = ["sh", "-c", f'read x < {started}; exec "$@"', "sh", *slow["command"]]
        slow["timeouts"] = {"startup": 300}
        assert (await host.gateway.rest("PUT", "/api/mcp/slow", {"config": slow}))[0] == 201
        made = await host.create("one")
        async with opencode_of(host, made) as api:
            session = await api.session()
            await api.turn(session, "look")
            assert third_party(host) == set()
            assert await host.gateway.status("slow", made.path) == "pending"
            await asyncio.to_thread(started.write_text, "now\n")
            await host.gateway.becomes("slow", "connected", directory=made.path)
            await api.turn(session, "look")
            assert third_party(host) == {"slow_echo"}


def said(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def is_busy(host: AgentHost, workspace: Workspace) -> bool:
    """Return whether a session still works."""
    return any(session.state == "busy" for session in host.agents.sessions(workspace))
