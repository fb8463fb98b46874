"""A forward proxy that leads the names of a test to ports of this machine, and records what it is asked."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.mcp.client import within_limit


@dataclass
class ForwardProxy:
    """`routes` has the port of each `host:port` that may be reached. `credentials` is the required header, if any."""

    routes: dict[str, int]
    credentials: str | None = None
    port: int = 0
    # The first line and the headers of each request to the proxy.
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list[tuple[str, dict[str, str]]])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    await self._handle(reader, writer)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.asked.append((first, headers))
        method, target, version = first.split(" ")
        authority = target if method == "CONNECT" else target.removeprefix("http://").partition("/")[0]
        port = self.routes.get(authority if ":" in authority else f"{authority}:80")
        refused = self.credentials is not None and headers.get("proxy-authorization") != self.credentials
        if refused or port is None:
            await reader.readexactly(int(headers.get("content-length", 0)))
            status = "407 Proxy Authentication Required" if refused else "502 Bad Gateway"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
            else:
                kept = [line for line in lines if not line.lower().startswith("proxy-")]
                path = target.removeprefix(f"http://{authority}")
                there_writer.write("\r\n".join([f"{method} {path} {version}", *kept, "", ""]).encode("latin-1"))
                there_writer.write(await reader.readexactly(int(headers.get("content-length", 0))))
                there_writer.write_eof()
                writer.write((await there_reader.readuntil(b"\r\n\r\n"))[:-2] + b"Connection: close\r\n\r\n")
                await _copy(there_reader, writer)
        finally:
            there_writer.transport.abort()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def start_proxy(routes: dict[str, int], credentials: str | None = None) -> AsyncGenerator[ForwardProxy]:
    """Run a proxy. A connection without TLS carries one request."""
    proxy = ForwardProxy(routes, credentials)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1")
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
        await within_limit(server.wait_closed())
