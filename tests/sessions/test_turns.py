"""Turns of the real OpenCode: messages, tool runs, asks and errors are returned to the sender."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rookery.sessions.records import Turn
from rookery.workspaces.model import Workspace
from tests.support.agents.sessions import SessionDriver, refusal, start_session_driver
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

RUN = {"call": "bash", "with": {"command": "echo ran", "description": "run"}}
SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    first=[{"say": "the first", "hold": "first"}],
    second=[{"say": "the second"}],
    run=[{"say": "I run it.", **RUN}, {"call": "frobnicate", "with": {"a": 1}}, {"say": "It ran."}],
    outside=[{"call": "read", "with": {"filePath": "/etc/hostname"}}, {"say": "read"}],
    choose=[
        {"call": "question", "with": {"questions": [
            {"question": "Which?", "header": "Pick", "options": [{"label": "A", "description": "a"}]}
        ]}},
        {"say": "chosen"},
    ],
    refuse=[{"error": 400, "message": "no such thing"}],
    down=[{"error": 503, "message": "overloaded"}],
    torn=[{"say": "half of it", "disconnect": True}],
    stuck=[{"say": "I run it.", **RUN}, {"say": "at last", "hold": "stuck"}],
)  # fmt: skip


@requirement("session.send.wait", "session.send.input", "session.history.get")
async def test_a_message_is_answered_with_what_was_said_and_run() -> None:
    async with start_session_driver(SCRIPT) as stage:
        sessions = stage.sessions
        one = await stage.host.create("one")
        session = await stage.session(one)
        taken = await sessions.send(session, "hello", wait=False)
        assert (taken.status, taken.content, taken.session_id) == ("taken", "", session)
        found = await sessions.wait_for_message(session, "hello yourself", 60, role="assistant")
        assert found.found
        assert (await sessions.wait_for_idle(session)).found
        assert (await sessions.messages(session)).messages[0].id == taken.message_id

        turn = await sessions.send(session, "run", timeout=60, progress=stage.progress)
        assert (turn.status, turn.content, turn.error, turn.note) == ("finished", "I run it.\nIt ran.", None, None)
        assert [(run.tool, run.status, run.output) for run in turn.parts] == [
            ("bash", "completed", "ran\n"),
            ("frobnicate", "error", None),
        ]
        assert [one.role for one in turn.messages] == ["assistant"] * 3
        history = await sessions.tool_history(session)
        assert history == list(turn.parts)
        assert history[0].start is not None and history[0].end is not None and history[0].end >= history[0].start
        assert await sessions.tool_history(limit=1) == [turn.parts[1]]

        # Two at once, and one that nobody waits for, are answered one after the other, each with its own.
        both = asyncio.gather(sessions.send(session, "first", timeout=60), _later(stage, one, session))
        turns = await both
        assert [turn.content for turn in turns] == ["the first", "the second"]
        assert {turn.status for turn in turns} == {"finished"}
        for content, code in (("", "invalid-input"), (" \n", "invalid-input"), ("x" * 1_000_001, "invalid-input")):
            async with refusal(code):
                await sessions.send(session, content)
        for seconds in (-1, 1e9, float("nan")):
            async with refusal("invalid-input"):
                await sessions.send(session, "hello", timeout=seconds)
        assert (await sessions.get(session)).message_count == len((await sessions.messages(session, None)).messages)


async def _later(stage: SessionDriver, workspace: Workspace, session: str) -> Turn:
    await stage.until_is(workspace, session, "busy")
    sending = asyncio.ensure_future(stage.sessions.send(session, "second", timeout=60))
    await stage.sessions.wait_for_message(session, "^second$", 60, role="user")
    taken = await stage.sessions.send(session, "second, again", wait=False)
    assert (await stage.sessions.messages(session, 1)).messages[0].id == taken.message_id
    stage.host.model.release("first")
    return await sending


@requirement("session.send.timeout", "session.wait.timeout")
async def test_f05_a_model_that_is_dead_slow_torn_or_sends_garbage_ends_no_session() -> None:
    async with start_session_driver(SCRIPT) as stage, garbage() as urls:
        config = Path.home() / ".config" / "opencode" / "opencode.json"
        written = json.loads(config.read_text())
        for name, url in urls.items():
            options = {"baseURL": url, "apiKey": "none"}
            written["provider"][name] = {**written["provider"]["scripted"], "options": options}
            written["enabled_providers"].append(name)
        config.write_text(json.dumps(written))
        sessions = stage.sessions
        one = await stage.host.create("one")
        session = await stage.session(one)
        assert (await sessions.send(session, "hello", timeout=60)).status == "finished"
        turn = await sessions.send(session, "refuse", timeout=60)
        assert turn.status == "error"
        assert turn.error is not None and "no such thing" in turn.error

        # Slow: what was seen so far, and the turn goes on by itself. How soon it begins depends on the machine.
        for seconds in (2, 4, 8, 16, 32):
            turn = await sessions.send(session, "stuck", timeout=seconds)
            assert (turn.status, turn.error) == ("timeout", None)
            if turn.parts and turn.parts[0].status == "completed":
                break
            await sessions.abort(session)
            assert (await sessions.wait_for_idle(session, 60)).found
        assert (turn.content, [(run.tool, run.output) for run in turn.parts]) == ("I run it.", [("bash", "ran\n")])
        assert turn.note is not None and turn.note.startswith("the turn is still running: assistant: I run it.")
        stage.host.model.release("stuck")
        assert (await sessions.wait_for_message(session, "at last", 60)).found
        assert (await sessions.wait_for_idle(session, 60)).found

        # Dead: OpenCode asks it again and again, which shows; the turn can be ended.
        turn = await sessions.send(session, "down", timeout=0.3)
        assert turn.status == "timeout"
        await stage.until_is(one, session, "retry")
        shown = await sessions.get(session)
        assert (shown.status, shown.opencode) == ("active", "retry")
        assert "overloaded" in shown.detail
        late = await sessions.wait_for_idle(session, 0.3, progress=stage.progress)
        assert (late.found, late.session) == (False, None)
        assert late.seen is not None and "overloaded" in late.seen
        await sessions.abort(session)
        assert (await sessions.wait_for_idle(session, 60)).found

        turn = await sessions.send(session, "torn", timeout=3)
        assert turn.status in ("error", "timeout")
        await sessions.abort(session)
        assert (await sessions.wait_for_idle(session, 60)).found
        for name in urls:
            turn = await sessions.send(session, "hello", model=f"{name}/scripted", timeout=3)
            assert turn.status in ("error", "timeout") and turn.content == ""
            await sessions.abort(session)
            assert (await sessions.wait_for_idle(session, 60)).found
        # Whatever it was, the next message is answered.
        again = await sessions.send(session, "hello", model="scripted/scripted", timeout=60)
        assert (again.status, again.content) == ("finished", "hello yourself")


GARBAGE = {
    "bytes": b"\x00\xff\xfe not HTTP at all\r\n\r\n",
    "html": b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 14\r\n\r\n<html></html>\n",
    "stream": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {not JSON\n\ndata: [1, 2\n\n",
}


@asynccontextmanager
async def garbage() -> AsyncGenerator[dict[str, str]]:
    """Models that answer every request with what is no answer; their URLs by name."""
    servers: dict[str, asyncio.Server] = {}
    for name, data in GARBAGE.items():

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes = data) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            writer.close()

        servers[name] = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1_000_000)
    try:
        yield {name: f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}/v1" for name, one in servers.items()}
    finally:
        for one in servers.values():
            one.close()


@requirement("session.asks.visible")
async def test_f03_what_a_turn_asks_is_seen_and_waits_for_the_owner() -> None:
    async with start_session_driver(SCRIPT) as stage:
        sessions = stage.sessions
        one = await stage.host.create("one")
        session = await stage.session(one)
        await sessions.send(session, "outside", wait=False)
        await stage.until_is(one, session, "asking")
        # Whoever waits is told why nothing happens.
        turn = await sessions.send(session, "hello", timeout=0.3)
        assert (turn.status, turn.content) == ("timeout", "")
        (ask,) = turn.asks
        assert turn.note is not None and ask.text in turn.note
        late = await sessions.wait_for_idle(session, 0.3)
        assert late.seen is not None and ask.text in late.seen
        assert (ask.kind, ask.session_id, ask.workspace) == ("permission", session, "one")
        assert await sessions.asks() == [ask] == await sessions.asks(session)
        assert ((await sessions.get(session)).status, (await sessions.get(session)).opencode) == ("active", "asking")
        for reply, answers in ((None, None), ("maybe", None), (None, [["A"]])):
            async with refusal("invalid-input"):
                await sessions.answer(ask.id, reply, answers=answers)  # pyright: ignore[reportArgumentType]
        # Nobody has answered meanwhile.
        assert await sessions.asks(session) == [ask]
        assert await sessions.answer(ask.id, "reject", message="not that one") == ask
        assert await sessions.asks() == []
        assert (await sessions.wait_for_idle(session, 60)).found
        (run,) = await sessions.tool_history(session)
        assert (run.tool, run.status) == ("read", "error")
        async with refusal("ask-not-found", ask.id):
            await sessions.answer(ask.id, "once")

        sending = asyncio.ensure_future(sessions.send(session, "choose", timeout=60))
        await stage.until(lambda: any(room.asks() for room in sessions._index.visible_to(None)))
        (question,) = await sessions.asks(session)
        assert (question.kind, question.options) == ("question", (("A",),))
        async with refusal("invalid-input"):
            await sessions.answer(question.id, "once")
        async with refusal("invalid-input"):
            await sessions.answer(question.id, answers=[])
        await sessions.answer(question.id, answers=[["A"]])
        assert (await sending).content == "chosen"
