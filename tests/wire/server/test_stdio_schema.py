"""Every message that we send is valid in the published schema of each revision."""

import json
from collections.abc import Mapping
from typing import Any

import mcp_types
import pytest
from mcp_types import methods

from rookery.wire.protocol import revisions
from tests.conformance.busy import PLAIN_TOOLS, WATCHED, Busy
from tests.support.mcp.line_client import LineClient, enveloped, hello, lines_to, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    *(("tools/call", {"name": tool, "arguments": {}}) for tool in PLAIN_TOOLS),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "test://static-text"}),
    ("resources/read", {"uri": "test://static-binary"}),
    ("resources/read", {"uri": "test://nowhere"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "test_prompt_with_embedded_resource", "arguments": {"resourceUri": "test://x"}}),
    ("prompts/get", {"name": "test_prompt_with_image"}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}),
    ("tools/call", {"name": "no_such"}),
    ("no/such", {}),
]
HANDSHAKE_ONLY: list[tuple[str, dict[str, Any]]] = [
    ("ping", {}),
    ("logging/setLevel", {"level": "debug"}),
    ("resources/subscribe", {"uri": WATCHED}),
    ("resources/unsubscribe", {"uri": "test://x"}),
    ("tools/call", {"name": "touch", "arguments": {}}),
]
# What each question is answered with.
ANSWERS: dict[str, dict[str, Any]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "none"},
    "roots/list": {"roots": []},
}
ASKING = ["test_input_required_result_sampling", "test_input_required_result_list_roots"]


class SchemaCheck:
    """Holds each message against the schema of one revision, and counts what it saw."""

    def __init__(self, revision: str, asked: Mapping[Any, str]) -> None:
        self.revision = revision
        self.asked = asked
        self.seen: set[str] = set()

    def check(self, found: dict[str, Any]) -> None:
        parsed = mcp_types.jsonrpc_message_adapter.validate_json(json.dumps(found), by_name=False)
        match parsed:
            case mcp_types.JSONRPCNotification():
                methods.parse_server_notification(parsed.method, self.revision, parsed.params)
                self.seen.add(parsed.method)
            case mcp_types.JSONRPCRequest():
                methods.parse_server_request(parsed.method, self.revision, parsed.params)
                self.seen.add(parsed.method)
            case mcp_types.JSONRPCResponse():
                method = self.asked[parsed.id]
                methods.validate_server_result(method, self.revision, parsed.result)
                self.seen.add(f"result of {method}")
            case mcp_types.JSONRPCError():
                self.seen.add(f"error {parsed.error.code}")


class Conversation:
    def __init__(self, client: LineClient, revision: str) -> None:
        self.client = client
        self.revision = revision
        self.asked: dict[Any, str] = {"hello": "initialize"}

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """One request, with progress and logs, and with answers to what is asked back."""
        id_ = len(self.asked)
        self.asked[id_] = method
        meta: dict[str, Any] = {"progressToken": id_}
        if self.revision in revisions.MODERN:
            sent = enveloped(params, **meta, **{revisions.META_LOG_LEVEL: "debug"})
        else:
            sent = {**params, "_meta": meta}
        self.client.send(message(method, sent, id_))
        while True:
            found = await self.client.next()
            if "method" in found and "id" in found:
                self.client.send({"jsonrpc": "2.0", "id": found["id"], "result": ANSWERS[found["method"]]})
            elif found.get("id") == id_:
                return found.get("result")


@pytest.mark.parametrize("revision", revisions.ALL)
@requirement("wire.revision.all", "wire.jsonrpc.answers", "wire.modern.results")
async def test_a_broad_conversation_holds_against_the_published_schema(revision: str) -> None:
    modern = revision in revisions.MODERN
    async with lines_to(Busy()) as client:
        talk = Conversation(client, revision)
        if not modern:
            await client.ask(hello(revision))
        else:
            await talk.ask("server/discover", {})
            changes = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": [WATCHED]}
            talk.asked["listen"] = "subscriptions/listen"
            await client.ask(message("subscriptions/listen", enveloped({"notifications": changes}), "listen"))
        for method, params in [*REQUESTS, *(HANDSHAKE_ONLY if not modern else HANDSHAKE_ONLY[-1:])]:
            await talk.ask(method, params)
        may_elicit = revision >= "2025-06-18"
        for tool in [*ASKING, *(["test_input_required_result_elicitation"] if may_elicit else [])]:
            params: dict[str, Any] = {"name": tool, "arguments": {}}
            first = await talk.ask("tools/call", params)
            if modern:
                assert first["resultType"] == "input_required"
                given = {key: ANSWERS[asked["method"]] for key, asked in first["inputRequests"].items()}
                again = {"inputResponses": given, "requestState": first["requestState"]}
                assert (await talk.ask("tools/call", params | again))["resultType"] == "complete"
        for line in (b"{", b"5"):
            assert (await client.ask(line))["id"] is None
        client.service.close()
    check = SchemaCheck(revision, talk.asked)
    for found in client.heard:
        check.check(found)
    answered = [found["id"] for found in client.heard if "method" not in found and found["id"] is not None]
    assert sorted(map(str, answered)) == sorted(map(str, [id_ for id_ in talk.asked if not modern or id_ != "hello"]))
    wanted = next(found for each, found in revisions.CLIENT_REQUESTS.items() if each == revision)
    expected = {
        "notifications/progress",
        "notifications/message",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
        "error -32700",
        "error -32600",
        "error -32601",
        "error -32602",
        *(f"result of {method}" for method in wanted),
    }
    assert expected <= check.seen
