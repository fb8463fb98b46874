"""A session's terminal through every interface of the real daemon; none outlives the daemon."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import rookery
from tests.support.cli.user import at_a_terminal
from tests.support.daemon.process import wait_dead
from tests.support.daemon.sdk_client import open_sdk_client
from tests.support.daemon.sessions import start_system_with_sessions, terminals
from tests.support.daemon.system import FullSystem
from tests.support.mcp.sdk_client import MODERN
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

# A program that somebody runs.
DRIVES = """
import asyncio, sys, rookery
async def main():
    async with rookery.connect() as r:
        s = await r.sessions.get(sys.argv[1])
        await s.type("from a ")
        await s.paste("program")
        await s.wait_for_screen("from a program", timeout=60)
        print((await s.press("backspace")).source)
asyncio.run(main())
"""


@requirement("term.state.get", "term.real.tui", "term.close.killed", "session.face.all")
async def test_d05_f01_every_interface_shows_the_terminal_and_it_ends_with_the_daemon() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        begun = await system.rest("POST", "/api/sessions", {"directory": str(path), "title": "Seen"})
        session = begun["id"]
        await system.rest("POST", f"/api/sessions/{session}/messages", {"content": "hello", "timeout": 120_000})
        assert terminals(system) == []

        seen = await system.rest("GET", "/api/sessions/screen")
        assert (seen["sessionId"], seen["source"], seen["columns"]) == (session, "terminal", 120)
        assert "Good morning." in seen["text"] and seen["title"].endswith("Seen") and seen["runs"] is None
        (process,) = terminals(system)
        words, env = " ".join(process.cmdline()), process.environ()
        assert env["OPENCODE_SERVER_PASSWORD"] not in words and process.cwd() == "/"
        assert env.keys() & {"ROOKERY_TOKEN", "OPENCODE_CONFIG_CONTENT"} == set()

        await _mcp(system, session)
        await _rest(system, session)
        await _cli(system, session, path)
        async with rookery.connect() as r:
            s = await r.sessions.get(session)
            shown = await s.screen(columns=160, rows=45)
            assert (shown.columns, shown.rows) == (160, 45) and shown.regions.sidebar is not None
            assert (await s.wait_for_screen("Good +morning", timeout=60)).found
            with pytest.raises(rookery.RookeryError) as caught:
                await s.wait_for_screen("never", timeout=0.2)
            assert caught.value.code == "timeout" and "Good morning." in caught.value.message
        with at_a_terminal(argv=[sys.executable, "-c", DRIVES, session]) as person:
            assert await asyncio.to_thread(person.ends) == 0, person.text
        assert person.text == "terminal\n"
        assert (await system.rest("GET", f"/api/sessions/{session}/screen"))["regions"]["prompt"]["text"].endswith(
            "from a progra"
        )

        (process,) = terminals(system)
        await system.killed()
        await asyncio.to_thread(wait_dead, process.pid)
        await system.start_again()


async def _mcp(system: FullSystem, session: str) -> None:
    async with open_sdk_client(system.daemon, "http", MODERN) as client:
        tool = next(one for one in (await client.list_tools()).tools if one.name == "get_tui_state")
        assert tool.input_schema.get("required", []) == [] and "sessionId" in tool.input_schema["properties"]
        found = await client.call_tool("get_tui_state", {"colours": True, "columns": 100, "rows": 30})
        assert found.structured_content is not None and not found.is_error
        told: dict[str, Any] = found.structured_content
        assert (told["sessionId"], told["source"], told["columns"], told["rows"]) == (session, "terminal", 100, 30)
        assert len(told["runs"]) == 30 and any(run["background"] for row in told["runs"] for run in row)
        assert told["regions"]["prompt"] and told["regions"]["status"] and told["regions"]["dialog"] is None
        failed = await client.call_tool("get_tui_state", {"sessionId": "ses_nobody"})
        assert failed.is_error and failed.structured_content is not None
        assert failed.structured_content["error"]["code"] == "session-not-found"


async def _rest(system: FullSystem, session: str) -> None:
    place = f"/api/sessions/{session}"
    await system.rest("POST", f"{place}/keys", {"keys": ["ctrl+p"]})
    waited = await system.rest("POST", f"{place}/wait", {"for": "screen", "pattern": "Commands", "timeout": 60_000})
    assert waited["found"] and waited["match"] == "Commands" and "Commands" in waited["screen"]
    shown = await system.rest("GET", f"{place}/screen?colours=true")
    assert "Commands" in shown["regions"]["dialog"]["text"] and shown["runs"]
    await system.rest("POST", f"{place}/keys", {"keys": ["esc"], "columns": 120, "rows": 40})
    for body in ({}, {"keys": ["entre"]}, {"text": "a\nb"}, {"columns": 3, "rows": 3, "text": "x"}):
        with pytest.raises(AssertionError, match="400"):
            await system.rest("POST", f"{place}/keys", body)


async def _cli(system: FullSystem, session: str, path: Path) -> None:
    done = await system.cli("session", "screen", cwd=path)
    assert done.returncode == 0 and "Good morning." in done.stdout, done.stderr
    told = json.loads((await system.cli("session", "screen", "fix", "--size", "100x30", "--json", cwd=path)).stdout)
    assert (told["sessionId"], told["columns"], told["rows"]) == (session, 100, 30)
    done = await system.cli("session", "wait", "fix", "--screen", "Good +morn[a-z]+", "--timeout", "60", cwd=path)
    assert (done.returncode, done.stdout) == (0, "Good morning\n"), done.stderr
    done = await system.cli("session", "screen", ".", "--wait", "never", "--timeout", "0.3", cwd=path)
    assert done.returncode == 124 and "Good morning." in done.stderr
    assert (await system.cli("session", "screen", "fix", "--size", "big", cwd=path)).returncode == 2
    assert (await system.cli("session", "screen", "--keys", "enter", cwd=path)).returncode == 2
    # Keys can answer what a session asks, so nobody that Rookery has started may press them.
    marked = await asyncio.to_thread(_as_a_child, system, session)
    assert marked.returncode == 4 and "forbidden" in marked.stdout + marked.stderr
    words = ("session", "screen", "fix", "--text", "by hand ", "--wait", "by hand")
    with at_a_terminal(*words, cwd=path) as person:
        assert await asyncio.to_thread(person.ends) == 0, person.text
    assert "by hand" in person.text


def _as_a_child(system: FullSystem, session: str) -> Any:
    from tests.support.daemon.process import rookery as run

    marker = psutil.Process(terminals(system)[0].pid).environ()["ROOKERY_SPAWN"]
    env = {**system.env, "ROOKERY_SPAWN": marker}
    return run("session", "screen", session, "--keys", "enter", "--json", env=env)
