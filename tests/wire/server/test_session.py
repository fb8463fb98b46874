"""One client of the handshake era, in playbooks: its messages, and exactly the expected replies."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw

from rookery.wire.protocol import revisions
from rookery.wire.protocol.provider import Call, report_progress
from rookery.wire.server import duplex
from tests.conformance.busy import WATCHED, Busy
from tests.support.mcp.conversation import start_conversation
from tests.support.mcp.conversation_messages import (
    Placeholder,
    answer,
    asked,
    call,
    cancel,
    error,
    refusal,
    result,
    text,
    told,
)
from tests.support.mcp.line_client import enveloped, hello, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio
HELLO = result("hello", protocolVersion=revisions.LATEST_HANDSHAKE)
FORM = {"action": "accept", "content": {"username": "ada"}}


# ---- the handshake


@requirement("wire.handshake.server", "wire.revision.all")
@pytest.mark.parametrize("revision", revisions.HANDSHAKE)
async def test_each_revision_is_agreed_to_and_served(revision: str) -> None:
    provider = Busy()
    agreed = {"protocolVersion": revision, "capabilities": provider.capabilities, "serverInfo": provider.info}
    async with start_conversation(provider) as stage:
        assert await (
            stage.client(modern=False)
            >> hello(revision)
            << answer("hello", agreed)
            >> message("notifications/initialized")
            >> call(1, "test_simple_text")
            << text(1, "This is a simple text response for testing.")
            >> message("server/discover", {}, 2)
            << error(2, -32601, revision)
            >> message("subscriptions/listen", {}, 3)
            << error(3, -32601, revision)
        )


@requirement("wire.handshake.server")
@pytest.mark.parametrize("wanted", ["2030-01-01", "2024-01-01", revisions.LATEST, ""])
async def test_a_client_of_a_revision_without_handshake_is_offered_the_latest_that_has_one(wanted: str) -> None:
    async with start_conversation(Busy()) as stage:
        assert await (stage.client() >> hello(wanted) << HELLO)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "protocolVersion is missing"),
        ({"protocolVersion": 5}, "protocolVersion must be a string"),
        ({"protocolVersion": "2025-11-25", "capabilities": []}, "the parameters of initialize are invalid"),
        ({"protocolVersion": "2025-11-25", "clientInfo": "me"}, "the parameters of initialize are invalid"),
    ],
)
async def test_a_handshake_that_does_not_fit_is_refused_and_may_be_tried_again(params: Any, words: str) -> None:
    async with start_conversation(Busy()) as stage:
        bad = message("initialize", params, 1)
        assert await (stage.client() >> bad << error(1, -32602, words) >> hello() << HELLO)


@requirement("wire.handshake.server")
async def test_only_ping_and_modern_requests_precede_initialize_which_is_accepted_once() -> None:
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> message("ping", {}, 1)
            << answer(1, {})
            >> call(2, "test_simple_text")
            << error(2, -32600, "send initialize first")
            >> message("tools/list", enveloped(), 3)
            << result(3, resultType="complete")
            >> hello()
            << HELLO
            >> hello()
            << error("hello", -32600, "already")
        )


async def test_an_argument_that_only_looks_like_the_modern_envelope_changes_nothing() -> None:
    async with start_conversation(Busy()) as stage:
        words = f'JSON Schema 2020-12 tool called with: {{"name": "{revisions.META_VERSION}"}}'
        looks = call(1, "json_schema_2020_12_tool", name=revisions.META_VERSION)
        plain = answer(1, {"content": [{"type": "text", "text": words}]})
        assert await (stage.client() >> hello() << HELLO >> looks << plain)


# ---- ids, cancellation, progress


@requirement("wire.server.concurrent")
async def test_a17_an_id_that_is_in_use_is_refused_and_its_call_goes_on() -> None:
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> call(1, "meet", word="first")
            >> call(1, "meet", word="again")
            << error(1, -32600, "in use")
            >> call("1", "meet", word="second")
            << text("1", "second")
            << text(1, "first")
            >> call(1, "meet", word="free again")
            << text(1, "free again")
        )


async def test_two_clients_may_use_the_same_ids() -> None:
    async with start_conversation(Busy()) as stage:
        first, second = stage.client(), stage.client()
        assert await (first >> hello() << HELLO >> call(1, "meet", word="first"))
        assert await (second >> hello() << HELLO >> call(1, "meet", word="second") << text(1, "second"))
        assert await (first << text(1, "first"))


async def test_more_calls_than_allowed_at_once_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex, "MAX_CALLS", 1)
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> call(1, "hang")
            << told("progress", progressToken=1)
            >> call(2, "hang")
            << error(2, -32000, "1 requests")
            >> cancel(1)
            >> call(2, "test_error_handling")
            << result(2, isError=True)
        )


@requirement("wire.jsonrpc.answers", "wire.cancel.progress")
async def test_a_cancelled_call_ends_without_an_answer_and_other_cancellations_are_ignored() -> None:
    provider = Busy()
    async with start_conversation(provider) as stage:
        client = stage.client()
        assert await (client >> cancel(1) >> hello() << HELLO >> call(1, "hang") << told("progress", progressToken=1))
        assert await (client >> cancel("1") >> cancel([1]) >> cancel(True) >> message("notifications/cancelled"))
        assert provider.cancelled == 0
        assert await (client >> cancel(1))
        assert provider.cancelled == 1
        assert await (client >> cancel(1) >> call(1, "touch") << text(1, "touched") >> cancel(1))


@requirement("wire.cancel.progress")
async def test_progress_goes_to_the_token_of_its_call_and_to_nobody_who_gave_none() -> None:
    class Steps(Busy):
        async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
            await report_progress(call, 1)
            await report_progress(call, 2.5, 5, "half")
            return {}

    def step(token: int | str, **more: Any) -> Any:
        return message("notifications/progress", {"progressToken": token, **more})

    async with start_conversation(Steps()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> message("tools/call", {"name": "x", "_meta": {"progressToken": "mine"}}, 1)
            << step("mine", progress=1)
            << step("mine", progress=2.5, total=5, message="half")
            << answer(1, {})
            >> message("tools/call", {"name": "x"}, 2)
            << answer(2, {})
        )


# ---- questions


async def test_a_question_is_answered_once_and_what_comes_late_or_for_nobody_is_ignored() -> None:
    number = Placeholder()
    words = 'User response: action=accept, content={"username": "ada"}'
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> answer("rk-1", FORM)
            >> call(1, "test_elicitation", message="Who?")
            << asked(number, "elicitation/create", message="Who?")
            >> answer("rk-77", {"action": "cancel"})
            >> answer(1, {"action": "cancel"})
            >> answer(number, FORM)
            << text(1, words)
            >> answer(number, {"action": "decline"})
            >> refusal(number, -1, "late")
            >> call(1, "test_simple_text")
            << result(1)
        )


async def test_questions_that_are_asked_together_are_answered_in_any_order_and_once() -> None:
    name, greeting, roots = Placeholder(), Placeholder(), Placeholder()
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> call(1, "test_input_required_result_multiple_inputs")
            << asked(name, "elicitation/create")
            << asked(greeting, "sampling/createMessage")
            << asked(roots, "roots/list")
            >> answer(roots, {"roots": []})
            >> answer(roots, FORM)
            >> refusal(roots, -1, "too late")
            >> answer(name, FORM)
            >> answer(greeting, {"content": {}})
            << text(1, '["client_roots", "greeting", "user_name"]')
        )
        assert len({name.value, greeting.value, roots.value}) == 3


@pytest.mark.parametrize(
    ("refused", "heard"),
    [
        (
            {"code": -1, "message": "no", "data": {"why": "tired"}},
            {"code": -1, "message": "no", "data": {"why": "tired"}},
        ),
        ({"code": "x"}, {"code": -32603, "message": "the client refused"}),
        ({}, {"code": -32603, "message": "the client refused"}),
    ],
)
async def test_a_refused_question_ends_the_call_with_the_clients_own_error(refused: Any, heard: Any) -> None:
    number = Placeholder()
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> call(1, "test_elicitation", message="?")
            << asked(number, "elicitation/create")
            >> {"jsonrpc": "2.0", "id": number, "error": refused}
            << {"jsonrpc": "2.0", "id": 1, "error": heard}
        )


async def test_open_questions_of_a_cancelled_call_are_withdrawn_and_answered_ones_are_not() -> None:
    first, second = Placeholder(), Placeholder()
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> call(1, "test_input_required_result_multiple_inputs")
            << asked(first, "elicitation/create")
            << asked(second, "sampling/createMessage")
            << asked(Placeholder(), "roots/list")
            >> answer(first, FORM)
            >> cancel(1)
            << told("cancelled", requestId=second)
            << told("cancelled")
        )


async def test_a_client_is_not_asked_what_it_has_not_said_it_can_answer() -> None:
    params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}}
    lacking = error(1, -32021, "elicitation", data={"requiredCapabilities": {"elicitation": {}}})
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> message("initialize", params, "hello")
            << HELLO
            >> call(1, "test_elicitation", message="?")
            << lacking
        )


# ---- logs, changes, subscriptions


@pytest.mark.parametrize(("level", "heard"), [("debug", 3), ("notice", 1), ("error", 1), ("emergency", 0)])
async def test_log_messages_below_the_level_that_was_set_are_not_sent(level: str, heard: int) -> None:
    logged = [told("message", level=level) for level in ("debug", "info", "error")]
    async with start_conversation(Busy()) as stage:
        talk = stage.client() >> hello() << HELLO >> call(1, "test_logging_tool")
        for each in logged:
            talk = talk << each  # the level is debug where none was set
        talk = talk << text(1, "logged") >> message("logging/setLevel", {"level": level}, 2) << answer(2, {})
        talk = talk >> message("logging/setLevel", {"level": "loud"}, 3) << error(3, -32602, "loud")
        talk = talk >> call(4, "test_logging_tool")
        for each in logged[3 - heard :]:
            talk = talk << each
        assert await (talk << text(4, "logged"))


async def test_list_changes_reach_every_session_and_resource_updates_only_subscribers() -> None:
    provider = Busy()
    changes = provider.changes
    updated = told("resources/updated", uri=WATCHED)
    async with start_conversation(provider) as stage:
        watching, other = stage.client(), stage.client()
        subscribe = message("resources/subscribe", {"uri": WATCHED}, 1)
        assert await (other >> hello() << HELLO)
        assert await (
            watching
            >> (lambda: changes.list_changed("tools"))
            >> hello()
            << HELLO
            >> (lambda: changes.list_changed("tools"))
            << told("tools/list_changed")
            >> (lambda: changes.resource_updated(WATCHED))
            >> subscribe
            << answer(1, {})
            >> (lambda: changes.resource_updated(WATCHED))
            << updated
            >> (lambda: changes.resource_updated("test://another"))
            >> message("resources/unsubscribe", {"uri": WATCHED}, 2)
            << answer(2, {})
            >> (lambda: changes.resource_updated(WATCHED))
            >> message("resources/subscribe", {"uri": 5}, 3)
            << error(3, -32602, "uri must be a string")
        )
        assert await (other << told("tools/list_changed") << told("tools/list_changed"))


# ---- batches, and the end


async def test_a_batch_is_answered_as_one_where_the_revision_has_batches() -> None:
    note = message("notifications/initialized")
    batch = [message("ping", {}, 1), note, message("no/such", {}, 2)]
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello("2025-03-26")
            << result("hello", protocolVersion="2025-03-26")
            >> batch
            << [answer(1, {}), error(2, -32601)]
            >> [note, note]
            >> [message("initialize", {}, 3), note]
            << [error(3, -32600, "already")]
        )
        assert await (stage.client() >> hello() << HELLO >> batch << error(None, -32600, "does not support batches"))


async def test_a_session_goes_with_its_connection_and_its_calls_with_it() -> None:
    provider = Busy()
    ended: list[object] = []
    async with start_conversation(provider, on_end=ended.append) as stage:
        client = stage.client()
        assert await (client >> hello() << HELLO >> call(1, "hang") << told("progress"))
        assert await (client >> call(2, "hang") << told("progress"))
        assert len(stage.sessions) == 1
        await stage.peers[client].end(lost=True)
        assert (provider.cancelled, len(stage.sessions), len(ended)) == (2, 0, 1)
    assert len(ended) == 1


@requirement("wire.server.shutdown")
async def test_a_shutdown_ends_open_calls_with_an_error() -> None:
    async with start_conversation(Busy()) as stage:
        assert await (
            stage.client()
            >> hello()
            << HELLO
            >> call(1, "hang")
            << told("progress")
            >> stage.service.close
            << refusal(1, -32000, "shutting down")
            >> call(2, "hang")
            << error(2, -32000, "ended")
        )
