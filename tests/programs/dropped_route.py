"""Run in its own network namespace: a client calls, its route is dropped, and the call must be cancelled."""

import asyncio
import fcntl
import socket
import struct
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from rookery.wire.protocol.provider import Call
from rookery.wire.server.streamable import StreamableHttp
from tests.conformance.fixture import Fixture
from tests.support.http.listener import start_listener, without_token

BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","_meta":{'
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
)


def loopback(up: bool) -> None:
    """SIOCSIFFLAGS on `lo`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        fcntl.ioctl(made, 0x8914, struct.pack("16sh", b"lo", 0x49 if up else 0x48))


class Hanging(Fixture):
    def __init__(self) -> None:
        super().__init__()
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {}


async def main() -> None:
    loopback(True)
    provider = Hanging()
    async with start_listener(StreamableHttp(provider), judge_of=without_token, silence=(1, 1, 2)) as site:
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nContent-Type: application/json\r\n"
        head += "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: hang\r\n"
        client = await site.client()
        await client.send(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode(), BODY)
        async with asyncio.timeout(20):
            await provider.begun.wait()
            loopback(False)
            print("dropped", flush=True)
            await provider.cancelled.wait()
            print("cancelled", flush=True)
            await site.connections.reach(0)
        print("freed", flush=True)


asyncio.run(main())
