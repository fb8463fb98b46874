"""`echo.py stdio TOOLS [WAIT]` or `echo.py http PORT TOOLS`: a fast upstream, the same for every gateway.

It speaks both eras, and has 1 to 100 tools that return their input: `echo`, `echo_01`, `echo_02` and so on. It starts
after WAIT seconds. `echo.py hang`, `exit` and `garbage` are servers that cannot be connected.
"""

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

_MODERN = "2026-07-28"
_READ = 1 << 18
_INFO = {"name": "echo", "version": "1"}
_META = {"io.modelcontextprotocol/serverInfo": _INFO}
_CACHE = {"ttlMs": 60_000, "cacheScope": "public"}
_NO_METHOD = {"code": -32601, "message": "Method not found"}
# With this description, a thousand tools are about as large as real ones: 400 kB.
_DESCRIPTION = "Returns its input unchanged and does nothing else; it is for measuring the cost of a call alone. "
_SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The text to return; of any length."}},
    "required": ["text"],
    "additionalProperties": False,
}
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_NOT_ALLOWED = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"


class _Meta(msgspec.Struct):
    version: str | None = msgspec.field(default=None, name="io.modelcontextprotocol/protocolVersion")


class _Arguments(msgspec.Struct):
    text: str = ""


class _Params(msgspec.Struct):
    meta: _Meta | None = msgspec.field(default=None, name="_meta")
    arguments: _Arguments | None = None
    wanted: str = msgspec.field(default="", name="protocolVersion")


class _Message(msgspec.Struct):
    method: str = ""
    id: int | str | None = None
    params: _Params | None = None


class Echo:
    """Responds to one message at a time."""

    def __init__(self, tools: int) -> None:
        names = ["echo", *(f"echo_{number:02}" for number in range(1, tools))]
        described = [{"name": name, "description": _DESCRIPTION * 2, "inputSchema": _SCHEMA} for name in names]
        self._tools = msgspec.Raw(msgspec.json.encode(described))
        self._decoder = msgspec.json.Decoder(_Message)
        self._encoder = msgspec.json.Encoder()

    def respond(self, line: bytes) -> bytes | None:
        message = self._decoder.decode(line)
        if message.id is None:
            return None
        params = message.params or _Params()
        modern = params.meta is not None and params.meta.version == _MODERN
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id}
        result = self._result(message.method, params, modern=modern)
        if result is None:
            return self._encoder.encode(response | {"error": _NO_METHOD})
        response["result"] = {**result, "resultType": "complete", "_meta": _META} if modern else result
        return self._encoder.encode(response)

    def _result(self, method: str, params: _Params, *, modern: bool) -> Mapping[str, Any] | None:
        cache = _CACHE if modern else {}
        match method:
            case "tools/call":
                return {"content": [{"type": "text", "text": (params.arguments or _Arguments()).text}]}
            case "tools/list":
                return {"tools": self._tools, **cache}
            case "server/discover" if modern:
                return {"supportedVersions": [_MODERN], "capabilities": {"tools": {}}, **cache}
            case "initialize" if not modern:
                return {"protocolVersion": params.wanted, "capabilities": {"tools": {}}, "serverInfo": _INFO}
            case "ping" if not modern:
                return {}
            case _:
                return None


def over_stdio(echo: Echo) -> None:
    """Respond in one write to all lines that were read at once."""
    rest = b""
    while data := os.read(0, _READ):
        *lines, rest = (rest + data).split(b"\n")
        responses = [response for line in lines if line and (response := echo.respond(line)) is not None]
        if responses:
            _write(b"\n".join(responses) + b"\n")


def over_http(echo: Echo, port: int) -> None:
    import asyncio

    import httptools
    import uvloop

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport = cast(asyncio.Transport, transport)
            self._parser = httptools.HttpRequestParser(self)
            self._body = self._url = b""

        def data_received(self, data: bytes) -> None:
            self._parser.feed_data(data)

        def on_url(self, url: bytes) -> None:
            self._url = url

        def on_body(self, body: bytes) -> None:
            self._body += body

        def on_message_complete(self) -> None:
            body, self._body = self._body, b""
            if self._parser.get_method() == b"POST":
                response = echo.respond(body)
                self._transport.write(_ACCEPTED if response is None else _OK % len(response) + response)
            else:
                # There is no event stream; the root only shows that the server is up.
                self._transport.write(_OK % 0 if self._url == b"/" else _NOT_ALLOWED)
            if not self._parser.should_keep_alive():
                self._transport.close()

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
        await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _listen_only(reply: bytes) -> None:
    _write(reply)
    while os.read(0, _READ):
        _write(reply)


def main(kind: str, *words: str) -> None:
    match kind, *words:
        case "stdio", tools, *wait:
            if wait:
                time.sleep(float(wait[0]))
            over_stdio(Echo(int(tools)))
        case "http", port, tools:
            over_http(Echo(int(tools)), int(port))
        case ["hang"]:
            _listen_only(b"")
        case ["garbage"]:
            _listen_only(b"%% this is not JSON, and never will be\n")
        case ["exit"]:
            sys.exit(1)
        case _:
            sys.exit(f"{__doc__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
