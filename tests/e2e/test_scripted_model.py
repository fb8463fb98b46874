"""The real OpenCode with the scripted model, offline and reproducible."""

import asyncio
import base64
import os
import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.testing.model import ScriptedModel, scripted_model
from tests.support.daemon.process import ROOKERY, rookery
from tests.support.opencode.api import TURN_SECONDS, OpenCodeApi
from tests.support.opencode.home import OFFLINE, fetch_no_plugin_package, scripted_config
from tests.support.opencode.process import installed
from tests.support.opencode.shared import PASSWORD, SharedOpenCode
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, requirement("kit.model.scripted"), pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "docs" / "guide" / "scripted-model.toml"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def bash(command: str) -> dict[str, Any]:
    return {"call": "bash", "with": {"command": command, "description": "runs it"}}


@asynccontextmanager
async def driven(
    shared: SharedOpenCode, folder: Path, script: Any
) -> AsyncGenerator[tuple[ScriptedModel, OpenCodeApi]]:
    """OpenCode with the model. Whatever it asks of others goes to a proxy, and at the end there was nothing."""
    async with scripted_model(script) as model:
        shared.configure(folder, scripted_config(model.url))
        async with OpenCodeApi(shared.url, folder, PASSWORD) as api:
            yield model, api
    assert shared.has_asked_nobody()


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def steps(model: ScriptedModel) -> list[tuple[int | None, int | None]]:
    return [(record.turn, record.step) for record in model.requests if record.kind == "step"]


async def test_a_turn_says_and_calls_one_after_another_and_side_by_side(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    (tmp_path / "seen.png").write_bytes(base64.b64decode(PIXEL))
    # Each of the two waits for what the other one makes.
    meeting = "touch {0}; while [ ! -e {1} ]; do sleep 0.05; done; echo {0} met {1}"
    both = [bash(meeting.format("a", "b")), bash(meeting.format("b", "a"))]
    script = {
        "turn": [
            {
                "step": [
                    {"say": "I look. ", **bash("echo one")},
                    {**bash("echo two after {{result}}"), "expect": "one", "expect_tools": ["bash", "read"]},
                    {"parallel": both, "expect": "two after one"},
                    {"say": "{{result.1}}/{{result.2}}", "expect": ["a met b", "b met a"]},
                ]
            },
            {"step": [{"call": "read", "with": {"filePath": str(tmp_path / "seen.png")}}, {"say": "Seen."}]},
        ]
    }
    async with driven(shared_opencode, tmp_path, script) as (model, api):
        session = await api.session(None)
        last = await api.turn(session, "Go, please")
        assert text_of(last).split() == ["a", "met", "b", "/b", "met", "a"]
        done = [(part["tool"], part["state"]["status"]) for part in await api.tools(session)]
        assert done == [("bash", "completed")] * 4
        assert text_of(await api.turn(session, "Look at the picture")) == "Seen."
        assert steps(model) == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2)]
        assert not model.requests.unforeseen
        assert {record.session for record in model.requests} == {session}
        assert [record.user for record in model.requests if record.kind == "title"] == ["Go, please"]
        assert (await api.ask("GET", f"/session/{session}"))["title"] == "Go, please"
        asked = model.requests[-1].body
        assert (asked["stream"], asked["model"]) == (True, "scripted")
        assert asked["messages"][-1]["content"][0]["text"] == "Attached media from tool result:"


