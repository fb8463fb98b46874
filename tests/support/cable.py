"""A connection that a test can cut: what comes in at one port goes out at another, byte by byte."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Cable:
    """In front of the server at `port` of this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._ends = set[asyncio.StreamWriter]()
        self._carriers = set[asyncio.Task[None]]()
        self.port = 0
        # How many connections were made over it.
        self.made = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """All connections break, and none can be made until it is mended."""
        self._server.close()
        self.jolt()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        await self._server.wait_closed()

    def jolt(self) -> None:
        """All connections break; others can be made at once."""
        for end in self._ends:
            end.transport.abort()

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers.add(task)
        self._ends.add(writer)
        self.made += 1
        try:
            with contextlib.suppress(OSError):
                their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._target)
                self._ends.add(their_writer)
                await asyncio.gather(_pass(reader, their_writer), _pass(their_reader, writer))
                self._ends.discard(their_writer)
        finally:
            self._ends.discard(writer)
            self._carriers.discard(task)
            writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()
