"""What a relaying provider gets from the protocol layer: the caller, unchanged bytes, and subscriptions."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw

from rookery.wire.protocol.provider import Call, ClientQuestion
from rookery.wire.server import session, stateless as modern
from tests.conformance.busy import Busy
from tests.support.mcp.conversation import start_conversation
from tests.support.mcp.conversation_messages import (
    Placeholder,
    answer,
    asked,
    call,
    cancel,
    error,
    modern_call,
    result,
    told,
)
from tests.support.mcp.line_client import enveloped, hello, message

pytestmark = pytest.mark.anyio
HELLO = result("hello")
# Numbers, spaces and order that would not survive being parsed and written again.
AS_IT_CAME = b'{"roots":[],  "n":12345678901234567890123, "b":1e2, "a":1.0}'


class Relay(Busy):
    """Keeps the calls it gets, and answers what the client answers to its question."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
        self.calls.append(call)
        if call.method == "tools/call":
            await call.notify("notifications/message", Raw(b'{"level":"info",  "data":1e2}'))
            return (await call.ask_raw({"roots": ClientQuestion("roots/list", Raw(b'{"_meta":{"n":1.0}}'))}))["roots"]
        return {}


async def test_all_calls_of_a_session_have_one_caller_and_every_modern_request_its_own() -> None:
    provider = Relay()
    listing = message("tools/list", {}, 1), result(1)
    async with start_conversation(provider) as stage:
        for client in (stage.client(), stage.client()):
            assert await (client >> hello() << HELLO >> listing[0] << listing[1] >> listing[0] << listing[1])
            stateless = message("tools/list", enveloped(), 1)
            assert await (client >> stateless << result(1) >> stateless << result(1))
    a, again, a1, a2, b, b_again, b1, b2 = (call.caller for call in provider.calls)
    assert (a, b) == (again, b_again)
    assert len({a, b, a1, a2, b1, b2}) == 6
    assert [call.session for call in provider.calls] == [a, a, None, None, b, b, None, None]


async def test_questions_answers_and_notifications_pass_as_the_bytes_they_came_as() -> None:
    number = Placeholder()
    async with start_conversation(Relay()) as stage:
        client = stage.client()
        assert await (
            client
            >> hello()
            << HELLO
            >> call(1, "any")
            << told("message", level="info", data=100.0)
            << asked(number, "roots/list", _meta={"n": 1.0})
        )
        assert client.heard[-2].endswith(b'"params":{"level":"info",  "data":1e2}}')
        assert client.heard[-1].endswith(b'"params":{"_meta":{"n":1.0}}}')
        assert await (client >> answer(number, Raw(AS_IT_CAME)) << result(1))
        assert client.heard[-1] == b'{"jsonrpc":"2.0","id":1,"result":%b}' % AS_IT_CAME


async def test_answers_of_a_modern_client_pass_as_they_came_also_through_the_sealed_state() -> None:
    class Twice(Busy):
        async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
            first = await call.ask_raw({"first": ClientQuestion("roots/list", {})})
            return {**first, **await call.ask_raw({"second": ClientQuestion("roots/list", {})})}

    def round_(number: int, **more: Any) -> dict[str, Any]:
        return message("tools/call", enveloped({"name": "any", **more}), number)

    nothing, first = Placeholder(), Placeholder()
    async with start_conversation(Twice()) as stage:
        client = stage.client()
        assert await (
            client
            >> round_(1)
            << result(1, resultType="input_required", requestState=nothing)
            >> round_(2, requestState=nothing, inputResponses={"first": Raw(AS_IT_CAME)})
            << result(2, resultType="input_required", requestState=first)
            >> round_(3, requestState=first, inputResponses={"second": Raw(AS_IT_CAME)})
            << result(3, resultType="complete")
        )
        assert client.heard[-1].count(AS_IT_CAME) == 2


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
async def test_rounds_of_another_server_are_relayed_unopened_and_its_question_as_it_came(method: str) -> None:
    theirs = b'{"resultType" : "input_required", "inputRequests":{}, "requestState":"sealed by them", "n":1.0}'

    class Behind(Busy):
        async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
            given.append(bytes(call.params[key]) for key in ("requestState", "inputResponses") if key in call.params)
            return Raw(theirs) if len(given) == 1 else {}

    given: list[Any] = []
    again = enveloped({"requestState": "sealed by them", "inputResponses": {"q": Raw(AS_IT_CAME)}})
    async with start_conversation(Behind()) as stage:
        client = stage.client()
        assert await (client >> message(method, enveloped(), 1) << result(1, resultType="input_required"))
        assert client.heard[-1] == b'{"jsonrpc":"2.0","id":1,"result":%b}' % theirs
        assert await (client >> message(method, again, 2) << result(2, resultType="complete"))
    assert [list(each) for each in given] == [[], [b'"sealed by them"', b'{"q":%b}' % AS_IT_CAME]]


