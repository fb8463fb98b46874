"""`bodies.py PORT TOKEN KIND CLIENTS`: clients that send bodies which take long to read, until they are killed.

KIND is `chunks`, for chunks of one byte, or `objects`, for a message of several million empty objects. Prints a line
when all clients are connected.
"""

import asyncio
import contextlib
import sys

_CHUNKS = b"1\r\n \r\n" * 50_000
_OBJECTS = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"a":[%b{}]}}' % (b"{}," * 5_000_000)


async def _send(port: int, head: str, body: bytes, connected: asyncio.Semaphore) -> None:
    """Send requests one after another, on a new connection whenever the daemon closes one."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connected.release()
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(head.encode() + body)
                await writer.drain()
                await reader.read(65_536)
        writer.close()


async def _main(port: int, token: str, kind: str, clients: int) -> None:
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
    ]
    if kind == "chunks":
        lines.append("Transfer-Encoding: chunked")
        body = _CHUNKS + b"0\r\n\r\n"
    else:
        body = _OBJECTS
        lines.append(f"Content-Length: {len(body)}")
    connected = asyncio.Semaphore(0)
    head = "\r\n".join([*lines, "", ""])
    tasks = [asyncio.create_task(_send(port, head, body, connected)) for _ in range(clients)]
    for _ in tasks:
        await connected.acquire()
    print("connected", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
