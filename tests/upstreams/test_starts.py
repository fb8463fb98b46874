"""The order in which servers are started."""

import asyncio

import pytest

from rookery.upstreams.starts import StartQueue
from tests.support.clock import let_pass
from tests.support.soak import repetitions, soak

pytestmark = pytest.mark.anyio


class Starts:
    """Servers that start in a queue until the test ends their start."""

    def __init__(self, queue: StartQueue) -> None:
        self.queue = queue
        self.begun: list[str] = []
        self.more = asyncio.Event()
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def add(self, *names: str, urgent: bool = False) -> None:
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._start(name, urgent))
        await self.settle()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _start(self, name: str, urgent: bool) -> None:
        async with self.queue.slot(self.ends[name], urgent=urgent):
            self.begun.append(name)
            self.more.set()
            await self.ends[name].wait()


async def test_servers_start_in_order_and_so_many_at_a_time() -> None:
    starts = Starts(StartQueue(2))
    await starts.add("a", "b", "c", "d")
    assert starts.begun == ["a", "b"]
    await starts.end("b")
    assert starts.begun == ["a", "b", "c"]
    for name in "acd":
        await starts.end(name)
    assert starts.begun == ["a", "b", "c", "d"]


async def test_a_call_lets_its_server_start_before_all_others() -> None:
    starts = Starts(StartQueue(1))
    await starts.add("a", "b", "c")
    starts.queue.hurry(starts.ends["c"])
    await starts.settle()
    assert starts.begun == ["a", "c"]
    await starts.add("d", urgent=True)
    assert starts.begun == ["a", "c", "d"]
    # Those that did not wait count: the next one starts when all of them have.
    for name in "acd":
        assert "b" not in starts.begun
        await starts.end(name)
    assert starts.begun[-1] == "b"
    await starts.end("b")


async def test_servers_that_hang_give_their_slots_to_others_after_a_while() -> None:
    starts = Starts(StartQueue(2, slot_seconds=60))
    await starts.add("hangs", "too", "a", "b", "c")
    assert starts.begun == ["hangs", "too"]
    let_pass(60)
    async with asyncio.timeout(10):
        while len(starts.begun) < 4:
            starts.more.clear()
            await starts.more.wait()
    assert starts.begun == ["hangs", "too", "a", "b"]
    # Their end gives no second slot.
    await starts.end("hangs")
    await starts.end("too")
    assert starts.begun == ["hangs", "too", "a", "b"]
    for name in "abc":
        await starts.end(name)


@soak
async def test_a_start_that_is_cancelled_at_whatever_moment_keeps_no_slot() -> None:
    for moment in range(repetitions(8, 40)):
        starts = Starts(StartQueue(1))
        await starts.add("a", "b", "c")
        starts.ends["a"].set()
        for _ in range(moment):
            await asyncio.sleep(0)
        starts.tasks["b"].cancel()
        await asyncio.wait([starts.tasks["b"]])
        await starts.end("c")
        await starts.add("d")
        assert starts.begun[-1] == "d"
        await starts.end("d")
