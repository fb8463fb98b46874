"""MCP over stdio: the output is always one message for each line, and no call outlives its client."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rookery.wire.protocol.provider import Call
from tests.conformance.busy import Busy
from tests.support.http.listener import LIMIT, within_limit
from tests.support.mcp.line_client import enveloped, hello, lines_to, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]


def call(id_: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": id_}}
    return message("tools/call", params, id_)


def modern_call(id_: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", enveloped({"name": tool, "arguments": arguments}, progressToken=id_), id_)


CALLS = pytest.mark.parametrize("called", [call, modern_call], ids=["handshake", "modern"])


@requirement("wire.stdio.server", "wire.jsonrpc.errors", "wire.limits.messages")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"what?", -32700),
        (b'{"jsonrpc": "2.0", "method": "x\xff"}', -32700),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": 1, "params": {"a": "\xff"}}', -32700),
        (b"5", -32600),
        (b"[]", -32600),
        (b'{"jsonrpc": "1.0", "method": "ping", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": null}', -32600),
        (b"[" * 600 + b"]" * 600, -32600),
        (b'[{"jsonrpc": "2.0", "method": "ping", "id": 1}, {"jsonrpc": "2.0", "method": "ping", "id": 2}]', -32600),
    ],
)
async def test_a_line_that_is_no_message_is_answered_and_the_next_one_is_served(line: bytes, code: int) -> None:
    async with lines_to(Busy()) as client:
        answer = await client.ask(line)
        assert (answer["id"], answer["error"]["code"]) == (None, code)
        assert await client.ask(message("ping", None, 7)) == {"jsonrpc": "2.0", "id": 7, "result": {}}


@requirement("wire.jsonrpc.errors")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_unknown_methods_and_tools_and_bad_parameters_have_their_codes(era: str) -> None:
    def around(params: dict[str, Any]) -> dict[str, Any]:
        return enveloped(params) if era == "modern" else params

    async with lines_to(Busy()) as client:
        await client.ask(hello())
        for method, params, code in (
            ("no/such", {}, -32601),
            ("tools/call", {"name": "no_such"}, -32602),
            ("tools/call", {"name": 5}, -32602),
            ("tools/call", {}, -32602),
        ):
            answer = await client.ask(message(method, around(params), "it"))
            assert (answer["id"], answer["error"]["code"]) == ("it", code), method
        answer = await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": [1]})
        assert answer["error"]["code"] == -32602


@requirement("wire.limits.messages")
async def test_a_line_over_the_limit_is_refused_by_name_and_not_kept() -> None:
    async with lines_to(Busy(), line_bytes=1000) as client:
        client.send(b"x" * 700, end=b"")
        client.send(b"x" * 700, end=b"")
        answer = await client.next()
        assert answer["error"]["code"] == -32600 and "1000 bytes" in answer["error"]["message"]
        client.send(b"x" * 5000)
        assert await client.ask(message("ping", None, 1)) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert len(client.heard) == 2


async def test_carriage_returns_empty_lines_and_lines_in_pieces_are_no_matter() -> None:
    async with lines_to(Busy()) as client:
        client.send(b"", b"\r", b"  ")
        whole = json.dumps(message("ping", None, 1)).encode()
        client.send(whole, end=b"\r\n")
        client.send(whole[:10], end=b"")
        client.send(whole[10:])
        assert [(await client.next())["id"] for _ in range(2)] == [1, 1]


async def test_a_result_that_came_in_several_lines_goes_out_in_one() -> None:
    class Relay(Busy):
        async def handle(self, call: Call) -> Any:
            return Raw(b'{\r\n  "content": [\n{"type": "text", "text": "two\\nlines"}]\n}')

    async with lines_to(Relay()) as client:
        await client.ask(hello())
        answer = await client.ask(call(1, "any"))
        assert answer["result"]["content"][0]["text"] == "two\nlines"


@CALLS
async def test_the_end_of_the_input_cancels_every_call(called: Any) -> None:
    provider = Busy()
    async with lines_to(provider) as client:
        await client.ask(hello())
        await client.ask(called(1, "hang"))
        await client.ask(called(2, "hang"))
        sessions = client.service.sessions
    assert provider.cancelled == 2
    assert len(sessions) == 0
    assert [found["id"] for found in client.heard if "id" in found] == ["hello"]


@CALLS
@requirement("wire.server.shutdown")
async def test_a_shutdown_ends_calls_with_an_error_and_subscriptions_with_a_result(called: Any) -> None:
    async with lines_to(Busy()) as client:
        await client.ask(hello())
        await client.ask(called(1, "hang"))
        await client.ask(message("subscriptions/listen", enveloped({"notifications": {}}), "listen"))
        client.service.close()
        ended = {found["id"]: found for found in [await client.next() for _ in range(2)]}
        assert ended[1]["error"] == {"code": -32000, "message": "shutting down"}
        assert ended["listen"]["result"]["resultType"] == "complete"


@requirement("wire.stdio.server")
async def test_a_process_writes_nothing_but_messages_to_stdout_whatever_is_printed() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.conformance.serve_stdio", "--noisy"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(msgspec.json.encode(hello()) + b"\n")
    first = await within_limit(process.stdout.readline())
    process.stdin.close()
    out, err = await within_limit(process.communicate())
    assert json.loads(first)["id"] == "hello"
    assert (out, err) == (b"", b"not a message\n")
    assert process.returncode == 0


@pytest.mark.parametrize("kind", ["file", "nothing"])
async def test_a_process_whose_input_cannot_be_waited_for_reads_it_all_the_same(kind: str, tmp_path: Path) -> None:
    given = tmp_path / "in"
    given.write_bytes(msgspec.json.encode(hello()) + b"\n" if kind == "file" else b"")
    got = tmp_path / "out"
    with (given if kind == "file" else Path("/dev/null")).open("rb") as stdin, got.open("wb") as stdout:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.conformance.serve_stdio", stdin=stdin, stdout=stdout, cwd=ROOT
        )
        async with asyncio.timeout(LIMIT):
            assert await process.wait() == 0
    assert [json.loads(line)["id"] for line in got.read_bytes().splitlines()] == (["hello"] if kind == "file" else [])
