"""Many callers on one connection: unsolicited messages of a server reach only the caller they belong to."""

import asyncio
import base64
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.client import questions
from rookery.wire.client.client import Timeouts
from rookery.wire.client.http import HttpTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.protocol.messages import Params, WireError
from rookery.wire.protocol.revisions import (
    META,
    META_CAPABILITIES,
    META_CLIENT,
    META_LOG_LEVEL,
    META_SERVER,
    META_VERSION,
)
from tests.support.mcp.client import (
    IDENTITY,
    LIMIT,
    CallRecorder,
    ConnectedClient,
    HandshakeHandler,
    HttpRequest,
    HttpResponder,
    ScriptedHttpServer,
    connect,
    odd,
    read,
    text,
    within_limit,
)
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

ROOTS = {"id": "q", "method": "roots/list"}
LOG = {"method": "notifications/message", "params": {"level": "info", "data": "a log"}}
SEEN = {"method": "notifications/seen"}


def named(name: str) -> Callable[[str, Params], Coroutine[Any, Any, dict[str, Any]]]:
    async def answer(method: str, params: Params) -> dict[str, Any]:
        return {"roots": [], "by": name}

    return answer


@asynccontextmanager
async def hanging(met: ConnectedClient, *ears: CallRecorder | None) -> AsyncGenerator[None]:
    """While a call of each of them runs."""
    calls = [asyncio.create_task(met.client.call_tool("hang", {}, ear)) for ear in ears]
    await met.heard.wait_for("notifications/begun", len(ears))
    try:
        yield
    finally:
        for call in calls:
            call.cancel()
        await within_limit(asyncio.wait(calls))


async def say(met: ConnectedClient, *messages: Any, already: int = 0) -> None:
    """Let the server say this, outside of any call that it would name."""
    await met.client.notify("notifications/say", {"messages": [*messages, SEEN]})
    await met.heard.wait_for("notifications/seen", already + 1)


async def ask(met: ConnectedClient, ear: CallRecorder, *messages: Any, answers: int = 1) -> Any:
    """The answers that the server gets while a call of this listener is in flight."""
    return text(await within_limit(met.client.call_tool("ask", {"questions": messages, "answers": answers}, ear)))


# ---- over one pipe


async def test_a_question_and_a_log_reach_the_listener_of_the_only_call_in_flight() -> None:
    ear = CallRecorder(answerer=named("one"))
    async with connect(odd(), known="handshake") as met:
        assert (await ask(met, ear, LOG, ROOTS))[0]["result"]["by"] == "one"
        assert (await ear.heard.wait_for("notifications/message"))["data"] == "a log"
        assert (ear.asked, [one.method for one in met.heard.all], met.client.unassigned) == (["roots/list"], [], {})


async def test_calls_of_one_and_the_same_client_share_what_is_not_named() -> None:
    other, ear = CallRecorder("one"), CallRecorder("one")
    async with connect(odd(), known="handshake") as met, hanging(met, other):
        assert "result" in (await ask(met, ear, ROOTS))[0]
        assert [*other.asked, *ear.asked] == ["roots/list"]


async def test_with_several_callers_questions_are_refused_and_logs_dropped_and_counted() -> None:
    one, two = CallRecorder("one"), CallRecorder("two")
    async with connect(odd(), known="handshake") as met:
        async with hanging(met, two):
            (refused,) = await ask(met, one, LOG, LOG, ROOTS)
            assert "several clients have calls in flight" in refused["error"]["message"]
            assert met.client.unassigned == {"roots/list": 1, "notifications/message": 2}
            assert "notifications/message 2 times, roots/list 1 times" in met.client.diagnosis()
        assert not [*one.asked, *two.asked, *one.heard.all, *two.heard.all]
        assert "notifications/message" not in [heard.method for heard in met.heard.all]
        assert "result" in (await ask(met, one, ROOTS, answers=2))[1]


async def test_a_call_without_a_listener_is_a_client_of_its_own() -> None:
    ear = CallRecorder()
    async with connect(odd(), known="handshake") as met, hanging(met, None):
        assert "error" in (await ask(met, ear, ROOTS))[0]
        assert ear.asked == []


async def test_a_list_that_is_being_fetched_is_nobodys_call() -> None:
    ear = CallRecorder()
    async with connect(odd("--list", "silent"), known="handshake") as met:
        listing = asyncio.create_task(met.client.list_all("tools/list", "tools"))
        assert "result" in (await ask(met, ear, ROOTS))[0]
        listing.cancel()
        await within_limit(asyncio.wait([listing]))
        assert ear.asked == ["roots/list"]


