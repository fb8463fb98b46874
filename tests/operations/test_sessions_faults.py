"""Faults of agents and models, as the routes and tools made from the operations report them; with the real OpenCode."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from msgspec import Raw
from starlette.applications import Starlette

from rookery.api.errors import handle_rookery_error
from rookery.api.rest import operation_routes
from rookery.operations.operation import Caller, bind_operations
from rookery.operations.sessions import ListSessions, SessionOperations
from rookery.system.errors import RookeryError
from rookery.toolsets.operations import operation_toolset
from tests.support.agents.host import LIMIT
from tests.support.agents.sessions import SessionDriver, start_session_driver
from tests.support.agents.watcher import make_script, start_watcher
from tests.support.http.listener import start_listener
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    held=[{"say": "the end of it", "hold": "held"}],
    fail=[{"error": 400, "message": "no credit left"}],
    **{f"say {number}": [{"say": f"heard {number}"}] for number in range(4)},
)


@dataclass
class Interfaces:
    """The operations on sessions as REST routes and as MCP tools, over the same service."""

    driver: SessionDriver
    url: str
    http: aiohttp.ClientSession

    def __post_init__(self) -> None:
        operations = bind_operations(SessionOperations(self.driver.sessions, lambda session: None))
        self._toolset = operation_toolset(operations, "session", None)

    async def rest(self, method: str, path: str, body: Any = None) -> Any:
        async with self.http.request(method, f"{self.url}/api/sessions/{path}", json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def mcp(self, tool: str, **arguments: Any) -> Any:
        call = cast(Any, SimpleNamespace(method="tools/call", meta={}, session=None))
        params = {"name": tool, "arguments": Raw(json.dumps(arguments).encode())}
        result = cast(Any, await self._toolset.handle(call, params))
        content = json.loads(msgspec.json.encode(result["structuredContent"]))
        return content.get("result", content)

    async def send(self, interface: str, session: str, text: str) -> Any:
        """Send a message and return the turn, over one of the interfaces."""
        if interface == "rest":
            return await self.rest("POST", f"{session}/messages", {"content": text, "timeout": LIMIT * 1000})
        return await self.mcp("send_message", sessionId=session, content=text, timeout=LIMIT * 1000)


@asynccontextmanager
async def start_interfaces() -> AsyncGenerator[Interfaces]:
    async with start_session_driver(SCRIPT) as driver, aiohttp.ClientSession() as http:
        operations = bind_operations(SessionOperations(driver.sessions, lambda session: None))
        app = Starlette(routes=operation_routes(operations), exception_handlers={RookeryError: handle_rookery_error})
        async with start_listener(app) as site:
            yield Interfaces(driver, f"http://127.0.0.1:{site.port}", http)


@requirement("session.send.timeout", "session.wait.pattern")
async def test_f02_a_route_and_a_tool_get_the_last_message_after_a_lost_stream() -> None:
    async with start_interfaces() as interfaces:
        driver = interfaces.driver
        workspace = await driver.host.create("one")
        session = await driver.session(workspace)
        sending = asyncio.ensure_future(interfaces.send("rest", session, "held"))
        wait = {"pattern": "end of it", "timeout": LIMIT * 1000}
        waiting = asyncio.ensure_future(interfaces.mcp("wait_for_message", sessionId=session, role="assistant", **wait))
        await driver.until_is(workspace, session, "busy")
        run = driver.host.agents.agents[workspace.path].supervisor.run
        assert run is not None
        # Events are lost from here until the watcher is started again.
        await run.watcher.close()
        async with start_watcher(run.client) as other_watcher:
            driver.host.model.release("held")
            await other_watcher.until_is(session, "idle")
        run.watcher.start()
        turn = await sending
        assert (turn["status"], turn["content"]) == ("finished", "the end of it")
        assert (await waiting)["message"]["content"] == "the end of it"
        page = await interfaces.rest("GET", f"{session}/messages")
        assert page["messages"] == await interfaces.mcp("get_messages", sessionId=session)
        assert [message["content"] for message in page["messages"]] == ["held", "the end of it"]


@requirement("session.send.timeout", "session.parallel.apart")
async def test_f05_f06_failed_and_concurrent_turns_stay_apart_over_rest_and_mcp() -> None:
    async with start_interfaces() as interfaces:
        driver = interfaces.driver
        workspaces = [await driver.host.create(name) for name in ("one", "two")]
        sessions = [await driver.session(workspace) for workspace in workspaces]
        for interface, session in zip(("rest", "mcp"), sessions, strict=True):
            failed = await interfaces.send(interface, session, "fail")
            assert failed["status"] == "error" and "no credit left" in str(failed["error"])
            turn = await interfaces.send(interface, session, "hello")
            assert (turn["status"], turn["content"]) == ("finished", "hello yourself")

        # In each workspace one session is driven by each interface, all of them at once.
        others = [await driver.session(workspace) for workspace in workspaces]
        targets = [*(("rest", session) for session in sessions), *(("mcp", session) for session in others)]
        turns = await asyncio.gather(
            *(interfaces.send(*target, f"say {number}") for number, target in enumerate(targets))
        )
        answers = [(turn["sessionId"], turn["content"]) for turn in turns]
        assert answers == [(session, f"heard {number}") for number, (_, session) in enumerate(targets)]
        for workspace, session in zip(workspaces, sessions, strict=True):
            info = await interfaces.rest("GET", session)
            assert info == await interfaces.mcp("get_session", sessionId=session)
            assert (info["directory"], info["status"]) == (str(workspace.path), "idle")

        # A filter does not widen the scope of a caller.
        in_two = ListSessions(project=workspaces[1].project.id, workspace="two")
        listing = SessionOperations(driver.sessions, lambda session: None).list
        for scope, expected in ((workspaces[0].path, set[str]()), (workspaces[1].path, {sessions[1], others[1]})):
            assert {session.id for session in await listing(Caller(scope=scope), in_two)} == expected
