"""Buffers for disconnected clients: limited by number and bytes, and an error for clients that are too late."""

import pytest

from rookery.wire.protocol.messages import WireError
from rookery.wire.server.session import STREAM_BYTES_KEPT, ResumableStreams
from rookery.wire.shares import HeldBytes, Shares
from tests.support.http.listener import within_limit

pytestmark = pytest.mark.anyio
MEGABYTE = b"x" * 1_000_000


async def test_a_stream_keeps_few_large_events_and_says_which_are_gone() -> None:
    streams = ResumableStreams(HeldBytes(Shares().replay_bytes, "owner"))
    stream = streams.new()
    for _ in range(100):
        stream.push(MEGABYTE)
    assert stream.size <= STREAM_BYTES_KEPT
    found, position = streams.find(f"{stream.name}-96")
    events, _ = await within_limit(found.wait_after(position))
    assert [event.split(b"\r\n")[0] for event in events] == [b"id: s1-97", b"id: s1-98", b"id: s1-99", b"id: s1-100"]
    for number in (0, 95):
        with pytest.raises(WireError, match="no longer kept"):
            streams.find(f"{stream.name}-{number}")


async def test_the_newest_event_is_kept_whatever_its_size() -> None:
    streams = ResumableStreams(HeldBytes(Shares().replay_bytes, "owner"))
    stream = streams.new()
    stream.push(b"small")
    stream.push(b"x" * (STREAM_BYTES_KEPT + 1))
    stream.end()
    found, position = streams.find(f"{stream.name}-1")
    events, position = await within_limit(found.wait_after(position))
    assert len(events[0]) > STREAM_BYTES_KEPT
    assert await within_limit(found.wait_after(position)) == ([], 2)


@pytest.mark.parametrize(("size", "kept"), [(10, 8), (1_000_000, 4), (STREAM_BYTES_KEPT, 1)])
def test_ended_streams_are_limited_in_number_and_size_and_running_ones_are_kept(size: int, kept: int) -> None:
    streams = ResumableStreams(HeldBytes(Shares().replay_bytes, "owner"))
    runs = streams.new()
    runs.push(MEGABYTE)
    for _ in range(20):
        stream = streams.new()
        stream.push(b"x" * size)
        stream.end()
    streams.new()
    assert streams.find("s1-0") == (runs, 0)
    known = [number for number in range(2, 22) if is_known(streams, f"s{number}-0")]
    assert known == list(range(22 - kept, 22))


def is_known(streams: ResumableStreams, event_id: str) -> bool:
    try:
        streams.find(event_id)
    except WireError:
        return False
    return True
