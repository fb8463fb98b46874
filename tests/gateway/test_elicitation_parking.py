"""Parked calls, with a clock that the tests set."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rookery.gateway.elicitation import ParkedCalls
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.protocol.messages import WireError
from rookery.wire.protocol.provider import Call, ClientProfile, ClientQuestion
from rookery.wire.protocol.sealed_state import Seal
from rookery.wire.server.call import RunningCall
from tests.support.clock import SetClock
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

CLIENT = ClientProfile("2026-07-28", {"roots": {}, "elicitation": {}}, {})
ROOTS = ClientQuestion("roots/list", {})
HERE = object()


@dataclass
class Work:
    """Asks so many times, one after the other, and then ends; unless it was cancelled before."""

    times: int = 1
    got: list[Any] = field(default_factory=list[Any])
    cancelled: bool = False

    async def __call__(self, call: Call) -> Mapping[str, Any]:
        try:
            for _ in range(self.times):
                self.got.append((await call.ask({"r": ROOTS}))["r"])
                await call.notify("told", {})
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return {"done": len(self.got)}


def a_call(owner: str = "owner", connection: object | None = None, **params: Any) -> RunningCall:
    async def send(message: bytes) -> None:
        """It is not read."""

    raw = {key: Raw(msgspec.json.encode(value)) for key, value in ({"name": "t"} | params).items()}
    about: Any = (CLIENT, None, send, Seal(), owner)
    return RunningCall(1, "tools/call", raw, {}, *about, connection=connection)


def next_call(asked: Mapping[str, Any], owner: str = "owner", answer: Any = None) -> RunningCall:
    responses: dict[str, Any] = {key: answer or {"roots": []} for key in asked["inputRequests"]}
    return a_call(owner, requestState=asked["requestState"], inputResponses=responses)


@asynccontextmanager
async def a_parking(**limits: Any) -> AsyncGenerator[tuple[ParkedCalls, SetClock]]:
    clock = SetClock()
    made = ParkedCalls(clock=clock, **limits)
    try:
        yield made, clock
    finally:
        await made.close()


async def parked(parking: ParkedCalls, work: Work, call: RunningCall | None = None) -> Any:
    asked = await parking.start(HERE, call or a_call(), work)
    assert isinstance(asked, dict) and asked["resultType"] == "input_required"
    return asked


@requirement("hub.call.parked")
async def test_a_call_waits_ten_minutes_from_its_last_question_and_is_given_up_then() -> None:
    async with a_parking() as (parking, clock):
        work = Work(times=2)
        first = await parked(parking, work)
        clock.now += 599
        parking.expire()
        second: Any = await parking.resume(HERE, next_call(first))
        clock.now += 599
        parking.expire()
        assert len(parking) == 1 and not work.cancelled
        clock.now += 2
        parking.expire()
        await asyncio.sleep(0)
        assert work.cancelled and len(parking) == 0
        with pytest.raises(WireError, match="expired; call again"):
            await parking.resume(HERE, next_call(second))


@requirement("hub.call.parked")
async def test_s4_a_state_is_used_once_and_by_its_own_caller() -> None:
    async with a_parking() as (parking, _):
        work = Work(times=2)
        first = await parked(parking, work)
        with pytest.raises(WireError, match="belongs to another call"):
            await parking.resume(HERE, next_call(first, "somebody else"))
        with pytest.raises(WireError, match="has ended"):
            await parking.resume(object(), next_call(first))
        second: Any = await parking.resume(HERE, next_call(first))
        with pytest.raises(WireError, match="already used"):
            await parking.resume(HERE, next_call(first))
        assert await parking.resume(HERE, next_call(second, answer={"x": 1})) == {"done": 2}
        assert work.got == [{"roots": []}, {"x": 1}]


@requirement("hub.call.parked")
async def test_so_many_wait_at_a_time_for_one_caller_and_in_all_and_one_more_is_given_up() -> None:
    async with a_parking(max_calls=3, max_per_owner=2) as (parking, _):
        asked = [await parked(parking, Work()) for _ in range(2)]
        refused = Work()
        with pytest.raises(RookeryError, match="2 calls of yours already wait") as error:
            await parking.start(HERE, a_call(), refused)
        assert error.value.code == "too-many-questions" and "600 s" in error.value.remedy
        await asyncio.sleep(0)
        assert refused.cancelled
        other = await parked(parking, Work(), a_call("other"))
        with pytest.raises(RookeryError, match="3 calls already wait"):
            await parking.start(HERE, a_call("third"), Work())
        # One that has its place keeps it, and who needs none is not counted.
        assert await parking.start(HERE, a_call("third"), Work(times=0)) == {"done": 0}
        assert await parking.resume(HERE, next_call(asked[0])) == {"done": 1}
        await parked(parking, Work(), a_call())
        assert await parking.resume(HERE, next_call(other, "other")) == {"done": 1}


@requirement("house.limits.shares")
async def test_workspaces_leave_places_to_the_owner() -> None:
    async with a_parking(max_calls=4, max_per_owner=2) as (parking, _):
        for name in ("workspace /a", "workspace /a", "workspace /b"):
            await parked(parking, Work(), a_call(name))
        for name in ("workspace /a", "workspace /b", "workspace /c"):
            with pytest.raises(RookeryError) as refused:
                await parking.start(HERE, a_call(name), Work())
            assert refused.value.code == "too-many-questions"
        asked = await parked(parking, Work(), a_call())
        assert await parking.resume(HERE, next_call(asked)) == {"done": 1}


async def test_what_belongs_to_a_connection_or_a_place_that_is_gone_is_given_up() -> None:
    async with a_parking() as (parking, _):
        connection, works = object(), [Work(), Work(), Work()]
        await parked(parking, works[0], a_call(connection=connection))
        await parking.start(elsewhere := object(), a_call(), works[1])
        asked = await parked(parking, works[2])
        parking.cancel_all(connection)
        parking.cancel_all(elsewhere)
        await asyncio.sleep(0)
        assert [work.cancelled for work in works] == [True, True, False]
        assert await parking.resume(HERE, next_call(asked)) == {"done": 1}


async def test_a_call_that_is_cancelled_before_it_has_begun_leaves_nothing() -> None:
    async with a_parking() as (parking, _):
        work = Work()
        tasks = TaskSet("test")
        task = tasks.start(parking.start(HERE, a_call(), work), "call")
        await asyncio.sleep(0)  # it has a task of its own now, which has not begun
        await parking.close()
        await asyncio.wait([task])
        assert task.cancelled() and not work.cancelled and len(parking) == 0


async def test_what_ends_while_nobody_waits_is_kept_until_its_client_comes() -> None:
    async with a_parking() as (parking, _):
        ended = asyncio.Event()

        async def work(call: Call) -> Mapping[str, Any]:
            try:
                async with asyncio.timeout(0.1):
                    await call.ask({"r": ROOTS})
            except TimeoutError:
                ended.set()
            raise WireError(-1, "nobody answered")

        asked: Any = await parking.start(HERE, a_call(), work)
        await asyncio.wait_for(ended.wait(), 10)
        with pytest.raises(WireError, match="nobody answered"):
            await parking.resume(HERE, next_call(asked))
        assert len(parking) == 0
