"""`files.py PORT TOKEN ROOT TEXT`: the tools about files on our own wire, and beside them two that only answer.

`echo` answers the text that it is given, `same` the one in the file TEXT, which is read once.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from starlette.types import Receive, Scope, Send

from rookery.files.context.engine import ProjectContext
from rookery.files.sandbox import SandboxRoot
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.toolsets.project import ProjectTasks, project_toolset
from rookery.toolsets.toolset import ContentBlocks, NoArguments, Tool, Toolset
from rookery.wire.http.auth import OWNER, Tokens, make_tcp_authenticator
from rookery.wire.http.listener import Listener, bind_port
from rookery.wire.http.pool import HttpLimits
from rookery.wire.protocol.messages import decode_text
from rookery.wire.protocol.provider import Call, ChangeNotifier
from rookery.wire.server.session import Sessions
from rookery.wire.server.streamable import StreamableHttp


class Text(msgspec.Struct):
    text: str


class Here:
    """The one workspace that there is."""

    def __init__(self, root: SandboxRoot) -> None:
        self._root = root

    async def root(self) -> SandboxRoot:
        return self._root

    async def tasks(self) -> ProjectTasks:
        raise NotImplementedError

    async def context(self, call: Call) -> ProjectContext:
        raise NotImplementedError


class Provider:
    def __init__(self, toolset: Toolset) -> None:
        self.info = {"name": "files", "version": "1"}
        self.capabilities: dict[str, Any] = {"tools": {}}
        self.instructions = None
        self.changes = ChangeNotifier()
        self._toolset = toolset

    async def handle(self, call: Call) -> msgspec.Raw | Mapping[str, Any]:
        return await self._toolset.handle(call, {**call.params, "name": decode_text(call.params, "name")})

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return None


def toolset(root: SandboxRoot, text: str) -> Toolset:
    async def echo(call: Call, given: Text) -> ContentBlocks:
        return ContentBlocks([{"type": "text", "text": given.text}])

    async def same(call: Call, given: NoArguments) -> ContentBlocks:
        return ContentBlocks([{"type": "text", "text": text}])

    project = project_toolset(Here(root), Git(Spawner(new_id())))
    answering = [
        Tool("echo", "", echo, input_type=Text, output_type=ContentBlocks),
        Tool("same", "", same, output_type=ContentBlocks),
    ]
    return Toolset("bench", [*project.tools, *answering])


async def serve(port: int, token: str, root: Path, text: Path) -> None:
    sock = bind_port(port)
    assert sock is not None, f"port {port} is taken"
    tokens = Tokens()
    tokens.add(token, OWNER)
    with SandboxRoot(root) as held:
        provider = Provider(toolset(held, await asyncio.to_thread(text.read_text)))
        mcp = StreamableHttp(provider, Sessions(provider, idle_seconds=1800))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/mcp":
                await mcp(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"%d" % os.getpid()})

        listener = Listener(sock, app, make_tcp_authenticator(port, tokens), HttpLimits())
        await listener.start()
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        mcp.close()
        await listener.stop(2)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