async def test_a_relayed_question_that_clients_do_not_know_is_refused() -> None:
    class Strange(Busy):
        async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
            return await call.ask({"it": ClientQuestion("tools/list", {})})

    async with start_conversation(Strange()) as stage:
        client = stage.client() >> hello() << HELLO
        assert await (client >> call(1, "any") << error(1, -32601, "tools/list"))
        assert await (client >> modern_call(1, "any") << error(1, -32601, "tools/list"))


# ---- what anybody watches


def subscription(id_: int, uri: str, word: str = "subscribe") -> dict[str, Any]:
    return message(f"resources/{word}", {"uri": uri}, id_)


async def test_the_provider_hears_what_anybody_watches_when_that_changes_and_only_then() -> None:
    provider = Busy()
    seen: list[set[str]] = []
    provider.changes.on_watched_changed = lambda uris: seen.append(set(uris))
    wanted = {"notifications": {"resourceSubscriptions": ["a:", "l:", "l:"]}}
    listening = message("subscriptions/listen", enveloped(wanted), "l")
    async with start_conversation(provider) as stage:
        first, second = stage.client(), stage.client()
        assert await (
            first
            >> hello()
            << HELLO
            >> subscription(1, "a:")
            << answer(1, {})
            >> subscription(2, "a:")
            << answer(2, {})
            >> subscription(3, "b:")
            << answer(3, {})
            >> subscription(4, "c:", "unsubscribe")
            << answer(4, {})
        )
        assert seen == [{"a:"}, {"a:", "b:"}]
        assert await (second >> hello() << HELLO >> subscription(1, "a:") << answer(1, {}))
        assert await (second >> listening << told("subscriptions/acknowledged"))
        assert seen[2:] == [{"a:", "b:", "l:"}]
        assert await (first >> subscription(5, "a:", "unsubscribe") << answer(5, {}))
        assert await (second >> cancel("l"))
        assert seen[3:] == [{"a:", "b:"}]
        await stage.peers[first].end(lost=True)
        assert seen[4:] == [{"a:"}]
        await stage.peers[second].end(lost=True)
        assert seen[5:] == [set()]


async def test_what_one_client_watches_is_capped_and_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_SUBSCRIPTIONS", 1)
    monkeypatch.setattr(modern, "MAX_SUBSCRIPTIONS", 1)
    many = {"notifications": {"resourceSubscriptions": ["a:", "b:"]}}
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> subscription(1, "a:")
            << answer(1, {})
            >> subscription(2, "b:")
            << error(2, -32000, "1 subscriptions")
            >> subscription(3, "a:")
            << answer(3, {})
            >> subscription(4, "a:", "unsubscribe")
            << answer(4, {})
            >> subscription(5, "b:")
            << answer(5, {})
            >> message("subscriptions/listen", enveloped(many), 6)
            << error(6, -32602, "1 resources")
        )
