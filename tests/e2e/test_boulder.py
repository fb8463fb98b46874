"""Boulder with the real OpenCode, through the official SDK's client: the test that the seed has written down."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import Client

from tests.support.e2e import LIMIT, Colony, a_colony
from tests.support.mcp_clients import MODERN
from tests.support.person import at_a_terminal
from tests.support.requirements import requirement
from tests.support.ways import a_client_of_house
from tests.support.workspaces import make_repository

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
    ]
}
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


@requirement("boulder.example.passes", "boulder.enforce.idle", "boulder.enforce.words", "boulder.state.resource")
@requirement("boulder.complete.checks", "boulder.control.actions", "session.resource.changes")
async def test_the_boulder_test_of_the_seed_passes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    app = make_repository(Path(os.environ["HOME"]) / "src" / "app", {"README.md": "# The app\n"})
    async with a_colony(SCRIPT, app) as colony:
        path = Path((await colony.create("fix"))["path"])
        refused = await colony.cli("boulder", "on", "--workspace", "fix", cwd=path)
        assert refused.returncode == 4 and "started by Rookery" in refused.stderr
        await asyncio.to_thread(ordered, path, "on", "--workspace", "fix")
        async with a_client_of_house(colony.house, "http", MODERN) as client:
            await _example(client, path)
            session = await _completes(client, path)
            await asyncio.to_thread(ordered, path, "stop", session)
            before = await state_of(client, f"boulder://state/{session}")
        await _is_told_on_the_command_line(colony, path, session)
        assert (await colony.cli("down")).returncode == 0
        await colony.start_again()
        async with a_client_of_house(colony.house, "http", MODERN) as client:
            await tell(client, "create_session", directory=str(path))
            after = await state_of(client, f"boulder://state/{session}")
            kept = ("iteration", "status", "stopRequested", "lastEnforcement", "complete", "switched", "checks")
            assert [after[key] for key in kept] == [before[key] for key in kept]


async def _example(client: Client, path: Path) -> None:
    """As it stands in the seed, with its numbers."""
    session = await tell(client, "create_session", directory=str(path), agent="claude")
    await tell(client, "send_message", sessionId=session["id"], content="Starting boulder test", timeout=120_000)
    toast = await tell(client, "wait_for_toast", sessionId=session["id"], pattern="BOULDER ENFORCEMENT", timeout=35_000)
    since = time.time() * 1000 - 40_000
    found = await tell(client, "wait_for_message", sessionId=session["id"], pattern="BOULDER ENFORCEMENT")
    messages = await tell(client, "get_messages", sessionId=session["id"], since=since)
    state = await state_of(client)
    assert toast["found"] and found["found"]
    assert any("BOULDER ENFORCEMENT" in one["content"] for one in messages)
    assert state["iteration"] > 0 and state["sessionId"] == session["id"]
    assert state["lastEnforcement"] >= toast["toast"]["shownAt"] - 10_000 and state["failureCount"] == 0
    assert await tell(client, "get_plugin_state", pluginName="boulder", stateKey="iteration") >= state["iteration"]
    await tell(client, "close_session", sessionId=session["id"])
    assert session["id"] not in [one["id"] for one in await tell(client, "list_sessions")]


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


async def _is_told_on_the_command_line(colony: Colony, path: Path, session: str) -> None:
    told = json.loads((await colony.cli("boulder", "status", session, "--json", cwd=path)).stdout)
    assert (told["sessionId"], told["status"], told["stopRequested"]) == (session, "STOPPED", True)
    line = (await colony.cli("boulder", "status", session, cwd=path)).stdout
    assert f"{session} is STOPPED, 1 of 5 spent" in line
    table = (await colony.cli("boulder", "status", cwd=path)).stdout
    assert session in table and "STOPPED" in table
    log = json.loads((await colony.cli("boulder", "log", session, "--json", cwd=path)).stdout)
    assert [(one["what"], one["iteration"]) for one in log] == [("enforced", 1), ("complete", 1), ("stop", 1)]
    assert '1 todo is open: "write the test"' in log[0]["why"] and log[0]["who"].endswith("for the workspace")
    assert "write the test" in (await colony.cli("boulder", "log", cwd=path)).stdout
