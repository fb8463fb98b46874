"""Waiting for several sessions on every interface, and driving a session over MCP, with the real OpenCode."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

import rookery
from tests.support.cli.user import user
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.daemon.system import LIMIT, FullSystem, place_of
from tests.support.mcp.caller import Caller, failure
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

# A wait that is met, and one that is not, in seconds.
LONG, SHORT = 60.0, 1.0
SESSION_TOOLS = {"ROOKERY_AGENTS_TOOLSETS": "workspace,project,session,hub"}


@dataclass(frozen=True)
class Condition:
    """A condition that the first of two sessions meets and the second does not."""

    what: str
    # The member of a result that holds what matched.
    member: str
    parameters: Mapping[str, str]
    # The same as options of the command line.
    options: tuple[str, ...]


CONDITIONS = (
    Condition("message", "message", {"pattern": "[Gg]ood .orning"}, ("--message", "[Gg]ood .orning")),
    Condition("toast", "toast", {"pattern": "all .1 pass"}, ("--toast", "all .1 pass")),
    Condition("idle", "session", {}, ("--idle",)),
    Condition("tool", "tool", {"tool": "glob", "pattern": "md"}, ("--tool", "glob", "--pattern", "md")),
    Condition("file", "file", {"path": "made.txt", "pattern": "m.de"}, ("--file", "made.txt", "--pattern", "m.de")),
    Condition("screen", "screen", {"pattern": "There it .s"}, ("--screen", "There it .s")),
)

# Waits on one interface: for these sessions, in this mode, for so many seconds. Returns the result in JSON.
Waiter = Callable[[list[str], str, Condition, float], Awaitable[Any]]


async def owner_of(system: FullSystem, http: aiohttp.ClientSession, token: str | None = None) -> Caller:
    headers = {"Authorization": f"Bearer {token or system.daemon.token}"}
    return Caller(http, f"{system.daemon.runtime['url']}/mcp", headers=headers, limit=LIMIT)


def make_waiters(system: FullSystem, client: Caller, connected: rookery.Rookery) -> dict[str, Waiter]:
    async def by_rest(sessions: list[str], mode: str, condition: Condition, seconds: float) -> Any:
        body = {"sessions": sessions, "mode": mode, "for": condition.what, "timeout": seconds * 1000}
        return await system.rest("POST", "/api/sessions/wait", {**body, **condition.parameters})

    async def by_mcp(sessions: list[str], mode: str, condition: Condition, seconds: float) -> Any:
        given = {"sessionIds": sessions, "mode": mode, "for": condition.what, "timeout": seconds * 1000}
        return (await client.call("wait_for", {**given, **condition.parameters}))["result"]["structuredContent"]

    async def by_python(sessions: list[str], mode: str, condition: Condition, seconds: float) -> Any:
        given: Any = {"mode": mode, **condition.parameters}
        what: Any = condition.what
        results = await connected.sessions.wait_for(sessions, what, seconds, check=False, **given)
        found = (any if mode == "any" else all)(result.found for result in results)
        return {"found": found, "results": json.loads(msgspec.json.encode(results))}

    async def by_command(sessions: list[str], mode: str, condition: Condition, seconds: float) -> Any:
        options = [*condition.options, *(["--any"] if mode == "any" else []), "--timeout", str(seconds), "--json"]
        done = await asyncio.to_thread(user, "session", "wait", *sessions, *options, env=system.env)
        outcome = json.loads(done.stdout)
        assert (done.returncode == 0) == outcome["found"], done.stderr
        # For one session it prints that session's result alone.
        return outcome if len(sessions) > 1 else {"found": outcome["found"], "results": [outcome]}

    return {"rest": by_rest, "mcp": by_mcp, "python": by_python, "cli": by_command}


async def check_waits(wait: Waiter, condition: Condition, first: str, second: str) -> Any:
    """Wait for one session, for any and for all of two; return what matched in the first."""
    single = await wait([first], "all", condition, LONG)
    assert single["found"] and len(single["results"]) == 1
    for mode, seconds in (("any", LONG), ("all", SHORT)):
        outcome = await wait([second, first], mode, condition, seconds)
        assert outcome["found"] == (mode == "any")
        missed, matched = outcome["results"]
        assert (matched["sessionId"], missed["sessionId"]) == (first, second)
        assert matched["found"] and matched[condition.member] is not None
        assert not missed["found"] and missed[condition.member] is None and missed["seen"]
    return single["results"][0][condition.member]


@requirement("session.wait.general")
async def test_wait_for_is_the_same_on_every_interface_for_any_and_all_of_several_sessions() -> None:
    async with (
        start_system_with_sessions("fix", "other") as (system, paths),
        aiohttp.ClientSession() as http,
        rookery.connect() as connected,
    ):
        first, second = [(await system.rest("POST", "/api/sessions", {"directory": str(path)}))["id"] for path in paths]
        for text in ("hello", "list"):
            await system.rest("POST", f"/api/sessions/{first}/messages", {"content": text, "timeout": LIMIT * 1000})
        toast = {"message": "all 41 pass", "duration": 3_600_000}
        await system.rest("POST", f"/api/sessions/{first}/toasts", toast)
        (paths[0] / "made.txt").write_text("made\n")
        await system.rest("POST", f"/api/sessions/{second}/messages", {"content": "type slowly", "wait": False})
        # The terminals are started by the first wait for the screen.
        for session in (first, second):
            await system.rest("GET", f"/api/sessions/{session}/screen")
        waiters = make_waiters(system, await owner_of(system, http), connected)
        for condition in CONDITIONS:
            matches = {name: await check_waits(wait, condition, first, second) for name, wait in waiters.items()}
            if condition.what != "screen":
                assert all(match == matches["rest"] for match in matches.values()), matches
        await system.rest("POST", f"/api/sessions/{second}/abort")


async def token_of(system: FullSystem, name: str) -> str:
    workspace = (await system.workspaces())[name]
    return (await system.rest("GET", f"{place_of(workspace)}/token"))["token"]


@requirement("session.mcp.control")
async def test_f03_the_owner_controls_a_session_over_mcp_and_a_workspace_answers_no_ask() -> None:
    async with start_system_with_sessions("fix", **SESSION_TOOLS) as (system, (path,)), aiohttp.ClientSession() as http:
        owner = await owner_of(system, http)
        agent = await owner_of(system, http, await token_of(system, "fix"))

        async def call(caller: Caller, tool: str, **given: Any) -> Any:
            result = (await caller.call(tool, given))["result"]
            assert not result.get("isError"), result
            content = result["structuredContent"]
            return content.get("result", content)

        session = (await call(owner, "create_session", directory=str(path)))["id"]
        about = {"sessionId": session}

        # Abort a turn: the owner, and the workspace itself.
        for caller in (owner, agent):
            await call(caller, "send_message", **about, content="type slowly", waitForResponse=False)
            await call(caller, "wait_for_message", **about, pattern="word-1", timeout=LIMIT * 1000)
            await call(caller, "abort_turn", **about)
            idle = await call(caller, "wait_for", sessionIds=[session], **{"for": "idle", "timeout": LIMIT * 1000})
            assert idle["found"]
        assert "word-999" not in str(await call(owner, "get_messages", **about))

        # Show a toast: the owner, and the workspace itself.
        for caller, message in ((owner, "from the owner"), (agent, "from the agent")):
            await call(caller, "show_toast", **about, message=message, duration=3_600_000)
            shown = {"pattern": f"^{message}$", "timeout": LIMIT * 1000}
            assert (await call(owner, "wait_for_toast", **about, **shown))["toast"]["attributed"]
            assert message in str(await call(owner, "get_toasts", **about))

        # Type, paste and press keys: the owner alone.
        screen = await call(owner, "press_keys", **about, text="Tell ", paste="me\nmore")
        assert screen["source"] == "terminal"
        typed = {"for": "screen", "pattern": "(?s)Tell me.*more", "timeout": LIMIT * 1000}
        assert (await call(owner, "wait_for", sessionIds=[session], **typed))["found"]
        await call(owner, "press_keys", **about, keys=["ctrl+c"])
        await call(owner, "press_keys", **about, text="hello", keys=["enter"])
        pressed = {"pattern": "^hello$", "role": "user", "timeout": LIMIT * 1000}
        assert (await call(owner, "wait_for_message", **about, **pressed))["found"]
        answered = {"pattern": "Good morning", "timeout": LIMIT * 1000}
        assert (await call(owner, "wait_for_message", **about, **answered))["found"]

        # An ask waits, and nothing with which it could be answered is open to the workspace.
        await call(agent, "send_message", **about, content="ask", waitForResponse=False)
        await system.until_all(lambda workspaces: workspaces["fix"]["attention"])
        (ask,) = await call(owner, "list_asks", **about)
        reply = {"askId": ask["id"], "reply": "once"}
        for tool, given in (
            ("press_keys", {**about, "keys": ["enter"]}),
            ("press_keys", {**about, "text": "y", "paste": "y"}),
            ("answer_ask", reply),
            ("list_asks", about),
        ):
            assert failure(await agent.call(tool, given)) == "tool-denied", tool
        assert [each["id"] for each in await call(owner, "list_asks")] == [ask["id"]]
        assert not (Path(path) / "asked.txt").exists()

        # The owner can answer it, with keys too.
        await call(owner, "press_keys", **about, keys=["enter"])
        done = {"pattern": "^Done", "timeout": LIMIT * 1000}
        assert (await call(owner, "wait_for_message", **about, **done))["found"]
        assert (Path(path) / "asked.txt").read_text() == "asked\n" and await call(owner, "list_asks") == []
