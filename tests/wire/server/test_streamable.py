"""Streamable HTTP in raw requests: streams, sessions, and clients that disconnect."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from rookery.wire.http.auth import ANYBODY, OWNER, Headers, Principal
from rookery.wire.http.pool import HttpLimits
from rookery.wire.protocol import revisions
from rookery.wire.protocol.provider import Call, report_log
from rookery.wire.server.endpoint import Endpoint
from rookery.wire.server.session import Sessions
from tests.conformance.busy import WATCHED, Busy
from tests.conformance.fixture import Result, text
from tests.support.clock import SetClock
from tests.support.http.listener import (
    LIMIT,
    Client,
    RawResponse,
    RunningListener,
    request,
    start_listener,
    within_limit,
)
from tests.support.mcp.line_client import enveloped, hello, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio
BOTH = "Accept: application/json, text/event-stream"


class Odd(Busy):
    def __init__(self) -> None:
        super().__init__()
        self.flooded = asyncio.Event()
        for tool in (self.log_an_id, self.pretty, self.flood):
            self._tools[tool.__name__] = tool

    async def flood(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Says more than anybody reads, until it is ended."""
        try:
            while True:
                await report_log(call, "info", "x" * 100_000)
        finally:
            self.flooded.set()

    async def log_an_id(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Logs something that has an id."""
        await report_log(call, "info", {"id": 5})
        return text("logged")

    async def pretty(self, call: Call, given: Mapping[str, Any]) -> Any:
        """Answers, after a word, in several lines."""
        await report_log(call, "info", "a word")
        return Raw(b'{\n  "content": [\r\n]\n}')


def authenticate(method: str, path: str, headers: Headers) -> Principal:
    return ANYBODY if (b"x-who", b"anybody") in headers else OWNER


class Talk:
    """One endpoint and its clients."""

    def __init__(self, endpoint: Endpoint, provider: Odd, site: RunningListener) -> None:
        self.endpoint = endpoint
        self.provider = provider
        self.site = site

    async def post(self, body: Any, *headers: str) -> RawResponse:
        return await self.site.ask(posted(body, *headers))

    async def session(self, revision: str = revisions.LATEST_HANDSHAKE) -> str:
        """A new session; the header that names it."""
        answer = await self.post(hello(revision), BOTH)
        assert answer.json()["result"]["protocolVersion"] == revision
        return f"Mcp-Session-Id: {answer.headers['mcp-session-id']}"

    async def count_cancelled(self, least: int = 1) -> str:
        params = {"name": "count_cancelled", "arguments": {"least": least}}
        answer = await self.post(message("tools/call", params, 1), await self.session())
        return answer.json()["result"]["content"][0]["text"]


def posted(body: Any, *headers: str) -> bytes:
    return request("POST", "/mcp", *headers, body=body if isinstance(body, bytes) else json.dumps(body).encode())


def modern(method: str, params: dict[str, Any], *headers: str, **meta: Any) -> bytes:
    """A modern request with the headers that belong to it."""
    mirrored = [f"Mcp-Protocol-Version: {revisions.LATEST}", f"Mcp-Method: {method}"]
    mirrored += [f"Mcp-Name: {params['name']}"] if "name" in params else []
    given = {header.partition(":")[0] for header in headers}
    kept = [header for header in mirrored if header.partition(":")[0] not in given]
    return posted(message(method, enveloped(params, **meta), 1), *kept, *headers)


@asynccontextmanager
async def talking(limits: HttpLimits | None = None, **more: Any) -> AsyncGenerator[Talk]:
    provider = Odd()
    endpoint = Endpoint(provider, sessions=Sessions(provider, **more))
    async with start_listener(endpoint, limits, judge_of=lambda port: authenticate) as site:
        try:
            yield Talk(endpoint, provider, site)
        finally:
            endpoint.close()


def messages_in(body: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in body.decode().split("\r\n") if line.startswith("data: {")]


def ids_in(body: bytes) -> list[str]:
    return [line[4:] for line in body.decode().split("\r\n") if line.startswith("id: ")]


def tool(name: str, id_: int = 1, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": arguments, "_meta": {"progressToken": 1}}, id_)


async def begun(client: Client, sent: bytes) -> None:
    """Until the call has said that it runs."""
    await client.send(sent)
    await within_limit(client.reader.readuntil(b"notifications/progress"))


# ---- the answer


@pytest.mark.parametrize("era", ["handshake", "modern"])
@requirement("wire.http.answer", "wire.jsonrpc.answers")
async def test_a_quiet_call_is_answered_in_json_and_one_with_news_as_a_stream(era: str) -> None:
    async with talking() as talk:

        async def call(name: str) -> RawResponse:
            if era == "handshake":
                return await talk.post(tool(name), session, BOTH)
            return await talk.site.ask(modern("tools/call", {"name": name}, BOTH, progressToken=1))

        session = await talk.session()
        quiet, telling = await call("test_simple_text"), await call("test_tool_with_progress")
        assert quiet.headers["content-type"] == "application/json"
        assert quiet.json()["result"]["content"][0]["type"] == "text"
        assert telling.headers["content-type"] == "text/event-stream"
        found = messages_in(telling.body)
        assert [each.get("method") for each in found] == ["notifications/progress"] * 3 + [None]
        assert found[-1]["id"] == 1
        assert (await talk.post(message("notifications/initialized"), session)).status == 202


async def test_a_client_that_takes_no_stream_goes_without_the_news() -> None:
    async with talking() as talk:
        session = await talk.session()
        for name in ("test_tool_with_progress", "log_an_id"):
            answer = await talk.post(tool(name), session, "Accept: application/json")
            assert answer.json()["result"]["content"]
        asking = await talk.post(tool("test_elicitation", message="?"), session, "Accept: application/json")
        assert "text/event-stream" in asking.json()["error"]["message"]
        listening = modern("subscriptions/listen", {"notifications": {}}, "Accept: application/json")
        assert (await talk.site.ask(listening)).status == 406


async def test_a_result_in_several_lines_is_one_event() -> None:
    async with talking() as talk:
        answer = await talk.post(tool("pretty"), await talk.session(), BOTH)
        assert messages_in(answer.body)[-1]["result"] == {"content": []}


@requirement("wire.jsonrpc.errors", "wire.limits.messages")
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", -32700, ""),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "\xff"}}', -32700, "utf-8"),
        (b"5", -32600, ""),
        (b"[" + b'{"jsonrpc":"2.0","method":"m"},' * 200 + b'{"jsonrpc":"2.0","method":"m"}]', -32600, "1 and 100"),
        (b'{"a":' * 600 + b"1" + b"}" * 600, -32600, "deeper than 512 levels"),
    ],
    ids=["cut off", "no UTF-8", "no object", "batch", "depth"],
)
async def test_a11_a12_what_is_no_message_is_a_400_that_says_why(body: bytes, code: int, words: str) -> None:
    async with talking() as talk:
        answer = await talk.post(body, BOTH)
        assert (answer.status, answer.json()["error"]["code"], answer.json()["id"]) == (400, code, None)
        assert words in answer.json()["error"]["message"].lower().replace("utf8", "utf-8")


# ---- the modern era


@requirement("wire.modern.discover")
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (modern("tools/list", {}, "Mcp-Method: tools/call"), -32020),
        (modern("tools/call", {"name": "test_simple_text"}, "Mcp-Name: another"), -32020),
        (modern("tools/call", {"name": "test_header_tool"}, "Mcp-Param-Region: here"), -32020),
        (modern("tools/call", {"name": "test_missing_capability"}, **{revisions.META_CAPABILITIES: {}}), -32021),
        (modern("tools/list", {}, "Mcp-Protocol-Version: 2030", **{revisions.META_VERSION: "2030"}), -32022),
        (modern("tools/list", {}, "Mcp-Protocol-Version: 2025-11-25"), -32600),
        (modern("no/such", {}), -32601),
        (modern("tools/call", {"name": "no_such"}), -32602),
    ],
    ids=["method", "name", "argument", "capability", "version", "other era", "no method", "no tool"],
)
async def test_a19_what_a_request_gets_wrong_itself_is_an_http_error_too(sent: bytes, code: int) -> None:
    async with talking() as talk:
        answer = await talk.site.ask(sent)
        assert (answer.status, answer.json()["error"]["code"]) == (404 if code == -32601 else 400, code)


@requirement("wire.limits.messages")
async def test_a_number_that_no_parser_holds_is_an_error_and_not_a_crash() -> None:
    async with talking() as talk:
        sent = modern("tools/call", {"name": "test_header_tool", "arguments": {"region": 123456789}}, BOTH)
        answer = await talk.site.ask(sent.replace(b"123456789", b"1e9999999"))
        assert (answer.status, answer.json()["error"]["code"]) == (400, -32602)


# ---- sessions


@requirement("wire.http.session")
async def test_a_session_has_a_stream_which_can_be_resumed_and_an_end() -> None:
    async with talking() as talk:
        session = await talk.session()
        client = await talk.site.client()
        await client.send(request("GET", "/mcp", session, "Accept: text/event-stream"))
        await within_limit(client.reader.readuntil(b"\r\n\r\n"))
        assert (await talk.site.ask(request("GET", "/mcp", session, "Accept: text/event-stream"))).status == 409
        assert (await talk.post(message("resources/subscribe", {"uri": WATCHED}, 1), session)).json()["result"] == {}
        await talk.post(tool("touch"), session)
        heard = await within_limit(client.reader.readuntil(b"notifications/resources/updated"))
        (last,) = ids_in(heard)
        await talk.post(tool("test_trigger_tool_change"), session)
        client.close()
        again = await talk.site.client()
        await again.send(request("GET", "/mcp", session, "Accept: text/event-stream", f"Last-Event-ID: {last}"))
        rest = await within_limit(again.reader.readuntil(b"list_changed"))
        assert b"resources/updated" not in rest
        assert (await talk.site.ask(request("DELETE", "/mcp", session))).status == 204
        assert (await talk.post(tool("touch"), session)).status == 404
        assert (await talk.post(tool("touch"))).status == 400


async def standing(talk: Talk, session: str, *headers: str) -> Client:
    """A client that reads what belongs to no call."""
    client = await talk.site.client()
    await client.send(request("GET", "/mcp", session, "Accept: text/event-stream", *headers))
    assert b" 200 " in await within_limit(client.reader.readuntil(b"\r\n\r\n"))
    return client


async def hears(client: Client, last: bytes) -> bytes:
    return await within_limit(client.reader.readuntil(last + b'","params":{}}\r\n\r\n'))


async def left(talk: Talk) -> None:
    """Until nobody reads the only session's stream any more."""
    (session,) = talk.endpoint.service.sessions._sessions.values()
    async with asyncio.timeout(LIMIT):
        while session.has_reader:  # noqa: ASYNC110 - nothing tells when a socket's end has been noticed
            await asyncio.sleep(0)


@requirement("wire.http.session")
async def test_a_resumed_stream_brings_what_came_meanwhile_and_what_comes_later() -> None:
    async with talking() as talk:
        session = await talk.session()
        client = await standing(talk, session)
        talk.provider.changes.list_changed("tools")
        (last,) = ids_in(await hears(client, b"tools/list_changed"))
        client.close()
        await left(talk)
        talk.provider.changes.list_changed("prompts")
        client = await standing(talk, session, f"Last-Event-ID: {last}")
        heard = await hears(client, b"prompts/list_changed")
        assert [one["method"] for one in messages_in(heard)] == ["notifications/prompts/list_changed"]
        refused = await talk.site.ask(request("GET", "/mcp", session, "Accept: text/event-stream"))
        assert refused.status == 409
        client.close()
        await left(talk)
        client = await standing(talk, session, f"Last-Event-ID: {ids_in(heard)[-1]}")
        talk.provider.changes.list_changed("resources")
        heard = await hears(client, b"resources/list_changed")
        assert [one["method"] for one in messages_in(heard)] == ["notifications/resources/list_changed"]
        client.close()
        await left(talk)
        talk.provider.changes.list_changed("tools")
        client = await standing(talk, session)
        talk.provider.changes.list_changed("prompts")
        heard = await hears(client, b"prompts/list_changed")
        assert [one["method"] for one in messages_in(heard)] == ["notifications/prompts/list_changed"]


@requirement("wire.http.session")
async def test_a_session_with_an_open_stream_is_not_idle_and_one_without_a_reader_is() -> None:
    clock = SetClock()
    async with talking(idle_seconds=60, clock=clock) as talk:
        session = await talk.session()
        client = await standing(talk, session)
        clock.now = 1_000
        talk.endpoint.service.sessions.expire()
        client.close()
        await left(talk)
        clock.now = 1_059
        assert (await talk.post(message("ping", {}, 2), session)).status == 200
        clock.now = 1_120
        assert (await talk.post(message("ping", {}, 2), session)).status == 404


@pytest.mark.parametrize("number", ["9" * 5_000, "2", "\xb2", "", "-1", "1_0", "x"])
async def test_a11_an_event_that_never_was_is_refused_by_name(number: str) -> None:
    async with talking() as talk:
        session = await talk.session()
        client = await standing(talk, session)
        talk.provider.changes.list_changed("tools")
        (last,) = ids_in(await hears(client, b"tools/list_changed"))
        wrong = f"Last-Event-ID: {last[:-1]}{number}"
        refused = await talk.site.ask(request("GET", "/mcp", session, "Accept: text/event-stream", wrong))
        assert (refused.status, "Last-Event-ID" in refused.json()["error"]["message"]) == (400, True)


async def test_who_comes_back_too_late_is_told_so() -> None:
    async with talking() as talk:
        session = await talk.session()
        client = await standing(talk, session)
        talk.provider.changes.list_changed("tools")
        (last,) = ids_in(await hears(client, b"tools/list_changed"))
        client.close()
        await left(talk)
        for _ in range(1_000):
            talk.provider.changes.list_changed("tools")
        again = request("GET", "/mcp", session, "Accept: text/event-stream", f"Last-Event-ID: {last}")
        refused = await talk.site.ask(again)
        assert (refused.status, "open a new stream" in refused.json()["error"]["message"]) == (400, True)
        await standing(talk, session)


@requirement("wire.http.session")
async def test_a16_a_session_too_many_is_a_503_and_one_that_expired_a_404() -> None:
    clock = SetClock()
    async with talking(cap=1, idle_seconds=60, clock=clock) as talk:
        idle = await talk.session()
        client = await talk.site.client()
        await begun(client, posted(tool("hang"), idle, BOTH))
        refused = await talk.post(hello())
        assert (refused.status, "1 sessions" in refused.json()["error"]["message"]) == (503, True)
        cancelled = await talk.post(message("notifications/cancelled", {"requestId": 1}), idle)
        assert cancelled.status == 202
        await within_limit(client.reader.readuntil(b"-32800"))
        clock.now = 61
        assert (await talk.post(message("ping", {}, 2), idle)).status == 404
        await talk.session()


async def test_a18_a_session_of_another_credential_is_not_found() -> None:
    async with talking() as talk:
        session = await talk.session()
        assert (await talk.post(message("ping", {}, 1), session, "X-Who: anybody")).status == 404
        assert (await talk.post(message("ping", {}, 1), session)).status == 200


@requirement("wire.cancel.progress")
async def test_a_cancelled_call_is_answered_with_an_error_as_http_must_be() -> None:
    async with talking() as talk:
        session = await talk.session()
        client = await talk.site.client()
        await begun(client, posted(tool("hang"), session, BOTH))
        cancel = message("notifications/cancelled", {"requestId": 1})
        assert (await talk.post(cancel, session)).status == 202
        await within_limit(client.reader.readuntil(b'"error":{"code":-32800'))
        assert await talk.count_cancelled() == "1"
        assert (await talk.post(cancel, session)).status == 202


# ---- ends


@pytest.mark.parametrize("era", ["handshake", "modern"])
@requirement("wire.http.lost-client")
async def test_a15_a_client_that_resets_loses_its_call_and_no_other(era: str) -> None:
    async with talking() as talk:
        session = await talk.session()
        # A handshake client that was sent a stream may come back for it; one that was promised none may not.
        json_only = posted(tool("hang"), session, "Accept: application/json")
        sent = json_only if era == "handshake" else modern("tools/call", {"name": "hang"}, BOTH, progressToken=1)
        lost, kept = await talk.site.client(), await talk.site.client()
        await begun(kept, modern("tools/call", {"name": "hang"}, BOTH, progressToken=1))
        if era == "modern":
            await begun(lost, sent)
        else:
            await lost.send(sent)
            async with asyncio.timeout(LIMIT):
                while not in_flight(talk):
                    await talk.post(message("ping", {}, 2), session)
        lost.reset()
        assert await talk.count_cancelled() == "1"


@requirement("wire.http.lost-client")
async def test_a13_a_client_that_stops_reading_its_answer_loses_that_call_and_no_other() -> None:
    async with talking(limits=HttpLimits(write_seconds=0.2)) as talk:
        silent, kept = await talk.site.client(receive_bytes=4096), await talk.site.client()
        await begun(kept, modern("tools/call", {"name": "hang"}, BOTH, progressToken=1))
        level = {revisions.META_LOG_LEVEL: "info"}
        await silent.send(modern("tools/call", {"name": "flood"}, BOTH, progressToken=1, **level))
        await within_limit(talk.provider.flooded.wait())
        await talk.site.connections.reach(1)
        assert talk.provider.cancelled == 0
        talk.endpoint.close()
        await within_limit(kept.reader.readuntil(b"shutting down"))


def in_flight(talk: Talk) -> bool:
    return any(session.calls for session in talk.endpoint.service.sessions._sessions.values())


@pytest.mark.parametrize("era", ["handshake", "modern"])
@requirement("wire.server.shutdown")
async def test_a_shutdown_ends_open_calls_with_an_error_and_takes_no_more(era: str) -> None:
    async with talking() as talk:
        session = await talk.session()
        client = await talk.site.client()
        handshake = posted(tool("hang"), session, BOTH)
        new = modern("tools/call", {"name": "hang"}, BOTH, progressToken=1)
        await begun(client, handshake if era == "handshake" else new)
        talk.endpoint.close()
        await within_limit(client.reader.readuntil(b'"error":{"code":-32000,"message":"shutting down"}'))
        assert (await talk.post(message("ping", {}, 1), session)).status == 503
