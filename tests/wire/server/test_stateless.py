"""The stateless era in playbooks: the metadata of each request, and the state between two of them."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw

from rookery.wire.http.head import RequestHead
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import Request, decode_messages
from rookery.wire.protocol.provider import Call, ClientQuestion
from tests.conformance.busy import WATCHED, Busy
from tests.support.mcp.conversation import Conversation, ConversationClient, start_conversation
from tests.support.mcp.conversation_messages import (
    Having,
    Placeholder,
    answer,
    cancel,
    error,
    modern_call,
    refusal,
    result,
    text,
    told,
)
from tests.support.mcp.line_client import enveloped, hello, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio
COMPLETE = {"resultType": "complete"}
PRIVATE = {"ttlMs": 0, "cacheScope": "private"}


def listing(id_: int | str, **meta: Any) -> dict[str, Any]:
    """A request that any provider answers, with members of `_meta` put in; `...` takes one out."""
    params = enveloped(None, **meta)
    params["_meta"] = {key: value for key, value in params["_meta"].items() if value is not ...}
    return message("prompts/list", params, id_)


# ---- what a request says of itself


@requirement("wire.modern.discover")
async def test_a_client_discovers_what_there_is_without_saying_hello() -> None:
    provider = Busy()
    found = {"supportedVersions": [revisions.LATEST], "capabilities": provider.capabilities}
    meta = {"_meta": {revisions.META_SERVER: provider.info}}
    async with start_conversation(provider) as stage:
        discovered = answer(1, found | COMPLETE | PRIVATE | meta)
        assert await (stage.client() >> message("server/discover", enveloped(), 1) << discovered)


@pytest.mark.parametrize(
    ("meta", "code", "words"),
    [
        ({revisions.META_VERSION: 5}, -32602, "protocolVersion has the wrong type"),
        ({revisions.META_CAPABILITIES: ...}, -32602, "clientCapabilities"),
        ({revisions.META_CAPABILITIES: "all"}, -32602, "clientCapabilities"),
        ({revisions.META_CLIENT: "me"}, -32602, "clientInfo"),
        ({revisions.META_LOG_LEVEL: "loud"}, -32602, "loud"),
        ({revisions.META_LOG_LEVEL: 1}, -32602, "logLevel"),
        ({revisions.META_VERSION: "2025-11-25"}, -32022, "2025-11-25"),
        ({revisions.META_VERSION: "2030-01-01"}, -32022, "2030-01-01"),
    ],
)
async def test_a_request_with_wrong_metadata_is_refused_and_the_next_is_served(
    meta: Any, code: int, words: str
) -> None:
    async with start_conversation(Busy()) as stage:
        client = stage.client() >> listing(1, **meta) << error(1, code, words)
        assert await (client >> listing(2, **{revisions.META_CLIENT: ...}) << result(2, **COMPLETE))


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": []}, {"_meta": None}, []])
async def test_a_modern_method_without_what_belongs_to_it_is_refused(params: Any) -> None:
    async with start_conversation(Busy()) as stage:
        assert await (stage.client() >> message("server/discover", params, 1) << error(1, -32602))


@requirement("wire.modern.discover")
async def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    known = {"supported": [revisions.LATEST], "requested": "2030-01-01"}
    async with start_conversation(Busy()) as stage:
        wrong = listing(1, **{revisions.META_VERSION: "2030-01-01"})
        assert await (stage.client() >> wrong << error(1, -32022, data=known))


@pytest.mark.parametrize("method", sorted(revisions.ONLY_HANDSHAKE - {"initialize"}))
async def test_methods_of_the_other_era_do_not_exist_in_this_one(method: str) -> None:
    params = enveloped({"level": "debug", "uri": WATCHED})
    async with start_conversation(Busy()) as stage:
        client = (
            stage.client()
            >> message(method, params, 1)
            << error(1, -32601, f"{revisions.LATEST} has no method {method}")
        )
        client = client >> hello() << result("hello") >> message(method, params, 2) << error(2, -32601, method)
        assert await (client >> message(method, {"level": "debug", "uri": WATCHED}, 3) << answer(3, {}))


async def test_both_eras_are_served_side_by_side_on_one_connection() -> None:
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> modern_call(1, "meet", word="modern")
            >> hello()
            << result("hello")
            >> message("tools/call", {"name": "meet", "arguments": {"word": "handshake"}}, 2)
            << answer(2, {"content": [{"type": "text", "text": "handshake"}]})
            << result(1, **COMPLETE)
        )


# ---- headers


def posting(stage: Conversation, headers: dict[str, list[str]]) -> ConversationClient:
    """A client whose requests come with headers: version and method as they should be, but for these."""

    async def take(data: bytes) -> None:
        (request,) = decode_messages(data)
        assert isinstance(request, Request)
        given = {"mcp-protocol-version": [revisions.LATEST], "mcp-method": [request.method]} | headers
        head = RequestHead([(name.encode(), each.encode()) for name, several in given.items() for each in several])
        found, _ = await stage.service.modern(request, head, "owner", made.hear, is_lost=lambda: False)
        await made.hear(found)

    made = ConversationClient(take)
    return made


@requirement("wire.modern.discover")
@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, None),
        ({"mcp-name": ["=?base64?dGVzdF9oZWFkZXJfdG9vbA==?="]}, None),
        ({"mcp-param-other": ["declared by nobody"]}, None),
        ({"mcp-method": ["tools/list"]}, "mcp-method does not match"),
        ({"mcp-method": []}, "mcp-method does not match"),
        ({"mcp-method": ["tools/call", "tools/call"]}, "mcp-method occurs 2 times"),
        ({"mcp-name": ["another"]}, "mcp-name does not match"),
        ({"mcp-name": []}, "mcp-name does not match"),
        ({"mcp-name": ["=?base64?!?="]}, "mcp-name does not match"),
        ({"mcp-protocol-version": ["2025-11-25"]}, "mcp-protocol-version does not match"),
        ({"mcp-param-region": ["elsewhere"]}, "Mcp-Param-Region does not match"),
        ({"mcp-param-region": []}, "must be sent together"),
        ({"mcp-param-region": ["here", "here"]}, "Mcp-Param-Region occurs 2 times"),
    ],
)
async def test_a19_a_header_that_differs_from_the_body_is_refused(headers: Any, refused: str | None) -> None:
    right = {"mcp-name": ["test_header_tool"], "mcp-param-region": ["here"]}
    expected = error(1, -32020, refused) if refused else text(1, "region here")
    async with start_conversation(Busy()) as stage:
        client = posting(stage, right | headers)
        assert await (client >> modern_call(1, "test_header_tool", region="here") << expected)


@pytest.mark.parametrize("method", sorted(revisions.ONLY_HANDSHAKE))
async def test_a_post_of_a_handshake_method_in_a_modern_envelope_is_refused(method: str) -> None:
    async with start_conversation(Busy()) as stage:
        assert await (posting(stage, {}) >> message(method, enveloped(), 1) << error(1, -32601, "2026-07-28 has no"))


# ---- results, logs, cancellation


@requirement("wire.modern.results")
@pytest.mark.parametrize(
    ("method", "params", "cached"),
    [
        ("tools/list", {}, True),
        ("resources/list", {}, True),
        ("resources/templates/list", {}, True),
        ("prompts/list", {}, True),
        ("resources/read", {"uri": WATCHED}, True),
        ("tools/call", {"name": "test_simple_text"}, False),
        ("prompts/get", {"name": "test_simple_prompt"}, False),
    ],
)
async def test_results_say_their_type_who_answered_and_how_long_they_keep(
    method: str, params: Any, cached: bool
) -> None:
    provider = Busy()
    server = {"_meta": {revisions.META_SERVER: provider.info}}
    async with start_conversation(provider) as stage:
        client = stage.client()
        expected = result(1, **COMPLETE, **server, **(PRIVATE if cached else {}))
        assert await (client >> message(method, enveloped(params), 1) << expected)
        assert (b"ttlMs" in client.heard[-1]) == cached


async def test_what_a_relayed_result_says_itself_is_not_said_again() -> None:
    own = b'{"_meta":{"x":1},"resultType":"complete","ttlMs":5,"cacheScope":"public","tools":[ ]}'

    class Relay(Busy):
        async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
            return Raw(own)

    provider = Relay()
    async with start_conversation(provider) as stage:
        meta = {"x": 1, revisions.META_SERVER: provider.info}
        kept = {"resultType": "complete", "ttlMs": 5, "cacheScope": "public", "tools": list[Any]()}
        assert await (stage.client() >> message("tools/list", enveloped(), 1) << answer(1, kept | {"_meta": meta}))


@requirement("wire.modern.results")
async def test_a_client_without_the_needed_capability_is_told_which() -> None:
    unable: dict[str, Any] = {revisions.META_CAPABILITIES: {"roots": {}}}
    needed = error(1, -32021, "sampling", data={"requiredCapabilities": {"sampling": {}}})
    wanting = message("tools/call", enveloped({"name": "test_missing_capability"}, **unable), 1)
    async with start_conversation(Busy()) as stage:
        assert await (stage.client() >> wanting << needed)


@pytest.mark.parametrize(("level", "heard"), [(None, []), ("info", ["info", "error"]), ("critical", [])])
async def test_log_messages_come_only_to_a_request_that_asked_for_them(level: str | None, heard: list[str]) -> None:
    meta = {} if level is None else {revisions.META_LOG_LEVEL: level}
    async with start_conversation(Busy()) as stage:
        talk = stage.client() >> message("tools/call", enveloped({"name": "test_logging_tool"}, **meta), 1)
        for each in heard:
            talk = talk << told("message", level=each)
        assert await (talk << text(1, "logged"))


@requirement("wire.cancel.progress")
async def test_a_call_reports_progress_and_is_cancelled_by_id_unless_it_has_ended() -> None:
    provider = Busy()
    async with start_conversation(provider) as stage:
        client = stage.client()
        assert await (client >> modern_call(1, "hang") << told("progress", progressToken=1, progress=1))
        assert await (client >> modern_call(1, "hang") << error(1, -32600, "in use") >> cancel("1"))
        assert provider.cancelled == 0
        assert await (client >> cancel(1) >> cancel(1) >> modern_call(1, "touch") << text(1, "touched") >> cancel(1))
        assert provider.cancelled == 1


# ---- rounds


def again(id_: int, tool: str, state: Any = ..., **responses: Any) -> dict[str, Any]:
    """A call once more, with answers, and what the client was to carry."""
    params = {"name": tool, "arguments": {}, "inputResponses": responses}
    return message("tools/call", enveloped(params | ({"requestState": state} if state is not ... else {})), id_)


def needed(id_: int, state: Any, **asks: str) -> dict[str, Any]:
    requests = {key: Having(method=method) for key, method in asks.items()}
    return answer(id_, {"resultType": "input_required", "inputRequests": requests, "requestState": state})


def said(**content: str) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@requirement("wire.modern.results")
async def test_a_call_that_needs_input_is_repeated_with_it_and_earlier_answers_are_kept() -> None:
    tool = "test_input_required_result_multi_round"
    nothing, step1 = Placeholder(), Placeholder()
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> modern_call(1, tool)
            << needed(1, nothing, step1="elicitation/create")
            >> again(2, tool, nothing, step1=said(name="Ada"))
            << needed(2, step1, step2="elicitation/create")
            >> again(3, tool, step1, step2=said(color="red"))
            << text(3, "{'name': 'Ada'} {'color': 'red'}")
        )


async def test_answers_without_a_state_do_where_they_are_all_there_are() -> None:
    tool = "test_input_required_result_multiple_inputs"
    asks = {"user_name": "elicitation/create", "greeting": "sampling/createMessage", "client_roots": "roots/list"}
    state, left = Placeholder(), Placeholder()
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> modern_call(1, tool)
            << needed(1, state, **asks)
            >> again(2, tool, user_name=said(), greeting={}, not_asked={})
            << needed(2, left, client_roots="roots/list")
            >> again(3, tool, left, client_roots={})
            << text(3, '["client_roots", "greeting", "user_name"]')
            >> again(4, tool, user_name=said(), greeting={}, client_roots={})
            << text(4, '["client_roots", "greeting", "user_name"]')
        )


def forged(state: str) -> str:
    return ("B" if state[0] == "A" else "A") + state[1:]


# What is different in the second round, and what is said of that.
SECOND_ROUNDS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"second": 599.0}, None),
    ({"second": 601.0}, "has expired"),
    ({"state": forged}, "not issued by this server"),
    ({"state": "{}\n".format}, "not issued by this server"),
    ({"state": ""}, "not issued by this server"),
    ({"state": 5}, "must be a string"),
    ({"tool": "test_input_required_result_tampered_state"}, "belongs to another call"),
    ({"arguments": {"x": 1}}, "belongs to another call"),
    ({"owner": "another"}, "belongs to another call"),
    ({"responses": []}, "inputResponses must be an object"),
    ({"responses": {"confirm": "yes"}}, "inputResponses.confirm must be an object"),
]


@requirement("wire.modern.results")
@pytest.mark.parametrize(("change", "words"), SECOND_ROUNDS)
async def test_a_state_that_was_changed_or_is_for_another_or_too_old_is_refused(change: Any, words: str | None) -> None:
    tool = "test_input_required_result_request_state"
    state = Placeholder()
    async with start_conversation(Busy()) as stage:
        first, second = stage.client(), stage.client(change.get("owner", "owner"))
        assert await (first >> modern_call(1, tool) << needed(1, state, confirm="elicitation/create"))
        stage.clock.now = change.get("second", 0.0)
        params = {"name": change.get("tool", tool), "arguments": change.get("arguments", {})}
        given = change.get("state", str)
        params["requestState"] = given(state.value) if callable(given) else given
        params["inputResponses"] = change.get("responses", {"confirm": said()})
        expected = error(2, -32602, words) if words else text(2, "state-ok")
        assert await (second >> message("tools/call", enveloped(params), 2) << expected)


async def test_a_state_that_was_good_when_it_was_opened_is_good_for_the_whole_call() -> None:
    class Slow(Busy):
        async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
            asks = [{key: ClientQuestion("roots/list", {})} for key in ("before", "after")]
            await call.ask(asks[0])
            stage.clock.now += 700 * ("requestState" in call.params)
            return await call.ask(asks[1])

    state = Placeholder()
    async with start_conversation(Slow()) as stage:
        assert await (
            stage.client()
            >> modern_call(1, "any")
            << needed(1, state, before="roots/list")
            >> again(2, "any", state, before={}, after={"roots": []})
            << result(2, after={"roots": []})
        )


async def test_a_state_that_nobody_asks_for_is_not_opened() -> None:
    async with start_conversation(Busy()) as stage:
        assert await (stage.client() >> again(1, "test_simple_text", "not ours") << result(1, **COMPLETE))


async def test_a_method_whose_answer_may_not_be_a_question_fails_where_its_provider_asks() -> None:
    class Curious(Busy):
        async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
            return await call.ask({"roots": ClientQuestion("roots/list", {})})

    async with start_conversation(Curious()) as stage:
        assert await (stage.client() >> listing(1) << error(1, -32603, "prompts/list may not ask"))


# ---- subscriptions


def listen(id_: int | str, **wanted: Any) -> dict[str, Any]:
    return message("subscriptions/listen", enveloped({"notifications": wanted}), id_)


def of(id_: int | str) -> dict[str, Any]:
    return {"_meta": {revisions.META_SUBSCRIPTION: id_}}


@requirement("wire.modern.listen")
async def test_a_subscription_is_acknowledged_then_sends_wanted_changes_until_cancelled() -> None:
    provider = Busy()
    changes = provider.changes
    wanted = {"promptsListChanged": True, "resourceSubscriptions": [WATCHED]}

    def all_change() -> None:
        changes.list_changed("tools")
        changes.list_changed("resources")
        changes.resource_updated("test://another")
        changes.resource_updated(WATCHED)
        changes.resource_updated(WATCHED)  # said once to a reader that has not read the first
        changes.list_changed("prompts")

    async with start_conversation(provider) as stage:
        assert await (
            stage.client()
            >> all_change
            >> listen("s", **wanted)
            << told("subscriptions/acknowledged", notifications=wanted, **of("s"))
            >> all_change
            << message("notifications/resources/updated", {"uri": WATCHED} | of("s"))
            << message("notifications/prompts/list_changed", of("s"))
            >> listen(7, toolsListChanged=True)
            << told("subscriptions/acknowledged", notifications={"toolsListChanged": True}, **of(7))
            >> cancel("s")
            >> all_change
            << message("notifications/tools/list_changed", of(7))
        )


async def test_only_what_the_server_can_tell_is_promised() -> None:
    provider = Busy()
    provider.capabilities = {"tools": {}, "prompts": {"listChanged": True}, "resources": {"subscribe": False}}
    everything = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}

    def all_change() -> None:
        provider.changes.list_changed("tools")
        provider.changes.resource_updated(WATCHED)
        provider.changes.list_changed("prompts")

    async with start_conversation(provider) as stage:
        assert await (
            stage.client()
            >> listen("s", **everything, resourceSubscriptions=[WATCHED])
            << told("subscriptions/acknowledged", notifications={"promptsListChanged": True})
            >> all_change
            << told("prompts/list_changed")
        )
        assert provider.changes.watched == frozenset()


@pytest.mark.parametrize("wanted", [{"toolsListChanged": 1}, {"resourceSubscriptions": [5]}])
async def test_a_filter_that_does_not_fit_is_refused(wanted: Any) -> None:
    async with start_conversation(Busy()) as stage:
        assert await (stage.client() >> listen(1, **wanted) << error(1, -32602, "notifications is invalid"))


@requirement("wire.server.shutdown")
async def test_a_shutdown_ends_subscriptions_with_their_result_and_calls_with_an_error() -> None:
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> listen("s", toolsListChanged=True)
            << told("subscriptions/acknowledged")
            >> modern_call(1, "hang")
            << told("progress")
            >> stage.service.close
            << refusal(1, -32000, "shutting down")
            << result("s", **COMPLETE, _meta=Having(of("s")["_meta"]))
        )
