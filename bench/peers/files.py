"""`files.py PORT TOKEN ROOT TEXT`: Rookery's file tools over its own wire, and two tools to compare them with.

`echo` returns its input; `same` returns the text in the file TEXT, which is read once.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop
from starlette.types import Receive, Scope, Send

from rookery.files.context.engine import ProjectContext
from rookery.files.sandbox import SandboxRoot
from rookery.operations.operation import bind_operations
from rookery.operations.project.files import FileOperations
from rookery.operations.results import ContentBlocks
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.toolsets.project import project_toolset
from rookery.toolsets.toolset import NoArguments, Tool, Toolset
from rookery.wire.http.auth import OWNER, Tokens, make_tcp_authenticator
from rookery.wire.http.listener import Listener, bind_port
from rookery.wire.http.pool import HttpLimits
from rookery.wire.protocol.messages import decode_text
from rookery.wire.protocol.provider import Call, ChangeNotifier
from rookery.wire.server.session import Sessions
from rookery.wire.server.streamable import StreamableHttp


class Text(msgspec.Struct):
    text: str


class OnlyWorkspace:
    """The files of the only workspace that there is."""

    def __init__(self, root: SandboxRoot) -> None:
        self._root = root

    async def root(self, directory: Path) -> SandboxRoot:
        return self._root

    async def context(self, directory: Path, *, everything: bool) -> ProjectContext:
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
    async def echo(call: Call, arguments: Text) -> ContentBlocks:
        return ContentBlocks([{"type": "text", "text": arguments.text}])

    async def same(call: Call, arguments: NoArguments) -> ContentBlocks:
        return ContentBlocks([{"type": "text", "text": text}])

    files = OnlyWorkspace(root)
    # The tools act in the workspace that the client has selected: none is looked up.
    operations = bind_operations(FileOperations(cast(Any, None), files, Git(Spawner(new_id()))))
    project = project_toolset(operations, files, None, root.path)
    echo_tools = [
        Tool("echo", "", echo, input_type=Text, output_type=ContentBlocks),
        Tool("same", "", same, output_type=ContentBlocks),
    ]
    return Toolset("bench", [*project.tools, *echo_tools])


async def serve(port: int, token: str, root: Path, text: Path) -> None:
    sock = bind_port(port)
    assert sock is not None, f"port {port} is taken"
    tokens = Tokens()
    tokens.add(token, OWNER)
    with SandboxRoot(root) as sandbox:
        provider = Provider(toolset(sandbox, await asyncio.to_thread(text.read_text)))
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
