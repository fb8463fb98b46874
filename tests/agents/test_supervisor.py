"""Agents whose starts fail, hang or are cancelled. Tests with the real OpenCode are in tests/daemon."""

import asyncio
from typing import Any

import pytest

from rookery.agents.policy import SupervisionIntervals
from rookery.agents.run import StartedAgent
from rookery.agents.supervisor import AgentSupervisor, DetailCallback
from rookery.system.errors import RookeryError
from tests.support.http.listener import within_limit
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


class Starts:
    """Starts of OpenCode that do what a test says: wait until they are let go, and then fail."""

    def __init__(self) -> None:
        self.begun = 0
        self.cut_off = 0
        self.go = asyncio.Event()
        self.states: list[str] = []
        self.news = asyncio.Event()
        self.agent = AgentSupervisor(
            "one", self._start, self._changed, intervals=SupervisionIntervals(first_pause=3600.0)
        )

    async def _start(self, tell: DetailCallback) -> StartedAgent:
        self.begun += 1
        tell(f"start {self.begun}")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        if self.begun == 3:
            raise ZeroDivisionError("a fault of ours")
        raise RookeryError("agent-unavailable", f"start {self.begun} failed", "mend it")

    def _changed(self) -> None:
        if self.states[-1:] != [self.agent.state]:
            self.states.append(self.agent.state)
        self.news.set()

    async def until(self, state: str) -> None:
        async with asyncio.timeout(30):
            while self.agent.state != state:
                self.news.clear()
                await self.news.wait()


@requirement("agent.restart.policy")
async def test_all_who_need_it_wait_for_one_start_and_hear_why_it_failed() -> None:
    starts = Starts()
    waiting = [asyncio.ensure_future(starts.agent.ensure_running()) for _ in range(3)]
    await starts.until("starting")
    await asyncio.sleep(0)
    assert (starts.begun, starts.agent.detail) == (1, "start 1")
    starts.go.set()
    for one in waiting:
        with pytest.raises(RookeryError, match="start 1 failed"):
            await within_limit(one)
    assert (starts.begun, starts.agent.state) == (1, "restarting")
    assert starts.agent.error == "start 1 failed; mend it"
    # It would be an hour until the next try; who needs it does not wait for that.
    with pytest.raises(RookeryError, match="start 2 failed"):
        await within_limit(starts.agent.ensure_running())
    with pytest.raises(RookeryError, match="ZeroDivisionError: a fault of ours"):
        await within_limit(starts.agent.ensure_running())
    for _ in range(2):
        with pytest.raises(RookeryError):
            await within_limit(starts.agent.ensure_running())
    assert (starts.begun, starts.agent.state) == (5, "failed")
    assert await starts.agent.stop()
    assert (starts.agent.state, starts.agent.error) == ("stopped", None)
    assert not await starts.agent.stop()


async def test_a_start_that_is_stopped_is_cut_off_and_who_waited_for_it_is_told() -> None:
    starts = Starts()
    waiting = asyncio.ensure_future(starts.agent.ensure_running())
    await starts.until("starting")
    assert await within_limit(starts.agent.stop())
    with pytest.raises(RookeryError, match="the agent of one was stopped"):
        await within_limit(waiting)
    assert (starts.begun, starts.cut_off, starts.states) == (1, 1, ["starting", "stopped"])


async def test_who_waits_while_it_is_restarted_waits_for_the_new_start() -> None:
    starts = Starts()
    waiting = asyncio.ensure_future(starts.agent.ensure_running())
    await starts.until("starting")
    again = asyncio.ensure_future(starts.agent.restart())
    await starts.until("restarting")
    starts.go.set()
    for one in (waiting, again):
        with pytest.raises(RookeryError, match="start 2 failed"):
            await within_limit(one)
    assert starts.cut_off == 1
    await starts.agent.stop()


async def test_a_caller_that_goes_away_leaves_nothing_half_done() -> None:
    starts = Starts()
    starts.agent.start()
    await starts.until("starting")
    again = asyncio.ensure_future(starts.agent.restart())
    await asyncio.sleep(0)
    again.cancel()
    await starts.until("restarting")
    starts.go.set()
    with pytest.raises(RookeryError, match="start 2 failed"):
        await within_limit(starts.agent.ensure_running())
    await starts.agent.stop()


async def test_it_tells_what_a_start_to_come_waits_for() -> None:
    starts = Starts()
    starts.agent.report_waiting("the workspace is being prepared")
    assert (starts.agent.state, starts.agent.detail) == ("starting", "the workspace is being prepared")
    assert starts.begun == 0
    assert await starts.agent.stop()
    assert starts.agent.state == "stopped"


@pytest.mark.parametrize(("why", "state"), [("it was killed", "restarting"), (None, "asleep")])
async def test_it_is_not_said_to_run_while_what_is_left_of_it_is_being_ended(
    why: str | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, go = asyncio.Event(), asyncio.Event()

    class Brief:
        """A life that is over as soon as it begins."""

        sessions, running = (), frozenset[str]()

        def __init__(self, *_: object, **__: object) -> None: ...

        async def wait_until_over(self) -> str | None:
            return why

        async def close(self) -> None:
            ending.set()
            await go.wait()

    async def start(tell: DetailCallback) -> Any:
        return None

    monkeypatch.setattr("rookery.agents.supervisor.AgentRun", Brief)
    agent = AgentSupervisor("one", start, lambda: None, intervals=SupervisionIntervals(first_pause=3600.0))
    agent.start()
    await within_limit(ending.wait())
    assert (agent.state, agent.error, agent.run) == (state, why, None)
    go.set()
    await agent.stop()
