"""The API client with the real OpenCode."""

import asyncio
from pathlib import Path

import pytest

from rookery.agents.opencode.api import AgentClient
from rookery.system.errors import RookeryError
from rookery.testing.model import scripted_model
from rookery.wire.http_client.client import HttpClient
from tests.support.agents.watcher import LIMIT, make_script, open_shared_client, start_watcher
from tests.support.clock import let_pass
from tests.support.opencode.shared import SharedOpenCode

pytestmark = pytest.mark.anyio

SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    hold=[{"say": "at last", "hold": "never"}],
    run=[{"call": "bash", "with": {"command": "echo ran", "description": "run"}}, {"say": "it ran"}],
    choose=[
        {"call": "question", "with": {"questions": [
            {"question": "Which?", "header": "Pick", "options": [{"label": "A", "description": "a"}]}
        ]}},
        {"say": "chosen"},
    ],
)  # fmt: skip


async def test_sessions_are_made_listed_found_and_deleted(shared_opencode: SharedOpenCode, tmp_path: Path) -> None:
    folder = tmp_path / "日本 & mehr"
    folder.mkdir()
    async with scripted_model(SCRIPT) as model, open_shared_client(shared_opencode, folder, model) as client:
        health = await client.health()
        assert (health.healthy, health.version) == (True, "1.18.33")
        first = await client.create_session(title="first")
        assert (first.title, first.directory, first.parent) == ("first", str(folder), None)
        child = await client.create_session(title="child", parent=first.id)
        second = await client.create_session(title="second")
        assert [one.title for one in await client.sessions()] == ["second", "first"]
        assert {one.id for one in await client.sessions(roots=False)} == {first.id, second.id, child.id}
        assert [one.parent for one in await client.children(first.id)] == [first.id]
        assert (await client.session(second.id)).title == "second"

        await client.delete_session(first.id)
        for use in (client.session(first.id), client.messages(first.id), client.prompt(first.id, "hello")):
            with pytest.raises(RookeryError) as caught:
                await use
            assert (caught.value.code, first.id in caught.value.message) == ("session-not-found", True)
        assert [one.id for one in await client.sessions()] == [second.id]

        assert [one.id for one in (await client.providers()).providers] == ["scripted"]
        assert {"bash", "read", "edit"} <= set(await client.tool_ids())
        assert (await client.config())["snapshot"] is False
        await client.dispose()
        assert [one.id for one in await client.sessions()] == [second.id]


async def test_f06_an_agent_does_not_touch_the_sessions_of_another_folder(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path / "one", model) as client,
        HttpClient() as http,
    ):
        other = AgentClient(http, client.connection.url, tmp_path / "two", client.connection.password)
        session = await client.create_session(title="of one")
        assert await other.sessions() == []
        for use in (other.session(session.id), other.prompt(session.id, "hello"), other.delete_session(session.id)):
            with pytest.raises(RookeryError) as caught:
                await use
            assert caught.value.code == "session-not-found"
        assert await client.messages(session.id) == []


async def test_a_turn_is_sent_and_its_newest_messages_come_in_order(
    shared_opencode: SharedOpenCode, tmp_path: Path
) -> None:
    async with scripted_model(SCRIPT) as model, open_shared_client(shared_opencode, tmp_path, model) as client:
        session = (await client.create_session(title="x")).id
        answer = await client.send(session, "hello")
        assert (answer.info.role, answer.text, answer.info.finish) == ("assistant", "hello yourself", "stop")
        await client.send(session, "run", seconds=LIMIT)
        found = await client.messages(session)
        assert [one.info.role for one in found] == ["user", "assistant", "user", "assistant", "assistant"]
        state = next(part.state for one in found for part in one.parts if part.type == "tool")
        assert state is not None
        assert (state.status, state.output) == ("completed", "ran\n")
        assert await client.messages(session, newest=2) == found[-2:]

        sending = asyncio.create_task(client.send(session, "hold", seconds=10))
        async with asyncio.timeout(LIMIT):
            while session not in await client.statuses():
                pass
        let_pass(10)
        with pytest.raises(RookeryError) as caught:
            await sending
        assert caught.value.code == "timeout"
        assert (await client.statuses())[session].type == "busy"
        await client.abort(session)
        assert await client.statuses() == {}
        last = (await client.messages(session))[-1].info
        assert last.error is not None
        assert last.error.name == "MessageAbortedError"


async def test_asks_are_listed_and_answered(shared_opencode: SharedOpenCode, tmp_path: Path) -> None:
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model, {"permission": {"bash": "ask"}}) as client,
        start_watcher(client) as seen,
    ):
        session = (await client.create_session(title="x")).id
        await client.prompt(session, "run")
        await seen.until_is(session, "asking")
        permissions = await client.permissions()
        assert [(one.session, one.text) for one in permissions] == [(session, "bash: echo ran")]
        await client.answer_permission(permissions[0].id, "once")
        await seen.until_is(session, "idle")
        assert (await client.messages(session))[-1].text == "it ran"

        await client.prompt(session, "choose")
        await seen.until_is(session, "asking")
        questions = await client.questions()
        assert [(one.session, one.text) for one in questions] == [(session, "Which?")]
        await client.answer_question(questions[0].id, [["A"]])
        await seen.until_is(session, "idle")
        assert (await client.messages(session))[-1].text == "chosen"

        await client.prompt(session, "choose")
        await seen.until_is(session, "asking")
        await client.reject_question(seen.of(session).asks[0].id)
        await seen.until_is(session, "idle")
        assert [one.state for one in seen.watcher.sessions] == ["idle"]
        with pytest.raises(RookeryError) as caught:
            await client.answer_permission(permissions[0].id, "once")
        assert caught.value.code == "invalid-input"


async def test_f01_without_the_password_nothing_is_answered(shared_opencode: SharedOpenCode, tmp_path: Path) -> None:
    async with (
        scripted_model(SCRIPT) as model,
        open_shared_client(shared_opencode, tmp_path, model) as client,
        HttpClient() as http,
    ):
        stranger = AgentClient(http, client.connection.url, tmp_path, "wrong")
        for use in (stranger.health(), stranger.sessions(), stranger.create_session()):
            with pytest.raises(RookeryError) as caught:
                await use
            assert (caught.value.code, "password" in caught.value.message) == ("agent-unavailable", True)
