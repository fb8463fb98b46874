"""Run in a network namespace of its own: a client calls, the route is dropped, and the call must be cancelled."""

import asyncio
import fcntl
import socket
import struct
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from rookery.wire.front import Limits
from rookery.wire.gate import Tokens, tcp_judge
from rookery.wire.listener import Listener, bind_port
from rookery.wire.provider import Call
from rookery.wire.streamable import StreamableHttp
from tests.conformance.fixture import Fixture

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
    sock = bind_port(0, silence=(1, 1, 2))
    assert sock is not None
    port = sock.getsockname()[1]
    provider = Hanging()
    listener = Listener(sock, StreamableHttp(provider), tcp_judge(port, Tokens(), require_token=False), Limits())
    await listener.start()
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    head += "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: hang\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
    async with asyncio.timeout(20):
        await provider.begun.wait()
        loopback(False)
        print("dropped", flush=True)
        await provider.cancelled.wait()
        print("cancelled", flush=True)
        await listener.door.empty.wait()
    print("freed", flush=True)
    writer.transport.abort()


asyncio.run(main())
