"""Boulder with the real OpenCode, driven through the official SDK's client."""

import asyncio
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import Client

from tests.support.cli.user import at_a_terminal
from tests.support.daemon.jobs import as_child
from tests.support.daemon.process import rookery
from tests.support.daemon.sdk_client import open_sdk_client
from tests.support.daemon.system import LIMIT, FullSystem, start_system
from tests.support.mcp.sdk_client import MODERN
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


def todo(status: str) -> dict[str, Any]:
    todos = [{"content": "write the test", "status": status, "priority": "high"}]
    return {"call": "todowrite", "with": {"todos": todos}}


SCRIPT = {
    "turn": [
        {"when": "Starting boulder test", "step": [{"say": "I have begun."}]},
        {"when": "Plan it", "step": [todo("pending"), {"say": "Everything is complete."}]},
        {
            "when": {"regex": '(?s)ENFORCEMENT 1 of .*work left: 1 todo is open: "write the test"'},
            "step": [todo("completed"), {"say": "There is more to do next."}],
        },
        {"when": "BOULDER ENFORCEMENT", "step": [{"say": "I go on."}]},
        {"when": "Finish what is left", "step": [{"say": "All tasks are complete."}]},
        {"when": "one more thing", "step": [{"say": "I will do it next."}]},
    ]
}
# How many times in a row the seed's example has to pass.
RUNS = repetitions(5, 50)
# As it is told to the daemon by who starts it.
SETTINGS = {"ROOKERY_BOULDER_IDLE_SECONDS": "1", "ROOKERY_BOULDER_COOLDOWN_SECONDS": "1"}


async def tell(client: Client, tool: str, /, **given: Any) -> Any:
    found = await client.call_tool(tool, given)
    assert not found.is_error and found.structured_content is not None, found
    return found.structured_content.get("result", found.structured_content)


async def state_of(client: Client, uri: str = "boulder://state") -> Any:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, mcp_types.TextResourceContents) and content.mime_type == "application/json"
    return json.loads(content.text)


async def until(client: Client, session: str, status: str) -> Any:
    """The state of boulder for a session, once it is so; looked at whenever a change is told."""
    uri, state = f"boulder://state/{session}", None
    try:
        async with asyncio.timeout(LIMIT), client.listen(resource_subscriptions=[uri]) as changes:
            while (state := await state_of(client, uri))["status"] != status:
                await anext(changes)
            return state
    except TimeoutError:
        said = await tell(client, "get_messages", sessionId=session)
        raise AssertionError(f"it did not become {status}: {state}; {said}") from None


def ordered(path: Path, *words: str) -> None:
    """What the owner types at a terminal."""
    with at_a_terminal("boulder", *words, cwd=path) as person:
        assert person.ends() == 0, person.text


async def a_warm_agent(system: FullSystem) -> Path:
    """A workspace whose agent has done a turn: the first takes longest, and the seed's time limits are for others."""
    path = Path((await system.create("fix"))["path"])
    made = await system.rest("POST", "/api/sessions", {"directory": str(path), "title": "warm"})
    one = f"/api/sessions/{made['id']}"
    await system.rest("POST", f"{one}/messages", {"content": "Starting boulder test", "timeout": 1000 * LIMIT})
    await system.rest("DELETE", one)
    return path


def steps_of(prompt: str) -> list[list[str]]:
    """For each step that a prompt asks for, the tools and resources that it names."""
    named = re.compile(r"`([a-z]+_[a-z_]+|boulder://[^`]+)`")
    return [named.findall(step) for step in re.findall(r"^\d+\. (.*)$", prompt, re.MULTILINE)]


@requirement("boulder.prompt.idle", "boulder.prompt.completion")
async def test_who_follows_the_two_prompts_step_by_step_sees_what_they_foretell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROOKERY_BOULDER_IDLE_SECONDS", "1")
    app = make_repository(Path(os.environ["HOME"]) / "src" / "app", {"README.md": "# The app\n"})
    async with start_system(SCRIPT, app) as system:
        path = await a_warm_agent(system)
        async with open_sdk_client(system.daemon, "http", MODERN) as client:
            idle, complete = [(await tell(client, "create_session", directory=str(path)))["id"] for _ in range(2)]
            ended = await asyncio.gather(_follows_idle(client, idle), _follows_completion(client, complete))
            assert ended == ["OFF", "OFF"]


