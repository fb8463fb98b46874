"""The bus numbers events, keeps a bounded history, and waits for no reader."""

import asyncio
import contextlib

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from rookery.system.bus import READERS_CUT, Bus, Event, Subscription
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("house.api.events")]


class StillClock:
    """Stands where it is put."""

    def __init__(self, wall: float = 1000.0) -> None:
        self.now = wall

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def uptime(self) -> tuple[str, float]:
        return "boot", self.now


def bus(*, history: int = 5, queue: int = 5, wall: float = 1000.0) -> Bus:
    return Bus("test", history=history, max_queue=queue, clock=StillClock(wall))


def numbers(events: list[Event]) -> list[int]:
    return [event.data["n"] for event in events]


async def read(reader: Subscription) -> list[Event]:
    async with asyncio.timeout(10):
        return await reader.next_batch()


async def test_ids_grow_by_one_and_carry_their_time() -> None:
    made = bus(wall=1000.0)
    events = [made.publish("tick", n=n) for n in range(3)]
    assert [event.id for event in events] == [1_000_000_001, 1_000_000_002, 1_000_000_003]
    assert {(event.type, event.at) for event in events} == {("tick", 1000.0)}
    assert made.last_id == events[-1].id


async def test_ids_go_on_growing_after_a_restart() -> None:
    before = bus(wall=1000.0)
    for n in range(1000):
        before.publish("tick", n=n)
    assert bus(wall=1000.5).publish("tick", n=0).id > before.last_id


async def test_a_reader_gets_what_is_published_after_it_came() -> None:
    made = bus()
    made.publish("tick", n=0)
    reader = made.subscribe()
    made.publish("tick", n=1)
    made.publish("tick", n=2)
    assert numbers(await read(reader)) == [1, 2]
    made.publish("tick", n=3)
    assert numbers(await read(reader)) == [3]
    assert not reader.gap


async def test_since_resumes_exactly_behind_the_event_it_names() -> None:
    made = bus()
    events = [made.publish("tick", n=n) for n in range(5)]
    for event in events[:-1]:
        reader = made.subscribe(event.id)
        assert not reader.gap
        assert numbers(await read(reader)) == list(range(event.data["n"] + 1, 5))
    last = made.subscribe(events[-1].id)
    assert not last.gap
    made.publish("tick", n=5)
    assert numbers(await read(last)) == [5]


async def test_history_is_bounded_and_what_fell_out_of_it_is_told_as_a_gap() -> None:
    made = bus(history=3)
    events = [made.publish("tick", n=n) for n in range(10)]
    assert made.oldest_id == events[7].id
    for event in events:
        reader = made.subscribe(event.id)
        assert reader.gap == (event.data["n"] < 6), event.data
        if event is not events[-1]:
            assert numbers(await read(reader)) == list(range(max(event.data["n"] + 1, 7), 10))


@pytest.mark.parametrize("since", [0, 1, 999_999_999, 1_000_000_004, 10**17])
async def test_an_id_of_the_future_or_of_another_bus_is_a_gap(since: int) -> None:
    made = bus(wall=1000.0)
    for n in range(3):
        made.publish("tick", n=n)
    assert made.subscribe(since).gap


async def test_a_bus_where_nothing_happened_has_no_gap_behind_its_beginning() -> None:
    made = bus()
    assert not made.subscribe(made.last_id).gap
    assert made.subscribe(made.last_id - 1).gap
    assert made.oldest_id == made.last_id + 1


async def test_without_a_history_every_event_that_was_missed_is_a_gap() -> None:
    made = bus(history=0)
    start = made.last_id
    last = made.publish("tick", n=0)
    assert made.subscribe(start).gap
    assert not made.subscribe(last.id).gap


async def test_a14_a_reader_that_falls_behind_is_cut_off_and_another_gets_everything() -> None:
    made = bus(queue=5)
    before = READERS_CUT.value("test")
    slow, fast = made.subscribe(), made.subscribe()
    seen: list[int] = []
    for n in range(100):
        made.publish("tick", n=n)
        assert len(slow._queue) <= 5
        seen += numbers(await read(fast))
    assert seen == list(range(100))
    assert (slow.ended, fast.ended) == ("slow-reader", None)
    assert await read(slow) == []
    assert READERS_CUT.value("test") == before + 1
    assert made.reader_count == 1


