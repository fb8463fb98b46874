"""MCP over stdin and stdout: one message a line, both eras, and nothing but messages."""

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from rookery.wire.connection import Peer
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.lines import Lines, one_line
from rookery.wire.service import Service

_CHUNK = 65_536
LINE_BYTES = 67_108_864


async def serve_lines(
    service: Service,
    reader: asyncio.StreamReader,
    write: Callable[[bytes], Awaitable[None]],
    *,
    owner: str = "owner",
    line_bytes: int = LINE_BYTES,
) -> None:
    """Serve one client until it closes its end or the service closes."""
    peer = Peer(service, owner, lambda message: write(one_line(message) + b"\n"))
    too_long = WireError(INVALID_REQUEST, f"a message must not be longer than {line_bytes} bytes").encoded(None)
    lines = Lines(line_bytes)
    service.on_close.add(reader.feed_eof)
    try:
        while not service.closing and (data := await reader.read(_CHUNK)):
            for line in lines.feed(data):
                if line is None:
                    await peer.send(too_long)
                elif line.strip():
                    await peer.take(line)
    finally:
        service.on_close.discard(reader.feed_eof)
        await peer.end(lost=not service.closing)


async def serve_stdio(service: Service) -> None:
    """Serve on this process's stdin and stdout."""
    reader, out = await open_stdio()
    try:
        await serve_lines(service, reader, out.write)
    finally:
        await out.close()


class Out(Protocol):
    """Where lines are written to. A reader that has gone is a ConnectionError, or an end of what is read."""

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


async def open_stdio() -> tuple[asyncio.StreamReader, Out]:
    """This process's stdin and stdout, for messages alone. What anybody prints from now on goes to stderr."""
    incoming, outgoing = _take_over()
    reader = await _open_in(incoming)
    return reader, await _open_out(outgoing, reader)


def _take_over() -> tuple[int, int]:
    """Copies of fd 0 and 1, which themselves lead elsewhere from now on: a stray print cannot break the wire."""
    sys.stdout.flush()
    kept = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return kept


async def _open_in(fd: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    if _is_pipe(fd):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0))
    else:
        threading.Thread(target=_read_blocking, args=(fd, reader, loop), daemon=True).start()
    return reader


def _read_blocking(fd: int, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    """A file cannot be waited for, and a terminal is not ours to make non-blocking."""
    with contextlib.suppress(RuntimeError):  # the loop has ended before
        while data := os.read(fd, _CHUNK):
            loop.call_soon_threadsafe(reader.feed_data, data)
        loop.call_soon_threadsafe(reader.feed_eof)


class _PipeOut(asyncio.BaseProtocol):
    """Writes to a pipe; its end is the end of what is read too."""

    transport: asyncio.WriteTransport

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._writable.set()
        self._reader.feed_eof()

    async def write(self, data: bytes) -> None:
        if self._closed.is_set():
            raise BrokenPipeError
        self.transport.write(data)
        await self._writable.wait()

    async def close(self) -> None:
        self.transport.close()
        await self._closed.wait()


class _FileOut:
    """Writes to a file or a terminal."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "wb", 0)

    async def write(self, data: bytes) -> None:
        self._file.write(data)

    async def close(self) -> None:
        self._file.close()


async def _open_out(fd: int, reader: asyncio.StreamReader) -> _PipeOut | _FileOut:
    if not _is_pipe(fd):
        return _FileOut(fd)
    loop = asyncio.get_running_loop()
    transport, made = await loop.connect_write_pipe(lambda: _PipeOut(reader), os.fdopen(fd, "wb", 0))
    made.transport = transport
    return made


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