async def test_while_no_call_is_in_flight_the_connection_itself_answers_and_hears() -> None:
    async with connect(odd(), known="handshake", answerer=named("nobody")) as met:
        await say(met, LOG, ROOTS)
        assert (await met.heard.wait_for("notifications/message"))["data"] == "a log"
        assert (await met.heard.wait_for("notifications/answered"))["result"]["by"] == "nobody"


async def test_what_concerns_everybody_does_not_go_to_a_call() -> None:
    ear = CallRecorder()
    changes = [
        {"method": f"notifications/{kind}"}
        for kind in ("tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated")
    ]
    async with connect(odd(), known="handshake") as met:
        assert await ask(met, ear, *changes, {"id": 1, "method": "ping"}) == [{"id": 1, "result": {}}]
        assert [one.method for one in met.heard.all] == [one["method"] for one in changes]
        assert ear.heard.all == []


async def test_a_failing_listener_does_not_end_reading_and_the_server_gets_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(CallRecorder):
        def on_notification(self, message: Any) -> None:
            raise ValueError("broken")

    async def refuse(method: str, params: Params) -> dict[str, Any]:
        if method == "roots/list":
            raise WireError(-32000, "not you")
        raise ValueError("broken")

    async with connect(odd(), known="handshake") as met:
        ear = Broken(answerer=refuse)
        found = await ask(met, ear, LOG, ROOTS, {"id": 2, "method": "elicitation/create"}, answers=2)
        assert {one["id"]: one["error"]["message"] for one in found} == {
            "q": "not you",
            2: "the question could not be answered",
        }
        assert [record.exc_info is not None for record in caplog.records] == [True, True]
        caplog.clear()


async def test_an_answer_may_be_the_bytes_of_another_client() -> None:
    async def relay(method: str, params: Params) -> Raw:
        return Raw(b'{"roots": [], "x": 12345678901234567890}')

    async with connect(odd(), known="handshake") as met:
        (answered,) = await ask(met, CallRecorder(answerer=relay), ROOTS)
        assert answered["result"] == {"roots": [], "x": 12345678901234567890}


# ---- time


@requirement("wire.client.timeouts")
async def test_while_a_question_waits_for_its_answer_no_time_runs() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def think(method: str, params: Params) -> dict[str, Any]:
        begun.set()
        await go.wait()
        return {"roots": []}

    ear = CallRecorder(answerer=think)
    async with connect(odd(), known="handshake") as met:
        running = met.client.in_flight.requests
        async with hanging(met, CallRecorder("one")):
            (other,) = running.values()
            asking = asyncio.create_task(ask(met, ear, ROOTS, {**ROOTS, "id": "r"}, answers=2))
            await within_limit(begun.wait())
            (one,) = [found for found in running.values() if found is not other]
            assert (one.due, other.due) == (math.inf, math.inf)
            await met.client.notify("notifications/step", {})
            await say(met)
            assert other.due == math.inf, "progress must not start it again"
            now = asyncio.get_running_loop().time()
            go.set()
            assert len(await within_limit(asking)) == 2
            assert now + LIMIT <= other.due < math.inf


async def never(method: str, params: Params) -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


@requirement("wire.client.timeouts")
async def test_a_question_that_nobody_answers_is_given_up_and_the_time_of_its_call_goes_on() -> None:
    limits = Timeouts(startup=LIMIT, catalog=LIMIT, execution=LIMIT, question=0.05)
    async with connect(odd(), known="handshake", timeouts=limits) as met:
        (answer,) = await ask(met, CallRecorder(answerer=never), ROOTS)
        assert answer["error"]["message"] == "roots/list was not answered within 0.05 s"
        calling = asyncio.create_task(met.client.call_tool("hang", {}, CallRecorder(answerer=never)))
        await met.heard.wait_for("notifications/begun")
        await say(met, ROOTS)
        (running,) = met.client.in_flight.requests.values()
        async with asyncio.timeout(LIMIT):
            while running.due == math.inf:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.001)
        running.set_limit(0)
        with pytest.raises(RookeryError, match="execution timeout"):
            await within_limit(calling)


@requirement("wire.client.timeouts", "wire.cancel.progress")
async def test_a_call_without_a_listener_has_a_progress_token_too() -> None:
    async with connect(odd(), known="handshake") as met:
        assert list(text(await within_limit(met.client.call_tool("meta", {})))) == ["progressToken"]
        async with hanging(met, None):
            await met.client.notify("notifications/step", {})
            await say(met)
            assert met.client.strays == 0


