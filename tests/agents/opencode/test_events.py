"""OpenCode's events: parsing, and a stream that is cut at any byte, falls silent or ends."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rookery.agents.opencode.api import ApiConnection
from rookery.agents.opencode.events import (
    AskAnswered,
    AskOpened,
    SessionDeleted,
    SessionStatusChanged,
    SessionUpdated,
    TurnFailed,
    decode_event,
)
from rookery.agents.opencode.records import Permission, Question, Session, SessionStatus
from rookery.agents.opencode.stream import EventStream, open_event_stream
from rookery.system.errors import RookeryError
from rookery.wire.http_client.client import HttpClient
from tests.support.mcp import client as clients
from tests.support.mcp.client import HttpResponder, ScriptedHttpServer, within_limit

pytestmark = pytest.mark.anyio

CONNECTED: dict[str, Any] = {"id": "evt_1", "type": "server.connected", "properties": {}}
BEAT: dict[str, Any] = {"type": "server.heartbeat", "properties": {}}


def status(session: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"type": "session.status", "properties": {"sessionID": session, "status": {"type": type_, **more}}}


def event(type_: str, **properties: Any) -> bytes:
    return json.dumps({"id": "evt_1", "type": type_, "properties": properties}, ensure_ascii=False).encode()


# ---- one event


def test_events_about_sessions_are_decoded() -> None:
    info = {
        "id": "s",
        "directory": "/日本",
        "parentID": "p",
        "title": "t",
        "time": {"created": 1, "updated": 2},
        "cost": 0,
    }
    for type_ in ("session.created", "session.updated"):
        _, seen = decode_event(event(type_, sessionID="s", info=info))
        assert isinstance(seen, SessionUpdated)
        assert (seen.session.parent, seen.session.directory, seen.session.time.updated) == ("p", "/日本", 2)
    assert decode_event(event("session.deleted", sessionID="s", info=info))[1] == SessionDeleted("s")
    assert decode_event(json.dumps(status("s", "busy")).encode())[1] == SessionStatusChanged("s", SessionStatus("busy"))
    retry = status("s", "retry", attempt=5, message="overloaded", next=1794802193341)
    assert decode_event(json.dumps(retry).encode())[1] == SessionStatusChanged(
        "s", SessionStatus("retry", 5, "overloaded", 1794802193341)
    )
    assert decode_event(event("session.idle", sessionID="s"))[1] == SessionStatusChanged("s", SessionStatus("idle"))
    _, failed = decode_event(
        event("session.error", sessionID="s", error={"name": "APIError", "data": {"message": "no"}})
    )
    assert isinstance(failed, TurnFailed)
    assert (failed.session, failed.error.message) == ("s", "no")
    _, failed = decode_event(event("session.error", error={"name": "UnknownError", "data": {}}))
    assert isinstance(failed, TurnFailed)
    assert (failed.session, failed.error.message) == ("", "UnknownError")


def test_events_about_asks_are_decoded() -> None:
    tool = {"messageID": "m", "callID": "c"}
    _, found = decode_event(
        event("permission.asked", id="p", sessionID="s", permission="bash", patterns=["ls"], tool=tool)
    )
    assert isinstance(found, AskOpened) and isinstance(found.ask, Permission) and found.ask.cause is not None
    assert (found.ask.session, found.ask.text, found.ask.cause.message) == ("s", "bash: ls", "m")
    asked = {"question": "Which?", "options": [{"label": "A", "description": "a"}]}
    _, found = decode_event(event("question.asked", id="q", sessionID="s", questions=[asked]))
    assert isinstance(found, AskOpened) and isinstance(found.ask, Question)
    assert found.ask.questions[0].options[0].label == "A"
    assert decode_event(event("permission.replied", sessionID="s", requestID="p", reply="once"))[1] == AskAnswered(
        "s", "p"
    )
    for type_ in ("question.replied", "question.rejected"):
        assert decode_event(event(type_, sessionID="s", requestID="q"))[1] == AskAnswered("s", "q")


@pytest.mark.parametrize("type_", ["plugin.added", "message.part.delta", "server.heartbeat", "of.another.version"])
def test_noise_is_dropped(type_: str) -> None:
    assert decode_event(event(type_, sessionID="s")) == (type_, None)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"type": 5}'])
def test_what_is_no_event_is_dropped(data: bytes) -> None:
    assert decode_event(data) == ("", None)


def test_f07_an_event_of_another_form_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert decode_event(event("session.status", sessionID="s", status="busy")) == ("session.status", None)
    assert "session.status has an unexpected form" in caplog.text


# ---- a stream


@asynccontextmanager
async def streaming(handler: Any, silence: float = 30.0) -> AsyncGenerator[tuple[EventStream, ScriptedHttpServer]]:
    async with ScriptedHttpServer(handler) as server, HttpClient() as http:
        link = ApiConnection(http, f"http://127.0.0.1:{server.port}", "/work/日本", "geheim")
        async with open_event_stream(link, silence) as stream:
            yield stream, server


async def ended(stream: EventStream) -> tuple[list[Any], RookeryError]:
    """What came until the end, and why it ended."""
    found = list[Any]()
    with pytest.raises(RookeryError) as caught:
        await within_limit(stream.listen(found.extend))
    return found, caught.value


async def come(stream: EventStream, count: int) -> list[Any]:
    """The first so many."""
    found = list[Any]()

    def heard(events: Sequence[Any]) -> None:
        found.extend(events)
        if len(found) >= count:
            raise EOFError

    with pytest.raises(EOFError):
        await within_limit(stream.listen(heard))
    return found


async def test_events_come_through_however_the_stream_is_cut_into_pieces() -> None:
    wanted = [SessionStatusChanged(f"ses_{one}日本", SessionStatus("busy")) for one in range(20)]
    data = "".join(
        f"data: {json.dumps(status(one.session, 'busy'), ensure_ascii=False)}\n\n" for one in wanted
    ).encode()

    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(CONNECTED)
        for at in range(0, len(data), 7):
            await out.chunk(data[at : at + 7])
        await out.left()

    async with streaming(handler) as (stream, server):
        assert await come(stream, len(wanted)) == wanted
    assert server.asked[0].path == "/event?directory=%2Fwork%2F%E6%97%A5%E6%9C%AC"


async def test_what_came_before_the_end_is_delivered_and_then_the_reason() -> None:
    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(CONNECTED)
        await out.event(status("ses_1", "idle"))
        await out.end()

    async with streaming(handler) as (stream, _):
        found, error = await ended(stream)
        assert (found, error.code) == ([SessionStatusChanged("ses_1", SessionStatus("idle"))], "agent-unavailable")


@pytest.mark.parametrize("fault", [ValueError, TimeoutError, KeyError])
async def test_a_fault_of_whoever_listens_is_not_taken_for_one_of_the_connection(fault: type[Exception]) -> None:
    listening = asyncio.Event()

    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(CONNECTED)
        await listening.wait()
        await out.event(status("ses_1", "idle"))
        await out.left()

    def heard(events: Sequence[Any]) -> None:
        listening.set()
        if events:
            raise fault("ours")

    async with streaming(handler) as (stream, _):
        with pytest.raises(fault, match="ours"):
            await within_limit(stream.listen(heard))


async def test_f02_a_connection_that_is_reset_ends_the_stream() -> None:
    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(CONNECTED)
        out.reset()

    async with streaming(handler) as (stream, _):
        assert (await ended(stream))[1].code == "agent-unavailable"


async def test_d15_a_stream_without_a_heartbeat_is_dead() -> None:
    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(CONNECTED)
        await out.left()

    async with streaming(handler, silence=0.1) as (stream, _):
        _, error = await ended(stream)
    assert (error.code, error.message) == ("timeout", "the agent sent nothing for 0.1 s")


async def test_a_stream_in_which_only_the_heart_beats_lives_on() -> None:
    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(CONNECTED)
        for _ in range(25):
            await asyncio.sleep(0.1)
            await out.event(BEAT)
        await out.event(status("ses_1", "idle"))
        await out.left()

    async with streaming(handler, silence=2.0) as (stream, _):
        assert await come(stream, 1) == [SessionStatusChanged("ses_1", SessionStatus("idle"))]


@pytest.mark.parametrize(("status_", "kind"), [(401, "text/plain"), (500, "text/event-stream"), (200, "text/html")])
async def test_what_is_no_stream_is_refused(status_: int, kind: str) -> None:
    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.answer(status_, b"<html>", kind)

    with pytest.raises(RookeryError) as caught:
        async with streaming(handler):
            raise AssertionError("there is nothing to subscribe to")
    assert caught.value.code == "agent-unavailable"


@pytest.mark.parametrize("headed", [True, False])
async def test_d15_a_stream_that_never_begins_is_given_up(headed: bool) -> None:
    """Before OpenCode says that it listens it takes requests and never answers them."""

    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        if headed:
            await out.stream()
        await out.left()

    with pytest.raises(RookeryError) as caught:
        async with streaming(handler, silence=0.1):
            raise AssertionError("nothing was said")
    assert caught.value.code == "timeout"


async def test_whoever_leaves_ends_the_connection() -> None:
    gone = asyncio.Event()

    async def handler(asked: clients.HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(CONNECTED)
        await out.left()
        gone.set()

    async with ScriptedHttpServer(handler) as server, HttpClient() as http:
        async with open_event_stream(ApiConnection(http, f"http://127.0.0.1:{server.port}", "/x", "y")):
            assert not gone.is_set()
        await within_limit(gone.wait())
        assert not any(task.get_name().startswith("agent events") for task in asyncio.all_tasks())


def test_a_session_needs_no_more_than_its_id() -> None:
    assert decode_event(event("session.created", info={"id": "s"}))[1] == SessionUpdated(Session("s"))
