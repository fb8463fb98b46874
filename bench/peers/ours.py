"""`ours.py PORT TOKEN IDLE_SECONDS`: an echo tool on Rookery's wire, with the daemon's authentication."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import uvloop
from starlette.types import Receive, Scope, Send

from rookery.wire.http.auth import OWNER, Tokens, make_tcp_authenticator
from rookery.wire.http.listener import Listener, bind_port
from rookery.wire.http.pool import HttpLimits
from rookery.wire.protocol.messages import METHOD_NOT_FOUND, WireError
from rookery.wire.protocol.provider import Call, ChangeNotifier
from rookery.wire.server.session import Sessions
from rookery.wire.server.streamable import StreamableHttp

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class _Arguments(msgspec.Struct):
    text: str


_arguments = msgspec.json.Decoder(_Arguments)


class Echo:
    """A provider with one tool."""

    def __init__(self) -> None:
        self.info = {"name": "echo", "version": "1"}
        self.capabilities: dict[str, Any] = {"tools": {}}
        self.instructions = None
        self.changes = ChangeNotifier()

    async def handle(self, call: Call) -> Mapping[str, Any]:
        if call.method != "tools/call":
            raise WireError(METHOD_NOT_FOUND, f"no {call.method} here")
        text = _arguments.decode(call.params["arguments"]).text
        return {"content": [{"type": "text", "text": text}]}

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return _SCHEMA if tool == "echo" else None


async def serve(port: int, token: str, idle_seconds: float) -> None:
    sock = bind_port(port)
    assert sock is not None, f"port {port} is taken"
    tokens = Tokens()
    tokens.add(token, OWNER)
    provider = Echo()
    mcp = StreamableHttp(provider, Sessions(provider, idle_seconds=idle_seconds))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/mcp":
            await mcp(scope, receive, send)
            return
        # Without access to a session, which would expire idle ones.
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"%d" % len(mcp.sessions)})

    listener = Listener(sock, app, make_tcp_authenticator(port, tokens), HttpLimits())
    await listener.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    mcp.close()
    await listener.stop(2)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
