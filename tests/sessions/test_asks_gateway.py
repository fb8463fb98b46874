"""Tools of the gateway with the rule `ask`, called by real agents: they become asks of the session."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.agents.host import start_agent_host
from tests.support.agents.watcher import make_script
from tests.support.daemon.endpoints import bearer
from tests.support.daemon.system import LIMIT, FullSystem, Shown, place_of, start_system
from tests.support.gateway.gateway import write
from tests.support.mcp.caller import HANDSHAKE, Caller, failure, words
from tests.support.mcp.project_servers import SERVER
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

SAYS: dict[str, Any] = {"say": "it said {{result}}"}
SCRIPT = make_script(
    direct=[{"call": "small_echo", "with": {"text": "a heron"}}, SAYS],
    through=[{"call": "rookery_small__echo", "with": {"text": "a heron"}}, SAYS],
)
RULES = {"small__*": "ask"}


def define_server() -> Path:
    """Define a server whose tool asks first, and return the file with a letter for each call."""
    calls, program = Path.home() / "calls", Path.home() / "server.py"
    called = 'elif asked["method"] == "tools/call":'
    program.write_text(SERVER.replace(called, f"{called}\n        open({str(calls)!r}, 'a').write('x')"))
    calls.touch()
    write({"small": {"command": [sys.executable, str(program)]}}, permission=RULES)
    return calls


class Agent:
    """An agent with its sessions, as its owner sees them."""

    def __init__(self, system: FullSystem, workspace: Shown) -> None:
        self.system, self.workspace = system, workspace

    async def session(self) -> str:
        body = {"directory": self.workspace["path"], "title": "a session"}
        return (await self.system.rest("POST", "/api/sessions", body))["id"]

    async def send(self, session: str, text: str) -> None:
        await self.system.rest("POST", f"/api/sessions/{session}/messages", {"content": text, "wait": False})

    async def asks(self, count: int) -> dict[str, Any]:
        """Wait until the workspace needs its user for this many asks, and return them by session."""
        await self.system.until(self.workspace, lambda shown: len(shown["attention"]) == count)
        return {ask["sessionId"]: ask for ask in await self.cli("asks")}

    async def cli(self, *arguments: str) -> Any:
        done = await self.system.cli("session", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    async def outcome(self, session: str) -> tuple[str, str]:
        """Wait for the end of the turn, and return what the model said last, and the error of its last tool."""
        body = {"sessions": [session], "for": "idle", "timeout": LIMIT * 1000}
        assert (await self.system.rest("POST", "/api/sessions/wait", body))["found"]
        messages = (await self.system.rest("GET", f"/api/sessions/{session}/messages"))["messages"]
        runs = [run for message in messages for run in message["parts"]]
        return messages[-1]["content"], runs[-1]["error"] or ""


@requirement("servers.ask.session")
async def test_f03_a_tool_that_asks_waits_in_its_session_for_the_owner_alone() -> None:
    app, calls = make_repository(Path.home() / "src" / "app"), define_server()
    # The server counts its calls in the home folder.
    settings = {"ROOKERY_AGENTS_TOOLSETS": "workspace,session,hub", "ROOKERY_SERVERS_SANDBOX": "off"}
    async with start_system(SCRIPT, app, settings=settings) as system, aiohttp.ClientSession() as http:
        agent = Agent(system, await system.create("fix"))
        first, second = await agent.session(), await agent.session()

        # It is listed as other asks are, by every interface, and nothing is called.
        await agent.send(first, "direct")
        ask = (await agent.asks(1))[first]
        assert (ask["kind"], ask["askedBy"], ask["workspace"]) == ("permission", first, "fix")
        assert ask["text"] == 'small__echo: {"text":"a heron"}' and ask["options"] == [["once", "always", "reject"]]
        assert ask["detail"]["metadata"]["server"] == "small"
        assert await system.rest("GET", f"/api/sessions/{first}/asks") == [ask]
        assert await system.rest("GET", "/api/sessions/asks") == [ask]
        (needy,) = json.loads((await system.cli("ws", "list", "--attention", "--json", cwd=app)).stdout)
        assert (needy["attention"][0]["reason"], needy["attention"][0]["id"]) == ("permission", ask["id"])
        assert (await system.rest("GET", f"/api/sessions/{first}"))["opencode"] == "asking"
        owner = await opened(http, system, system.daemon.token, "?toolsets=session")
        assert (await owner.call("list_asks"))["result"]["structuredContent"]["result"] == [ask]

        # The workspace itself cannot answer, whatever session it says it is.
        token = (await system.rest("GET", f"{place_of(agent.workspace)}/token"))["token"]
        named = {"X-Rookery-Session": first}
        itself = await opened(http, system, token, headers=named)
        assert failure(await itself.call("answer_ask", {"askId": ask["id"], "reply": "once"})) == "tool-denied"
        url = f"{system.daemon.runtime['url']}/api/sessions/asks/{ask['id']}"
        async with http.post(url, json={"reply": "once"}, headers=bearer(token)) as refused:
            assert refused.status == 403
        assert calls.read_text() == ""
        # A session of another workspace is none: the call is denied without an ask.
        elsewhere = f"{system.daemon.runtime['url']}/w/{agent.workspace['project']}/@main/mcp"
        other = Caller(http, elsewhere, HANDSHAKE, able={}, headers={**bearer(system.daemon.token), **named})
        await other.open()
        assert '"small__echo": "allow"' in words(await other.call("small__echo"))
        assert list(await agent.asks(1)) == [first]

        await agent.cli("answer", ask["id"][:12], "once")
        assert await agent.outcome(first) == ("it said done", "") and calls.read_text() == "x"

        # The same call of two sessions at once, at both addresses: each has its own ask and answer.
        await agent.send(first, "through")
        await agent.send(second, "direct")
        asks = await agent.asks(2)
        assert {asks[first]["text"], asks[second]["text"]} == {ask["text"]}
        await agent.cli("answer", asks[first]["id"], "reject", "--message", "not that bird")
        assert "the user did not allow it: not that bird" in (await agent.outcome(first))[1]
        await agent.cli("answer", asks[second]["id"], "once")
        assert await agent.outcome(second) == ("it said done", "") and calls.read_text() == "xx"

        # A turn that is aborted, or whose agent ends, asks no more.
        await agent.send(first, "direct")
        await agent.asks(1)
        await system.rest("POST", f"/api/sessions/{first}/abort")
        assert await agent.asks(0) == {}
        await agent.send(second, "through")
        await agent.asks(1)
        assert (await system.cli("agent", "stop", "fix", cwd=app)).returncode == 0
        assert await agent.cli("asks") == [] and calls.read_text() == "xx"

        # Allowed for the session, it asks no more in it, and still in others.
        assert (await system.cli("agent", "start", "fix", cwd=app)).returncode == 0
        third = await agent.session()
        await agent.send(third, "direct")
        await agent.cli("answer", (await asks_of(agent, third))["id"], "always")
        assert await agent.outcome(third) == ("it said done", "")
        await agent.send(third, "through")
        assert await agent.outcome(third) == ("it said done", "") and calls.read_text() == "xxxx"
        fourth = await agent.session()
        await agent.send(fourth, "direct")
        assert await asks_of(agent, fourth)
        await system.rest("POST", f"/api/sessions/{fourth}/abort")


async def asks_of(agent: Agent, session: str) -> dict[str, Any]:
    """Wait for the ask of a session, and return it."""

    def has_ask(shown: Shown) -> bool:
        return any(need["reason"] == "permission" for need in shown["attention"])

    await agent.system.until(agent.workspace, has_ask)
    (ask,) = await agent.system.rest("GET", f"/api/sessions/{session}/asks")
    return ask


async def opened(
    http: aiohttp.ClientSession, system: FullSystem, token: str, query: str = "", headers: Mapping[str, str] = {}
) -> Caller:
    url = f"{system.daemon.runtime['url']}/mcp{query}"
    caller = Caller(http, url, HANDSHAKE, able={}, headers={**bearer(token), **headers})
    await caller.open()
    return caller


@requirement("servers.ask.session")
async def test_f03_an_ask_that_nobody_answers_is_denied_after_its_time() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with start_agent_host(SCRIPT, app, with_tokens=True) as host, aiohttp.ClientSession() as http:
        calls = define_server()
        await host.gateway.hub.config_watcher.read_again()
        made = await host.create("one")
        life = await host.agents.ensure_running(made)
        await life.watcher.wait_for_snapshot()
        session = (await life.client.create_session(title="a session")).id
        host.gateway.service.parked_calls.seconds = 2.0
        token = await host.gateway.workspaces.token(made)
        headers = {**bearer(token), "X-Rookery-Session": session}
        url = f"http://127.0.0.1:{host.gateway.site.port}/w/{made.project.id}/one/s/small/mcp"
        caller = Caller(http, url, HANDSHAKE, able={}, headers=headers)
        await caller.open()
        call = caller.begin("echo", {}, progressToken=1)
        # Progress keeps the agent from aborting the call before the owner has answered.
        progress = await caller.hears("notifications/progress", 2)
        assert "rookery session asks" in progress["params"]["message"]
        (ask,) = await host.gateway.parts.sessions.sessions.asks(session)
        assert ask.text == "small__echo: {}"
        denied = await asyncio.wait_for(call, LIMIT)
        assert failure(denied) == "tool-denied" and "did not answer within 2 s" in words(denied)
        assert await host.gateway.parts.sessions.sessions.asks(session) == [] and calls.read_text() == ""
        await caller.close()
