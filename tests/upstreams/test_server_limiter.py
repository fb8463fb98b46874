"""The concurrency limiter of a server: calls in progress, the queue, and the error when it is full."""

import asyncio
import os
import signal

import pytest

from rookery.system.errors import RookeryError
from rookery.upstreams.server import ConcurrencyLimiter
from tests.support.clock import let_pass
from tests.support.gateway.gateway import start_gateway
from tests.support.mcp.caller import ERAS, failure, told, words
from tests.support.mcp.scripted_server import Message, all_of, text
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("hub.call.limits")]


async def entered(limiter: ConcurrencyLimiter, caller: str) -> "asyncio.Task[None]":
    """Somebody who has come to the limiter, and may be waiting there."""
    task = asyncio.create_task(limiter.enter(caller))
    await asyncio.sleep(0)
    return task


async def some_of(
    running: "list[asyncio.Task[Message]]", count: int
) -> "tuple[list[Message], list[asyncio.Task[Message]]]":
    """The answers of the first so many that have one, and those that still wait."""
    done: list[Message] = []
    async with asyncio.timeout(10):
        while len(done) < count:
            ended, left = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            done, running = [*done, *(task.result() for task in ended)], list(left)
    return done, running


async def test_so_many_enter_so_many_wait_in_order_and_the_next_is_refused() -> None:
    limiter = ConcurrencyLimiter("one", 2, 2)
    inside = [await entered(limiter, "a") for _ in range(2)]
    waiting = [await entered(limiter, name) for name in "bc"]
    assert [task.done() for task in (*inside, *waiting)] == [True, True, False, False]
    with pytest.raises(RookeryError) as refused:
        await limiter.enter("d")
    assert refused.value.code == "server-busy"
    assert "2 calls" in refused.value.message and "2 are waiting" in refused.value.message
    limiter.leave("a")
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False]
    limiter.leave("a")
    await asyncio.sleep(0)
    assert waiting[1].done() and limiter.running == 2 and limiter.waiting == 0
    limiter.leave("b")
    limiter.leave("c")
    assert limiter.running == 0


async def test_with_exclusive_only_one_caller_is_inside_and_the_queue_keeps_its_order() -> None:
    limiter = ConcurrencyLimiter("one", 10, 10, exclusive=True)
    await limiter.enter("a")
    await limiter.enter("a")
    b = await entered(limiter, "b")
    again = await entered(limiter, "a")
    assert not b.done() and not again.done()
    limiter.leave("a")
    await asyncio.sleep(0)
    assert not b.done()
    limiter.leave("a")
    await asyncio.sleep(0)
    assert b.done() and not again.done()
    limiter.leave("b")
    await asyncio.sleep(0)
    assert again.done()


async def test_whoever_leaves_the_queue_makes_room_and_holds_up_nobody() -> None:
    limiter = ConcurrencyLimiter("one", 1, 2, exclusive=True)
    await limiter.enter("a")
    b, c = await entered(limiter, "b"), await entered(limiter, "c")
    b.cancel()
    await asyncio.gather(b, return_exceptions=True)
    assert limiter.waiting == 1
    limiter.leave("a")
    await asyncio.sleep(0)
    assert c.done() and limiter.running == 1


async def test_whoever_is_let_in_and_cancelled_in_the_same_moment_leaves_again() -> None:
    limiter = ConcurrencyLimiter("one", 1, 2)
    await limiter.enter("a")
    b, c = await entered(limiter, "b"), await entered(limiter, "c")
    limiter.leave("a")
    b.cancel()
    await asyncio.gather(b, return_exceptions=True)
    await asyncio.sleep(0)
    assert c.done() and not c.cancelled() and limiter.running == 1
    limiter.leave("c")
    assert limiter.running == 0 and limiter.waiting == 0


async def test_whoever_is_cancelled_and_passed_over_in_the_same_moment_is_only_cancelled() -> None:
    limiter = ConcurrencyLimiter("one", 1, 2)
    await limiter.enter("a")
    b, c = await entered(limiter, "b"), await entered(limiter, "c")
    b.cancel()
    limiter.leave("a")
    (found,) = await asyncio.gather(b, return_exceptions=True)
    assert isinstance(found, asyncio.CancelledError)
    await c
    assert limiter.running == 1 and limiter.waiting == 0


async def test_d18_cancelled_at_whatever_moment_nobody_is_left_inside() -> None:
    for exclusive in (False, True):
        limiter = ConcurrencyLimiter("one", 2, 50, exclusive=exclusive)

        async def visit(caller: str, limiter: ConcurrencyLimiter = limiter) -> None:
            await limiter.enter(caller)
            try:
                await asyncio.sleep(0)
            finally:
                limiter.leave(caller)

        for turns in range(12):
            tasks = [asyncio.create_task(visit("ab"[number % 2])) for number in range(10)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[turns % 3 :: 2]:
                task.cancel()
            async with asyncio.timeout(10):
                await asyncio.gather(*tasks, return_exceptions=True)
            assert limiter.running == limiter.waiting == 0


@pytest.mark.parametrize("era", ERAS)
async def test_through_the_gateway_the_limit_holds_and_the_refusal_says_so(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", calls=2, queue=1)) as gateway:
        caller = await gateway.caller("/mcp", era)
        first = [caller.begin("one__hold") for _ in range(2)]
        one = await gateway.scripted.comes("one")
        await one.called("hold", 2)
        more = [caller.begin("one__echo") for _ in range(3)]
        refused, (waiting,) = await some_of(more, 2)
        assert [failure(found) for found in refused] == ["server-busy"] * 2
        assert "raise `calls` or `queue`" in words(refused[0])
        assert one.calls("echo") == []
        for request in one.calls("hold"):
            one.answer(request, text("done"))
        assert told(await waiting)["tool"] == "echo"
        assert [words(found) for found in await all_of(first)] == ["done", "done"]


async def test_an_exclusive_server_works_for_one_client_at_a_time() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", exclusive=True, queue=1)) as gateway:
        first, second = await gateway.old_caller(), await gateway.old_caller()
        mine = [first.begin("one__hold") for _ in range(2)]
        one = await gateway.scripted.comes("one")
        await one.called("hold", 2)
        refused, (theirs,) = await some_of([second.begin("one__echo") for _ in range(2)], 1)
        assert [failure(found) for found in refused] == ["server-busy"]
        # Whose question this is, is certain: nobody else has a call in flight.
        one.say({"id": "q", "method": "roots/list"})
        assert "several clients" not in str(await one.hears(None))
        for request in one.calls("hold"):
            one.answer(request, text("done"))
        await all_of(mine)
        assert told(await theirs)["tool"] == "echo"
        assert [question["method"] for question in first.asked] == ["roots/list"]
        assert second.asked == []


async def test_calls_that_time_out_fail_or_are_left_give_their_place_back() -> None:
    limits = {"calls": 1, "queue": 0, "timeouts": {"execution": 5}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limits)) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        await one.called("hold")
        let_pass(5)
        assert failure(await running) == "timeout"
        running = caller.begin("one__hold")
        one.refuse(await one.called("hold", 2), -1, "no")
        assert "error" in await running
        running = caller.begin("one__hold")
        await one.called("hold", 3)
        running.cancel()
        await one.hears("notifications/cancelled", 2)
        assert told(await caller.call("one__echo"))["tool"] == "echo"
        running = caller.begin("one__hold")
        await one.called("hold", 4)
        os.kill(one.pid, signal.SIGKILL)
        assert failure(await running) == "upstream-failed"
        assert (await gateway.server("one")).limiter.running == 0