async def test_questions_beyond_a_number_are_refused_and_those_far_beyond_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "MAX_QUESTIONS", 3)
    go = asyncio.Event()

    async def think(method: str, params: Params) -> dict[str, Any]:
        await go.wait()
        return {"roots": []}

    # In one piece, so that all of them are there before the first is answered.
    asked = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"roots/list"}\n' % number for number in range(8))
    async with connect(odd(), known="handshake") as met:
        noise = {"bytes": base64.b64encode(asked).decode()}
        assert (
            text(await within_limit(met.client.call_tool("noise", noise, CallRecorder(answerer=think))))
            == "after the noise"
        )
        refused = [await met.heard.wait_for("notifications/answered", count) for count in (1, 2, 3)]
        assert [(one["id"], "error" in one) for one in refused] == [(3, True), (4, True), (5, True)]
        assert "more than 3 concurrent questions" in refused[0]["error"]["message"]
        go.set()
        answered = [await met.heard.wait_for("notifications/answered", count) for count in (4, 5, 6)]
        assert [(one["id"], "error" in one) for one in answered] == [(0, False), (1, False), (2, False)]
        assert met.client.strays == 2


@pytest.mark.parametrize("taken_back", [False, True])
async def test_a_question_does_not_long_outlive_the_calls_that_it_may_have_been_about(
    taken_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_GRACE_SECONDS", 0.05 if not taken_back else LIMIT)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def think(method: str, params: Params) -> dict[str, Any]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    async with connect(odd(), known="handshake") as met:
        async with hanging(met, CallRecorder(answerer=think)):
            await say(met, ROOTS)
            await within_limit(begun.wait())
            assert not ended.is_set()
        if taken_back:
            await say(met, {"method": "notifications/cancelled", "params": {"requestId": "q"}}, already=1)
        await within_limit(ended.wait())
        if taken_back:
            await say(met, already=2)
            assert "answer q" not in text(await within_limit(met.client.call_tool("told", {})))
        else:
            answered = await met.heard.wait_for("notifications/answered")
            assert "the call that roots/list belongs to has ended" in answered["error"]["message"]


# ---- over Streamable HTTP, where each call has a stream of its own


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient() as made:
        yield made


async def test_what_comes_on_the_stream_of_a_call_belongs_to_that_call(http: HttpClient) -> None:
    together = asyncio.Barrier(2)
    answered: dict[str, asyncio.Event] = {"one": asyncio.Event(), "two": asyncio.Event()}

    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        name = asked.message["params"]["arguments"]["name"]
        await together.wait()
        await out.stream()
        for message in ({"id": name, "method": "roots/list"}, {**LOG, "params": {"data": name}}, SEEN):
            await out.event({"jsonrpc": "2.0", **message})
        await within_limit(answered[name].wait())
        await out.event(asked.result({"content": [{"type": "text", "text": f'"{name}"'}]}))
        await out.end()

    proper = HandshakeHandler(on_call)

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.what == "answer":
            answered[asked.message["id"]].set()
        await proper(asked, out)

    async with (
        ScriptedHttpServer(handler) as server,
        connect(HttpTransport(http, server.url), known="handshake") as met,
    ):
        ears = {name: CallRecorder(name, named(name)) for name in ("one", "two")}
        calls = [met.client.call_tool("x", {"name": name}, ear) for name, ear in ears.items()]
        assert [text(result) for result in await within_limit(asyncio.gather(*calls))] == ["one", "two"]
        assert {one.message["id"]: one.message["result"]["by"] for one in server.of("answer")} == {
            "one": "one",
            "two": "two",
        }
        for name, ear in ears.items():
            assert [one.method for one in ear.heard.all] == ["notifications/message", "notifications/seen"]
            assert read(ear.heard.all[0].params)["data"] == name
        assert (met.heard.all, met.client.unassigned) == ([], {})


async def test_a_question_that_came_on_the_stream_of_a_call_ends_with_that_call(http: HttpClient) -> None:
    async def never(method: str, params: Params) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        await out.event(asked.result({"content": [{"type": "text", "text": "1"}]}))
        await out.end()

    async with (
        ScriptedHttpServer(HandshakeHandler(on_call)) as server,
        connect(HttpTransport(http, server.url), known="handshake") as met,
    ):
        assert text(await within_limit(met.client.call_tool("x", {}, CallRecorder(answerer=never)))) == 1
        assert "has ended" in (await server.wait_for("answer")).message["error"]["message"]


# ---- the modern era


async def modern(asked: HttpRequest, out: HttpResponder) -> None:
    if asked.what == "server/discover":
        about: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        await out.json(asked.result({**about, "_meta": {META_SERVER: {"name": "modern"}}}))
    elif "inputResponses" in asked.message["params"]:
        await out.json(asked.result({"resultType": "complete", "given": asked.message["params"]}))
    else:
        asks: Any = {"a": {"method": "roots/list", "params": {}}}
        result: dict[str, Any] = {"resultType": "input_required", "inputRequests": asks, "requestState": "s3al"}
        await out.json(asked.result(result))


async def test_a_question_in_a_result_is_answered_by_the_listener_of_the_call(http: HttpClient) -> None:
    async with ScriptedHttpServer(modern) as server, connect(HttpTransport(http, server.url)) as met:
        given = read(await within_limit(met.client.call_tool("x", {}, CallRecorder(answerer=named("one")))))["given"]
        assert (given["inputResponses"], given["requestState"]) == ({"a": {"roots": [], "by": "one"}}, "s3al")


async def test_a_question_in_a_result_that_nobody_answers_ends_the_call(http: HttpClient) -> None:
    limits = Timeouts(startup=LIMIT, catalog=LIMIT, execution=LIMIT, question=0.05)
    async with ScriptedHttpServer(modern) as server, connect(HttpTransport(http, server.url), timeouts=limits) as met:
        with pytest.raises(WireError, match=r"roots/list was not answered within 0\.05 s"):
            await within_limit(met.client.call_tool("x", {}, CallRecorder(answerer=never)))


async def test_without_rounds_an_input_required_result_is_returned_for_a_later_answer(
    http: HttpClient,
) -> None:
    async with ScriptedHttpServer(modern) as server, connect(HttpTransport(http, server.url)) as met:
        ear = CallRecorder()
        params = {"name": "x", "arguments": Raw(b"{}")}
        found = read(await within_limit(met.client.call("tools/call", params, ear, rounds=False)))
        assert (found["resultType"], found["requestState"], ear.asked) == ("input_required", "s3al", [])
        more = {"inputResponses": Raw(b'{"a": {"roots": []}}'), "requestState": Raw(b'"s3al"')}
        found = read(await within_limit(met.client.call("tools/call", {**params, **more}, ear, rounds=False)))
        assert found["given"]["requestState"] == "s3al"


@pytest.mark.parametrize("raw", [False, True])
async def test_a_call_says_what_its_own_caller_can_do_and_the_rest_of_its_meta_passes(
    raw: bool, http: HttpClient
) -> None:
    meta: dict[str, Any] = {
        "traceparent": Raw(b'"00-1-2-00"'),
        META_LOG_LEVEL: "debug",
        "progressToken": "theirs",
        META_VERSION: "1999-01-01",
        META_CAPABILITIES: {"theirs": {}},
        META_CLIENT: {"name": "theirs"},
    }
    written = b'{"traceparent": "00-1-2-00", "%blogLevel": "debug", "progressToken": "theirs"}' % META.encode()
    params: dict[str, Any] = {"name": Raw(b'"x"'), "_meta": Raw(written) if raw else meta}
    async with ScriptedHttpServer(modern) as server, connect(HttpTransport(http, server.url)) as met:
        await within_limit(
            met.client.call("tools/call", params, CallRecorder(), rounds=False, capabilities={"sampling": {}})
        )
        asked = server.asked[-1]
        assert asked.headers["mcp-name"] == "x"
        assert asked.message["params"]["_meta"] == {
            "traceparent": "00-1-2-00",
            META_LOG_LEVEL: "debug",
            "progressToken": asked.message["id"],
            META_VERSION: "2026-07-28",
            META_CAPABILITIES: {"sampling": {}},
            META_CLIENT: IDENTITY.info,
        }


async def test_a_handshake_server_is_not_told_of_another_era() -> None:
    async with connect(odd(), known="handshake") as met:
        meta: dict[str, Any] = {"traceparent": "t", META_VERSION: "2026-07-28", META_CAPABILITIES: {}}
        found = text(
            await within_limit(met.client.call("tools/call", {"name": "meta", "_meta": meta}, capabilities={"a": 1}))
        )
        assert sorted(found) == ["progressToken", "traceparent"]


# ---- lists


@requirement("wire.client.timeouts")
async def test_the_catalog_time_out_is_for_all_pages_together() -> None:
    limits = Timeouts(startup=LIMIT, catalog=0.02, execution=LIMIT)
    async with connect(odd("--list", "endless"), timeouts=limits, known="handshake") as met:
        with pytest.raises(Exception, match=r"tools/list: .*catalog timeout of 0\.02 s"):
            await within_limit(met.client.list_all("tools/list", "tools"))
        assert text(await within_limit(met.client.call_tool("told", {}))).count("tools/list") < 1000
