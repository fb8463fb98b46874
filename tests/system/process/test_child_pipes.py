"""Our ends of a child's pipes."""

import asyncio
import os

import pytest

from rookery.system.process.child import PipeReader, PipeWriter

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class Kept:
    def __init__(self) -> None:
        self.seen = b""
        self.ended = 0

    def data(self, data: bytes) -> None:
        self.seen += data

    def end(self) -> None:
        self.ended += 1


async def test_what_is_written_is_read_and_the_end_is_told_once() -> None:
    reading, writing = os.pipe()
    kept = Kept()
    reader, writer = PipeReader(reading, kept), PipeWriter(writing)
    data = os.urandom(3_000_000)
    writer.write(data)
    async with asyncio.timeout(20):
        await writer.drain()
        writer.close()
        await reader.done.wait()
    reader.close()
    assert kept.seen == data
    assert kept.ended == 1


async def test_a_writer_whose_reader_has_gone_says_so_and_touches_no_other_descriptor() -> None:
    reading, writing = os.pipe()
    writer = PipeWriter(writing)
    os.close(reading)
    writer.write(b"into the void")
    with pytest.raises(ConnectionResetError):
        await writer.drain()
    # The number may belong to somebody else now.
    other, theirs = os.pipe()
    with pytest.raises(ConnectionResetError):
        writer.write(b"secret")
    writer.close()
    writer.abort()
    os.set_blocking(other, False)
    with pytest.raises(BlockingIOError):
        os.read(other, 100)
    os.close(other)
    os.close(theirs)


async def test_a_reader_that_does_not_read_holds_the_writer_and_not_the_loop() -> None:
    reading, writing = os.pipe()
    writer = PipeWriter(writing)
    writer.write(b"x" * 5_000_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await writer.drain()
    writer.abort()
    os.close(reading)