async def _follows_idle(client: Client, session: str) -> str:
    (message,) = (await client.get_prompt("test_boulder_idle_detection", {"sessionId": session})).messages
    assert isinstance(message.content, mcp_types.TextContent)
    uri = f"boulder://state/{session}"
    assert steps_of(message.content.text) == [
        ["get_session"],
        [uri, "trigger_plugin_action"],
        ["send_message"],
        ["wait_for_toast"],
        ["get_messages"],
        [uri],
        ["trigger_plugin_action"],
    ]
    assert (await tell(client, "get_session", sessionId=session))["id"] == session
    begun = time.time() * 1000
    before = await state_of(client, uri)
    assert before["status"] == "OFF"
    on = await tell(client, "trigger_plugin_action", pluginName="boulder", action="on", args={"sessionId": session})
    assert (on["status"], on["iteration"]) == ("CONTINUOUS", before["iteration"])
    await tell(client, "send_message", sessionId=session, content="Starting boulder test")
    toast = await tell(client, "wait_for_toast", sessionId=session, pattern="BOULDER ENFORCEMENT", timeout=35_000)
    assert toast["found"]
    messages = await tell(client, "get_messages", sessionId=session, since=begun)
    assert any("BOULDER ENFORCEMENT" in one["content"] for one in messages)
    after = await state_of(client, uri)
    assert after["iteration"] > before["iteration"] and after["lastEnforcement"] > begun
    off = await tell(client, "trigger_plugin_action", pluginName="boulder", action="off", args={"sessionId": session})
    return off["status"]


async def _follows_completion(client: Client, session: str) -> str:
    (message,) = (await client.get_prompt("test_boulder_completion", {"sessionId": session})).messages
    assert isinstance(message.content, mcp_types.TextContent)
    uri = f"boulder://state/{session}"
    assert steps_of(message.content.text) == [
        ["get_session"],
        [uri, "trigger_plugin_action"],
        ["send_message"],
        ["execute_tool", "run_just_task"],
        ["wait_for_toast"],
        [uri],
        ["send_message"],
        ["trigger_plugin_action"],
    ]
    assert (await tell(client, "get_session", sessionId=session))["id"] == session
    before = await state_of(client, uri)
    assert (before["status"], before["checks"]) == ("OFF", "todos")
    await tell(client, "trigger_plugin_action", pluginName="boulder", action="on", args={"sessionId": session})
    (order,) = re.findall(r'content "(Finish [^"]+)"', message.content.text)
    await tell(client, "send_message", sessionId=session, content=order)
    toast = await tell(client, "wait_for_toast", sessionId=session, pattern="BOULDER ENFORCEMENT", timeout=70_000)
    assert not toast["found"]
    state = await state_of(client, uri)
    assert (state["status"], state["iteration"]) == ("COMPLETE", before["iteration"]) and state["complete"]
    assert "complete" in [one["gate"] for one in state["gates"]]
    await tell(client, "send_message", sessionId=session, content="There is one more thing to do.")
    assert (await state_of(client, uri))["complete"] is None
    off = await tell(client, "trigger_plugin_action", pluginName="boulder", action="off", args={"sessionId": session})
    return off["status"]