async def test_a_reader_may_be_as_far_behind_as_the_queue_is_long() -> None:
    made = bus(queue=5)
    reader = made.subscribe()
    for n in range(5):
        made.publish("tick", n=n)
    assert reader.ended is None
    assert numbers(await read(reader)) == [0, 1, 2, 3, 4]


async def test_an_ended_reader_gets_the_rest_and_then_nothing_for_ever() -> None:
    made = bus()
    reader = made.subscribe()
    made.publish("tick", n=0)
    made.end_all("shutdown")
    made.publish("tick", n=1)
    assert numbers(await read(reader)) == [0]
    assert reader.ended == "shutdown"
    assert await read(reader) == []
    assert await read(reader) == []
    assert made.reader_count == 0


async def test_the_first_reason_to_end_is_the_one_that_counts() -> None:
    reader = bus().subscribe()
    reader.end("slow-reader")
    reader.end("client-gone")
    assert reader.ended == "slow-reader"


async def test_whoever_comes_after_the_end_is_ended_too() -> None:
    made = bus()
    since = made.last_id
    made.publish("tick", n=0)
    made.end_all("shutdown")
    reader = made.subscribe(since)
    assert reader.ended == "shutdown"
    assert numbers(await read(reader)) == [0]
    assert await read(made.subscribe()) == []
    assert made.reader_count == 0


async def test_a_wait_that_was_given_up_loses_nothing() -> None:
    made = bus()
    reader = made.subscribe()
    seen: list[int] = []
    for n in range(5):
        waiting = asyncio.ensure_future(reader.next_batch())
        await asyncio.sleep(0)
        made.publish("tick", n=n)
        waiting.cancel()  # in the very moment in which there is something
        with contextlib.suppress(asyncio.CancelledError):
            seen += numbers(await waiting)
    seen += numbers(await read(reader))
    assert seen == [0, 1, 2, 3, 4]


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4)),
    st.tuples(st.just("subscribe"), st.integers(-2, 12)),
    st.tuples(st.just("read"), st.integers(0, 5)),
    st.tuples(st.just("resume"), st.integers(0, 5)),
)


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=60), history=st.integers(0, 8), queue=st.integers(1, 8))
async def test_no_interleaving_loses_or_doubles_an_event(
    steps: list[tuple[str, int]], history: int, queue: int
) -> None:
    """Each reader sees a run of ids without a hole, from where it was told to the end, or to where it was cut off."""
    made = bus(history=history, queue=queue)
    begin = made.last_id
    readers: list[tuple[Subscription, int, list[int]]] = []

    def subscribe(since: int) -> None:
        known = range(made.last_id + 1 - min(history, made.last_id - begin), made.last_id + 1)
        reader = made.subscribe(since)
        assert reader.gap == (since + 1 not in range(known.start, known.stop + 1))
        readers.append((reader, known.stop if since > made.last_id else max(since + 1, known.start), []))

    async def take(reader: Subscription, first: int, seen: list[int]) -> None:
        if reader._wake.is_set():
            seen += [event.id for event in await read(reader)]
        assert seen == list(range(first, first + len(seen)))

    for what, number in steps:
        if what == "publish":
            for _ in range(number):
                made.publish("tick")
        elif what == "subscribe":
            subscribe(begin + number)
        elif readers:
            reader, first, seen = readers[number % len(readers)]
            await take(reader, first, seen)
            if what == "resume":
                reader.end("client-gone")
                subscribe(first + len(seen) - 1)
    for reader, first, seen in readers:
        await take(reader, first, seen)
        assert reader.ended is not None or first + len(seen) == made.last_id + 1
        assert len(reader._queue) <= max(queue, history)
    assert made.reader_count == sum(reader.ended is None for reader, _, _ in readers)
