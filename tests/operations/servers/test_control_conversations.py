"""Servers and tools that are switched on or off for one conversation of a real agent, on every interface."""

import json
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.support.agents.watcher import make_script
from tests.support.daemon.endpoints import bearer
from tests.support.daemon.system import LIMIT, FullSystem, is_ready, start_system
from tests.support.gateway.gateway import write
from tests.support.mcp.caller import HANDSHAKE, Caller
from tests.support.mcp.project_servers import SERVER
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

SCRIPT = make_script(
    look=[{"say": "I have looked"}],
    call=[{"call": "small_echo", "with": {}}, {"say": "it said {{result}}"}],
    twice=[
        {"call": "small_echo", "with": {}},
        {"call": "small_echo", "with": {}, "hold": "second"},
        {"say": "it said {{result}}"},
    ],
)
BOTH = {"small_echo", "small_other"}
OFF = "the user has switched it off in this conversation"


def define_server() -> None:
    """Define a server with two tools."""
    program = Path.home() / "server.py"
    listed = '{"name": "echo", "inputSchema": {"type": "object"}}'
    assert listed in SERVER
    program.write_text(SERVER.replace(listed, f"{listed}, {listed.replace('echo', 'other')}"))
    write({"small": {"command": [sys.executable, str(program)]}})


class Conversations:
    """The sessions of one agent, and what the model is offered in each."""

    def __init__(self, system: FullSystem, app: Path) -> None:
        self.system, self.app = system, app

    async def create(self, path: str) -> str:
        return (await self.system.rest("POST", "/api/sessions", {"directory": path, "title": "a session"}))["id"]

    async def send(self, session: str, text: str, *, wait: bool = True) -> str:
        body = {"content": text, "wait": wait, "timeout": LIMIT * 1000}
        return (await self.system.rest("POST", f"/api/sessions/{session}/messages", body))["content"]

    async def offered(self, session: str) -> set[str]:
        """Return the tools of the server that the model is offered in the next turn of a session."""
        assert await self.send(session, "look") == "I have looked"
        requests = [each for each in self.system.model.requests if (each.session, each.kind) == (session, "step")]
        return {name for name in requests[-1].tools if name.startswith("small_")}

    async def mcp(self, *words: str, cwd: Path | None = None) -> str:
        done = await self.system.cli("mcp", *words, cwd=cwd or self.app)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def last_error(self, session: str) -> str:
        messages = (await self.system.rest("GET", f"/api/sessions/{session}/messages"))["messages"]
        return [run["error"] or "" for message in messages for run in message["parts"]][-1]


@requirement("servers.switch.conversation")
async def test_f06_a_server_is_switched_for_one_conversation_also_after_a_restart() -> None:
    app = make_repository(Path.home() / "src" / "app")
    define_server()
    async with start_system(SCRIPT, app) as system, aiohttp.ClientSession() as http:
        made = await system.create("fix")
        talks = Conversations(system, app)
        first, second = await talks.create(made["path"]), await talks.create(made["path"])
        for session in (first, second):
            assert await talks.offered(session) == BOTH
            assert await talks.send(session, "call") == "it said done"

        # Switched off in the middle of a turn: the next call is refused in this conversation only.
        for session in (first, second):
            await talks.send(session, "twice", wait=False)
            await system.asked(lambda one, session=session: (one.session, one.user, one.step) == (session, "twice", 2))
        prefix = next(first[:length] for length in range(8, 31) if not second.startswith(first[:length]))
        assert await talks.mcp("disable", "small", "--session", prefix) == "disabled small in this session\n"
        system.model.release("second")
        for session, said in ((first, OFF), (second, "it said done")):
            waited = {"sessions": [session], "for": "idle", "timeout": LIMIT * 1000}
            assert (await system.rest("POST", "/api/sessions/wait", waited))["found"]
            messages = (await system.rest("GET", f"/api/sessions/{session}/messages"))["messages"]
            assert said in messages[-1]["content"]
        assert OFF in await talks.last_error(first) and f"--session {first}" in await talks.last_error(first)
        # From the next turn on it is hidden there; also from a session that works for it.
        assert await talks.offered(first) == set() and await talks.offered(second) == BOTH
        refused = await system.cli("session", "tool", first, "small_echo", "{}", cwd=app)
        assert refused.returncode != 0 and "small_echo" in refused.stderr
        ran = await system.cli("session", "tool", second, "small_echo", "{}", "--json", cwd=app)
        assert (json.loads(ran.stdout)["status"], json.loads(ran.stdout)["output"]) == ("completed", "done")
        listed = await system.rest("GET", f"/api/mcp?session={first}")
        assert listed["small"]["status"] == "disabled"
        assert (await system.rest("GET", f"/api/mcp?session={second}"))["small"]["status"] == "connected"

        # So it stays after a restart of the daemon and of the agent.
        await system.cli("down")
        await system.start_again()
        await system.until(made, is_ready)
        assert await talks.offered(first) == set() and await talks.offered(second) == BOTH
        assert await talks.send(second, "call") == "it said done"

        # Over REST it is switched on again, and over MCP one tool off.
        record = await system.rest("POST", f"/api/mcp/small/enable?session={first}", {})
        assert record["status"] == "connected"
        assert await talks.offered(first) == BOTH and await talks.send(first, "call") == "it said done"
        url = f"{system.daemon.runtime['url']}/mcp?toolsets=admin"
        owner = Caller(http, url, HANDSHAKE, able={}, headers=bearer(system.daemon.token))
        await owner.open()
        switched = await owner.call("server_disable", {"name": "small", "session": second, "tool": "oth*"})
        assert not switched["result"].get("isError"), switched
        assert await talks.offered(second) == {"small_echo"} and await talks.offered(first) == BOTH

        # Off in the workspace, and on in one of its conversations alone.
        await talks.mcp("disable", "small", cwd=Path(made["path"]))
        await talks.mcp("enable", "small", "--session", second)
        assert await talks.offered(second) == {"small_echo"} and await talks.send(second, "call") == "it said done"
        await system.rest("POST", f"/api/mcp/small/disable?session={first}", {})
        assert await talks.offered(first) == set()
        third = await talks.create(made["path"])
        assert await talks.offered(third) == set()
        place = f"{system.daemon.runtime['url']}/w/{made['project']}/fix/mcp"
        client = Caller(http, place, HANDSHAKE, able={}, headers=bearer(system.daemon.token))
        await client.open()
        assert await client.tools() == []

        unknown = await system.cli("mcp", "disable", "small", "--session", "ses_none", cwd=app)
        assert unknown.returncode == 3 and "rookery session list" in unknown.stderr
