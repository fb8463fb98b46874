"""Requests to OpenCode, and the results and errors that its responses become, with a scripted server."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rookery.agents.opencode.api import AgentClient
from rookery.system.errors import RookeryError
from rookery.wire.http_client.client import HttpClient
from tests.support.mcp.client import HttpRequest, HttpResponder, ScriptedHttpServer

pytestmark = pytest.mark.anyio

HERE = Path("/work/日本 & mehr")
SESSION = "ses_1"


class Answers:
    """An OpenCode that gives one answer to everything, but knows the session `ses_1` of HERE and `ses_2` of none."""

    def __init__(self, body: Any, status: int = 200) -> None:
        self.body, self.status = body, status

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        path = urlsplit(asked.path).path
        if asked.method == "GET" and path in ("/session/ses_1", "/session/ses_2"):
            directory = str(HERE) if path.endswith("1") else "/elsewhere"
            await out.json({"id": path.rpartition("/")[2], "directory": directory})
        elif isinstance(self.body, bytes):
            await out.answer(self.status, self.body)
        else:
            await out.json(self.body, self.status)


@asynccontextmanager
async def talking(body: Any, status: int = 200) -> AsyncGenerator[tuple[AgentClient, ScriptedHttpServer]]:
    async with ScriptedHttpServer(Answers(body, status)) as server, HttpClient() as http:
        yield AgentClient(http, f"http://127.0.0.1:{server.port}", HERE, "geheim"), server


def query(asked: HttpRequest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(asked.path).query)


# ---- what is asked


async def test_every_request_names_the_folder_and_carries_the_password() -> None:
    async with talking({}) as (client, server):
        await client.statuses()
        await client.health()
    for asked in server.asked:
        assert asked.path.isascii() and " " not in asked.path
        assert query(asked)["directory"] == [str(HERE)]
        assert base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")) == b"opencode:geheim"
    assert "geheim" not in repr(client.connection)


async def test_a_message_is_sent_with_what_was_chosen_and_nothing_else() -> None:
    async with talking(b"", 204) as (client, server):
        await client.prompt(SESSION, "mach das „so“", agent="plan", model="openai/gpt/5")
        await client.prompt(SESSION, "weiter")
    first, second = (asked.message for asked in server.asked if asked.method == "POST")
    assert first == {
        "parts": [{"type": "text", "text": "mach das „so“"}],
        "agent": "plan",
        "model": {"providerID": "openai", "modelID": "gpt/5"},
    }
    assert second == {"parts": [{"type": "text", "text": "weiter"}]}


async def test_a_session_is_made_as_asked_and_all_of_them_are_listed() -> None:
    rule = {"permission": "bash", "pattern": "*", "action": "ask"}
    async with talking({"id": SESSION}) as (client, server):
        await client.create_session(title="t", parent="ses_0", agent="build", model="a/b", permission=[rule])
        await client.create_session()
    assert [asked.message for asked in server.asked] == [
        {
            "title": "t",
            "parentID": "ses_0",
            "agent": "build",
            "model": {"providerID": "a", "id": "b"},
            "permission": [rule],
        },
        {},
    ]
    async with talking([]) as (client, server):
        await client.sessions()
        await client.sessions(roots=False)
    assert [query(asked).get("roots") for asked in server.asked] == [["true"], None]
    assert {query(asked)["limit"][0] for asked in server.asked} == {"10000"}


async def test_asks_are_answered_in_their_own_way() -> None:
    async with talking(True) as (client, server):
        await client.answer_permission("per_1", "once")
        await client.answer_permission("per_2", "reject", "use ls")
        await client.answer_question("que_1", [["A", "B"], []])
        await client.reject_question("que_2")
    assert [(urlsplit(asked.path).path, asked.message) for asked in server.asked] == [
        ("/permission/per_1/reply", {"reply": "once"}),
        ("/permission/per_2/reply", {"reply": "reject", "message": "use ls"}),
        ("/question/que_1/reply", {"answers": [["A", "B"], []]}),
        ("/question/que_2/reject", {}),
    ]


# ---- what is answered


async def test_f07_fields_of_other_versions_are_ignored_and_those_that_lack_are_empty() -> None:
    body = [
        {"info": {"id": "m1", "role": "assistant", "new": {"x": 1}}, "parts": [{"type": "hologram", "beam": [1]}]},
        {"info": {"id": "m2", "role": "user", "time": {"created": 5.5}}},
    ]
    async with talking(body) as (client, _):
        first, second = await client.messages(SESSION)
    assert (first.info.time.completed, first.parts[0].type, first.text) == (None, "hologram", "")
    assert (second.info.time.created, second.parts) == (5.5, ())


async def test_sessions_of_other_folders_are_none_of_ours() -> None:
    body = [{"id": "ses_1", "directory": str(HERE)}, {"id": "ses_2", "directory": "/elsewhere"}]
    async with talking(body) as (client, _):
        assert [one.id for one in await client.sessions()] == ["ses_1"]


@pytest.mark.parametrize("id_", ["ses_2", "nix", "ses_", "../config", "ses_1?directory=/", "", "ses_ü"])
async def test_f06_a_session_of_another_folder_or_with_a_malformed_id_is_never_reached(id_: str) -> None:
    async with talking(True) as (client, server):
        for use in (client.prompt(id_, "x"), client.abort(id_), client.messages(id_), client.delete_session(id_)):
            with pytest.raises(RookeryError) as caught:
                await use
            assert (caught.value.code, id_ in caught.value.message) == ("session-not-found", True)
    assert {(asked.method, urlsplit(asked.path).path) for asked in server.asked} <= {("GET", "/session/ses_2")}


@pytest.mark.parametrize("id_", ["x", "per_", "per_1/../..", "ses_1"])
async def test_an_ask_of_no_form_is_refused_before_it_is_sent(id_: str) -> None:
    async with talking(True) as (client, server):
        with pytest.raises(RookeryError) as caught:
            await client.answer_permission(id_, "once")
    assert (caught.value.code, server.asked) == ("ask-not-found", [])


async def test_a_model_without_a_provider_is_refused_before_it_is_sent() -> None:
    async with talking(b"", 204) as (client, server):
        with pytest.raises(RookeryError) as caught:
            await client.prompt(SESSION, "x", model="gpt")
    assert (caught.value.code, caught.value.remedy) == ("invalid-input", "write it as provider/model")
    assert [asked.method for asked in server.asked] == ["GET"]


# ---- refusals

UNKNOWN = {"name": "UnknownError", "data": {"message": "Unexpected server error.", "ref": "err_1"}}


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (404, {"name": "NotFoundError", "data": {"message": "Session not found: ses_1"}}, "session-not-found", "ses_1"),
        (404, {"name": "NotFoundError"}, "session-not-found", "'ses_1'"),
        (400, {"name": "BadRequest", "data": {"message": "Expected array"}}, "invalid-input", "Expected array"),
        (409, {"_tag": "SessionBusyError", "message": "Session is busy"}, "invalid-input", "Session is busy"),
        (500, UNKNOWN, "agent-unavailable", "Unexpected server error."),
        (502, b"<html>bad gateway</html>", "agent-unavailable", "bad gateway"),
        (503, b"", "agent-unavailable", "HTTP 503"),
        (401, b"", "agent-unavailable", "password"),
        (200, b"<html>", "agent-unavailable", "an unexpected response"),
        (200, {"id": 5}, "agent-unavailable", "an unexpected response"),
    ],
)
async def test_a_refusal_has_a_code_and_the_words_of_opencode(status: int, body: Any, code: str, words: str) -> None:
    async with talking(body, status) as (client, _):
        with pytest.raises(RookeryError) as caught:
            await client.messages(SESSION)
    assert caught.value.code == code
    assert words in caught.value.message
    assert caught.value.remedy or code == "invalid-input"


async def test_an_ask_that_is_not_open_any_more_is_told_as_such() -> None:
    body = {"_tag": "PermissionNotFoundError", "message": "Permission request not found: per_1"}
    async with talking(body, 404) as (client, _):
        with pytest.raises(RookeryError) as caught:
            await client.answer_permission("per_1", "once")
    assert caught.value.code == "invalid-input"
    assert "not found: per_1" in caught.value.message


async def test_d15_a_server_that_does_not_answer_is_given_up_after_a_time() -> None:
    async def silent(asked: HttpRequest, out: HttpResponder) -> None:
        await out.left()

    async with ScriptedHttpServer(silent) as server, HttpClient() as http:
        client = AgentClient(http, f"http://127.0.0.1:{server.port}", HERE, "x")
        with pytest.raises(RookeryError) as caught:
            await client.health(seconds=0.05)
    assert caught.value.code == "timeout"
    assert "/global/health" in caught.value.message


async def test_d15_a_server_that_is_gone_is_told_with_what_to_do() -> None:
    async with ScriptedHttpServer(Answers({})) as server, HttpClient() as http:
        client = AgentClient(http, f"http://127.0.0.1:{server.port}", HERE, "x")
        await client.statuses()
        await server.stop()
        for _ in range(2):
            with pytest.raises(RookeryError) as caught:
                await client.statuses()
            assert caught.value.code == "agent-unavailable"
            assert "rookery agent logs" in caught.value.remedy
        await server.start()


async def test_an_answer_that_breaks_off_is_no_answer() -> None:
    async def half(asked: HttpRequest, out: HttpResponder) -> None:
        await out.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        out.reset()

    async with ScriptedHttpServer(half) as server, HttpClient() as http:
        client = AgentClient(http, f"http://127.0.0.1:{server.port}", HERE, "x")
        with pytest.raises(RookeryError) as caught:
            await client.statuses()
    assert caught.value.code == "agent-unavailable"