async def test_errors_and_a_disconnect_come_when_the_script_says(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    script = {
        "turn": [
            {"step": [{"error": 400, "message": "not today"}]},
            {"step": [{"error": 503, "retry_after": 0.01, "times": 2}, {"say": "After all."}]},
            {"step": [{"disconnect": True, "say": "Half of", "times": 1}, bash("echo whole"), {"say": "{{result}}"}]},
        ]
    }
    async with driven(shared_opencode, tmp_path, script) as (model, api):
        session = await api.session()
        failed = await api.turn(session, "First")
        assert failed["info"]["error"]["data"]["message"] == "not today"
        assert failed["info"]["error"]["data"]["isRetryable"] is False
        assert text_of(await api.turn(session, "Second")) == "After all."
        assert text_of(await api.turn(session, "Third")).strip() == "whole"
        assert steps(model) == [(1, 1), (2, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
        ends = [record.ended for record in model.requests]
        assert ends == ["answered"] * 4 + ["cut-off"] + ["answered"] * 2


@requirement("kit.model.face")
async def test_the_example_of_the_guide_works_and_a_request_outside_it_fails_at_once(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    async with driven(shared_opencode, tmp_path, EXAMPLE) as (model, api):
        session = await api.session()
        assert text_of(await api.turn(session, "Write a greeting")).startswith("hello.txt is written. It was ")
        assert (tmp_path / "hello.txt").read_text() == "Hello!\n"
        failed = await api.turn(session, "Overloaded: HTTP 503 server_error, context length exceeded, try again later")
        told = failed["info"]["error"]["data"]["message"]
        assert 'The nearest step is conversation "greeting", turn 2, step 1 (say "You are welcome.")' in told
        assert [record.kind for record in model.requests] == ["step", "step", "step", "unforeseen"]


async def test_a_session_that_was_summarised_plays_on_and_a_call_that_is_aborted_is_seen(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    script = {
        "conversation": [
            {
                "when": "Begin",
                "turn": [
                    {"step": [{"say": "Begun."}]},
                    {"when": "go on", "step": [{"say": "Still here."}]},
                    {"when": "wait", "step": [{"say": "Never said.", "hold": "for ever"}]},
                ],
            }
        ]
    }
    async with driven(shared_opencode, tmp_path, script) as (model, api):
        session = await api.session()
        assert text_of(await api.turn(session, "Begin")) == "Begun."
        which = {"providerID": "scripted", "modelID": "scripted"}
        assert await api.ask("POST", f"/session/{session}/summarize", which) is True
        assert text_of(await api.turn(session, "Please go on")) == "Still here."
        assert [record.kind for record in model.requests] == ["step", "summary", "step"]
        await api.prompt(session, "Now wait")
        async with asyncio.timeout(TURN_SECONDS):
            held = await model.requests.wait_for(lambda record: record.turn == 3)
            assert held.ended is None
            assert await api.ask("POST", f"/session/{session}/abort") is True
            await model.requests.wait_for(lambda record: record.ended == "client-gone")


async def test_sessions_side_by_side_play_their_own_conversations(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    words = ["heron", "crane", "stork"]
    script = {
        "conversation": [
            {"when": word, "turn": [{"step": [bash(f"echo {word}"), {"say": "{{result}}", "expect": word}]}]}
            for word in words
        ]
    }
    async with driven(shared_opencode, tmp_path, script) as (model, api):
        sessions = [await api.session() for _ in words]
        turns = [api.turn(session, f"Tell me of the {word}") for session, word in zip(sessions, words, strict=True)]
        assert [text_of(last).strip() for last in await asyncio.gather(*turns)] == words
        found = {record.session: record.conversation for record in model.requests}
        assert found == dict(zip(sessions, [1, 2, 3], strict=True))
        assert not model.requests.unforeseen


async def test_what_the_guide_says_makes_agents_play_a_script(tmp_path: Path) -> None:
    """The commands of the guide's first script, in a shell of a user's."""
    app = make_repository(tmp_path / "app", {"README.md": "# The app\n"})
    guide = (EXAMPLE.parent / "scripted-model.md").read_text()
    script, *_ = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (app / "hello.toml").write_text(script)
    code = next(block for block in re.findall(r"```sh\n(.*?)```", guide, re.DOTALL) if "model env" in block)
    home = Path(os.environ["HOME"])
    fetch_no_plugin_package(home / ".config" / "opencode")
    search = os.pathsep.join([str(ROOKERY.parent), installed().search_path])
    agents = {"ROOKERY_AGENTS_VERSION": "path", "ROOKERY_AGENTS_START_SECONDS": "200"}
    env = {"PATH": search, "LANG": "C.UTF-8", **OFFLINE, **agents}
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", "-ec", code],
            cwd=app,
            env=os.environ | env,
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        assert "There is: " in done.stdout and "README.md" in done.stdout
    finally:
        assert rookery("down", env=env).returncode == 0