@soak
@requirement("boulder.example.literal", "boulder.example.passes", "boulder.enforce.idle", "boulder.enforce.words")
@requirement("boulder.complete.checks", "boulder.control.actions", "boulder.state.resource", "session.resource.changes")
async def test_the_boulder_test_of_the_seed_passes_every_time_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    app = make_repository(Path(os.environ["HOME"]) / "src" / "app", {"README.md": "# The app\n"})
    async with start_system(SCRIPT, app) as system:
        path = await a_warm_agent(system)
        marked = {**system.env, **as_child(system.daemon)}
        refused = await asyncio.to_thread(rookery, "boulder", "on", "--workspace", "fix", env=marked, cwd=path)
        assert refused.returncode == 4 and "started by Rookery" in refused.stderr
        await asyncio.to_thread(ordered, path, "on", "--workspace", "fix")
        async with open_sdk_client(system.daemon, "http", MODERN) as client:
            passed = [await _example(client, path) for _ in range(RUNS)]
            assert len(set(passed)) == RUNS
            assert await tell(client, "list_sessions") == []
            assert await tell(client, "get_plugin_state", pluginName="boulder", stateKey="iteration") > 0
            session = await _completes(client, path)
            await asyncio.to_thread(ordered, path, "stop", session)
            before = await state_of(client, f"boulder://state/{session}")
        await _is_told_on_the_command_line(system, path, session)
        assert (await system.cli("down")).returncode == 0
        await system.start_again()
        async with open_sdk_client(system.daemon, "http", MODERN) as client:
            await tell(client, "create_session", directory=str(path))
            after = await state_of(client, f"boulder://state/{session}")
            kept = ("iteration", "status", "stopRequested", "lastEnforcement", "complete", "switched", "checks")
            assert [after[key] for key in kept] == [before[key] for key in kept]


async def _example(client: Client, path: Path) -> str:
    """Run the seed's `testBoulderIdleDetection`: its calls and no other, with its arguments, and its assertions."""
    session = await tell(client, "create_session", directory=str(path), agent="claude")
    await tell(client, "send_message", sessionId=session["id"], content="Starting boulder test")
    toast = await tell(client, "wait_for_toast", sessionId=session["id"], pattern="BOULDER ENFORCEMENT", timeout=35_000)
    since = time.time() * 1000 - 40_000
    messages = await tell(client, "get_messages", sessionId=session["id"], since=since)
    has_system_message = any("BOULDER ENFORCEMENT" in one["content"] for one in messages)
    state = await state_of(client)
    assert toast["found"], toast
    assert has_system_message, messages
    assert state["iteration"] > 0, state
    await tell(client, "close_session", sessionId=session["id"])
    # What the calls have answered beside.
    assert toast["toast"]["sessionId"] == state["sessionId"] == session["id"] and state["failureCount"] == 0
    return session["id"]


async def _completes(client: Client, path: Path) -> str:
    """Its own todos say more than its words: with one open it is told to go on, with none it is left alone."""
    id_ = (await tell(client, "create_session", directory=str(path)))["id"]
    await tell(client, "send_message", sessionId=id_, content="Plan it", timeout=120_000)
    state = await until(client, id_, "COMPLETE")
    assert (state["iteration"], state["complete"]) == (1, "no todo is open")
    assert [one["gate"] for one in state["gates"] if one["until"] is None] == ["complete"]
    said = await tell(client, "get_messages", sessionId=id_)
    assert [one["content"] for one in said if one["role"] == "assistant" and one["content"]] == [
        "Everything is complete.",
        "There is more to do next.",
    ]
    return id_


async def _is_told_on_the_command_line(system: FullSystem, path: Path, session: str) -> None:
    told = json.loads((await system.cli("boulder", "status", session, "--json", cwd=path)).stdout)
    assert (told["sessionId"], told["status"], told["stopRequested"]) == (session, "STOPPED", True)
    line = (await system.cli("boulder", "status", session, cwd=path)).stdout
    assert f"{session} is STOPPED, 1 of 5 spent" in line
    table = (await system.cli("boulder", "status", cwd=path)).stdout
    assert session in table and "STOPPED" in table
    log = json.loads((await system.cli("boulder", "log", session, "--json", cwd=path)).stdout)
    assert [(one["what"], one["iteration"]) for one in log] == [("enforced", 1), ("complete", 1), ("stop", 1)]
    assert '1 todo is open: "write the test"' in log[0]["why"] and log[0]["who"].endswith("for the workspace")
    assert "write the test" in (await system.cli("boulder", "log", cwd=path)).stdout
