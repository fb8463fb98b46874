"""The same traffic through the official SDK's server and ours; every difference is listed with its reason."""

import http.client
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
import pytest
from msgspec import Raw

from rookery.wire.protocol.messages import METHOD_NOT_FOUND, WireError
from rookery.wire.protocol.provider import Call, ChangeNotifier
from rookery.wire.server.streamable import StreamableHttp
from tests.support.http.listener import start_listener, without_token
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

PEER = Path(__file__).parents[2] / "programs" / "sdk_echo.py"
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Echo:
    """What sdk_echo.py is, on our wire."""

    def __init__(self) -> None:
        self.info = {"name": "echo", "version": "1"}
        self.capabilities: Mapping[str, Any] = {"tools": {"listChanged": False}}
        self.instructions = None
        self.changes = ChangeNotifier()

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return SCHEMA

    async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
        if call.method == "tools/list":
            return {"tools": [{"name": "echo", "description": "Echoes.", "inputSchema": SCHEMA}]}
        if call.method != "tools/call":
            raise WireError(METHOD_NOT_FOUND, f"no {call.method}")
        given = msgspec.json.decode(call.params.get("arguments", Raw(b"{}")), type=dict[str, Any])
        return {"content": [{"type": "text", "text": str(given.get("text"))}], "isError": False}


def request(method: str, params: Any = None, **more: Any) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": method} | ({"params": params} if params is not None else {}) | more


def modern(method: str, params: Mapping[str, Any] | None = None, meta: Mapping[str, Any] = META) -> Any:
    return request(method, {**(params or {}), "_meta": dict(meta)})


CALL = {"name": "echo", "arguments": {"text": "hi"}}
SESSION = {"session": "yes"}
MODERN = {"MCP-Protocol-Version": "2026-07-28"}
CALLED = MODERN | {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}

# Name: HTTP method, body (bytes as they are), headers; `session` asks for that of a handshake done before.
CASES: dict[str, tuple[str, Any, dict[str, str]]] = {
    "initialize": ("POST", request("initialize", HELLO), {}),
    "initialize unknown revision": ("POST", request("initialize", HELLO | {"protocolVersion": "1999-01-01"}), {}),
    "list": ("POST", request("tools/list"), SESSION),
    "call": ("POST", request("tools/call", CALL), SESSION),
    "call with a string id": ("POST", request("tools/call", CALL, id="a"), SESSION),
    "ping": ("POST", request("ping"), SESSION),
    "unknown method": ("POST", request("no/such"), SESSION),
    "notification": ("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}, SESSION),
    "cancelled unknown": (
        "POST",
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        SESSION,
    ),
    "not json": ("POST", b"{", SESSION),
    "wrong jsonrpc": ("POST", request("ping", jsonrpc="1.0"), SESSION),
    "null id": ("POST", request("ping", id=None), SESSION),
    "params is a list": ("POST", request("tools/call", [1]), SESSION),
    "no session": ("POST", request("tools/list"), {}),
    "unknown session": ("POST", request("tools/list"), {"Mcp-Session-Id": "nope"}),
    "wrong content type": ("POST", request("ping"), SESSION | {"Content-Type": "text/plain"}),
    "get without accept": ("GET", b"", SESSION | {"Accept": "application/json"}),
    "put": ("PUT", request("ping"), SESSION),
    "modern discover": ("POST", modern("server/discover"), MODERN | {"Mcp-Method": "server/discover"}),
    "modern list": ("POST", modern("tools/list"), MODERN | {"Mcp-Method": "tools/list"}),
    "modern call": ("POST", modern("tools/call", CALL), CALLED),
    "modern unknown method": ("POST", modern("no/such"), MODERN | {"Mcp-Method": "no/such"}),
    "modern ping": ("POST", modern("ping"), MODERN | {"Mcp-Method": "ping"}),
    "modern without meta": ("POST", request("tools/list", {}), MODERN | {"Mcp-Method": "tools/list"}),
    "modern wrong method header": ("POST", modern("tools/call", CALL), CALLED | {"Mcp-Method": "tools/list"}),
    "modern wrong name header": ("POST", modern("tools/call", CALL), CALLED | {"Mcp-Name": "other"}),
    "modern without headers": ("POST", modern("tools/list"), {}),
    "modern get": ("GET", b"", MODERN),
    "modern delete": ("DELETE", b"", MODERN),
    "modern unsupported": (
        "POST",
        modern("tools/list", None, META | {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}),
        {"MCP-Protocol-Version": "2099-01-01", "Mcp-Method": "tools/list"},
    ),
}

# Where we answer otherwise, and why.
DIFFERENCES = {
    "wrong jsonrpc": "an envelope that does not fit is an invalid request (-32600), not invalid parameters",
    "null id": "MCP forbids null as an id; the SDK takes such a request for a notification and drops it",
    "params is a list": "the request has an id and gets a JSON-RPC error; only the modern era gives that a status",
    "wrong content type": "refused at the gate with 415, before anything is read: a web page could send it unasked",
    "put": "405 needs no JSON-RPC error: nothing of JSON-RPC was asked",
    "modern without headers": "it is a modern request that lacks its headers (-32020); the SDK looks for a session",
}


def ask(port: int, case: tuple[str, Any, dict[str, str]], session: str) -> tuple[int, Any]:
    """The status, and what of the answer is not a matter of taste: error code, or names in the result."""
    method, body, headers = case
    sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"} | headers
    if sent.pop("session", None):
        sent["Mcp-Session-Id"] = session
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, "/mcp", data or None, sent)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    try:
        found = json.loads(text)
    except ValueError:
        return answer.status, None
    if "error" in found:
        return answer.status, found["error"].get("code")
    return answer.status, sorted(found.get("result", {}))


def opened(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    connection.request("POST", "/mcp", json.dumps(request("initialize", HELLO)), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.getheader("Mcp-Session-Id") or ""


@pytest.fixture
async def ours() -> AsyncGenerator[int]:
    app = StreamableHttp(Echo())
    async with start_listener(app, judge_of=without_token) as site:
        yield site.port
        app.close()


@requirement("wire.interop.peers")
async def test_the_same_traffic_gets_the_same_answers_but_for_what_is_listed(ours: int) -> None:
    with subprocess.Popen([sys.executable, PEER], stdout=subprocess.PIPE, text=True) as peer:  # noqa: ASYNC220
        assert peer.stdout is not None
        try:
            theirs = int(await anyio.to_thread.run_sync(peer.stdout.readline))

            def compare() -> dict[str, tuple[Any, Any]]:
                sessions = opened(ours), opened(theirs)
                found = {
                    name: (ask(ours, case, sessions[0]), ask(theirs, case, sessions[1])) for name, case in CASES.items()
                }
                return {name: pair for name, pair in found.items() if pair[0] != pair[1]}

            different = await anyio.to_thread.run_sync(compare)
        finally:
            peer.terminate()
    assert different.keys() == DIFFERENCES.keys(), different
