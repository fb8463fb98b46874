"""The server that the suite tests differs from the product only in that it needs no token."""

import http.client
import json
from typing import Any

import anyio.to_thread
import pytest

from rookery.wire.http.auth import OWNER, Tokens, make_tcp_authenticator
from rookery.wire.server.streamable import StreamableHttp
from tests.conformance.fixture import Fixture
from tests.support.http.listener import start_listener, without_token

pytestmark = pytest.mark.anyio

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALLS = ["server/discover", "tools/list", "resources/list", "prompts/list", "no/such/method"]


def ask(port: int, method: str, token: str | None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Content-Type": "application/json", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META}})
    try:
        connection.request("POST", "/mcp", body, headers | ({"Authorization": f"Bearer {token}"} if token else {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def test_the_token_gate_is_the_only_difference_between_the_two_ways_of_serving() -> None:
    tokens = Tokens()
    tokens.add("rk_secret", OWNER)
    app = StreamableHttp(Fixture())
    async with (
        start_listener(app, judge_of=lambda port: make_tcp_authenticator(port, tokens)) as guarded,
        start_listener(app, judge_of=without_token) as open_to_all,
    ):

        def compare() -> None:
            for method in CALLS:
                assert ask(guarded.port, method, "rk_secret") == ask(open_to_all.port, method, None)
                assert ask(guarded.port, method, None)[0] == 401

        await anyio.to_thread.run_sync(compare)
        app.close()
