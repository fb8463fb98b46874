"""MCP over stdin and stdout: one message per line, in both eras."""

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from rookery.wire.protocol.framing import LineSplitter, join_lines
from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.server.duplex import DuplexConnection
from rookery.wire.server.service import Service

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
    peer = DuplexConnection(service, owner, lambda message: write(join_lines(message) + b"\n"))
    too_long = WireError(INVALID_REQUEST, f"a message must not be longer than {line_bytes} bytes").encode(None)
    lines = LineSplitter(line_bytes)
    service.on_close.add(reader.feed_eof)
    try:
        while not service.is_closing and (data := await reader.read(_CHUNK)):
            for line in lines.feed(data):
                if line is None:
                    await peer.send(too_long)
                elif line.strip():
                    await peer.handle_frame(line)
    finally:
        service.on_close.discard(reader.feed_eof)
        await peer.end(lost=not service.is_closing)


async def serve_stdio(service: Service) -> None:
    """Serve one client on the stdin and stdout of this process."""
    reader, writer = await open_stdio()
    try:
        await serve_lines(service, reader, writer.write)
    finally:
        await writer.close()


class LineWriter(Protocol):
    """Writes lines. A closed reader raises ConnectionError, or ends the input."""

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


async def open_stdio() -> tuple[asyncio.StreamReader, LineWriter]:
    """Return the stdin and stdout of this process for messages alone. Later prints go to stderr."""
    incoming, outgoing = _redirect_stdio()
    reader = await _open_reader(incoming)
    return reader, await _open_writer(outgoing, reader)


def _redirect_stdio() -> tuple[int, int]:
    """Return copies of fd 0 and 1, and redirect these, so that a stray print cannot corrupt the messages."""
    sys.stdout.flush()
    copies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return copies


async def _open_reader(fd: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    if _is_pipe(fd):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0))
    else:
        threading.Thread(target=_read_blocking, args=(fd, reader, loop), daemon=True).start()
    return reader


def _read_blocking(fd: int, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    """Read in a thread: the loop cannot wait for a file, and a terminal must stay in blocking mode."""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        while data := os.read(fd, _CHUNK):
            loop.call_soon_threadsafe(reader.feed_data, data)
        loop.call_soon_threadsafe(reader.feed_eof)


class _PipeWriter(asyncio.BaseProtocol):
    """Writes to a pipe. When the pipe closes, the input ends too."""

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


class _FileWriter:
    """Writes to a file or a terminal."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "wb", 0)

    async def write(self, data: bytes) -> None:
        self._file.write(data)

    async def close(self) -> None:
        self._file.close()


async def _open_writer(fd: int, reader: asyncio.StreamReader) -> _PipeWriter | _FileWriter:
    if not _is_pipe(fd):
        return _FileWriter(fd)
    loop = asyncio.get_running_loop()
    transport, writer = await loop.connect_write_pipe(lambda: _PipeWriter(reader), os.fdopen(fd, "wb", 0))
    writer.transport = transport
    return writer


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
