"""For any order of events and any time that passes, boulder sends only what it may send."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rookery.plugins.boulder.store import BoulderStore
from rookery.system.errors import RookeryError
from tests.support.plugins.boulder import ONE, BoulderDriver, FakeSession, FakeSessions, start_boulder
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

Step = tuple[str, Any]
IDLE, COOLDOWN, BUDGET, FAILURES = 30.0, 30.0, 5, 5

steps = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([1.0, 29.0, 30.0, 61.0, 500.0])),
    st.tuples(st.just("session"), st.sampled_from(["busy", "idle"])),
    st.tuples(st.just("tool"), st.sampled_from(["started", "finished"])),
    st.tuples(st.just("ask"), st.sampled_from(["opened", "answered"])),
    st.tuples(st.just("says"), st.sampled_from(["user", "assistant"])),
    st.tuples(st.just("act"), st.sampled_from(["on", "off", "pause", "resume", "stop", "reset"])),
    st.tuples(st.just("budget"), st.sampled_from([None, 0, 1, 7])),
    st.tuples(st.just("refuses"), st.booleans()),
    st.tuples(st.just("aborted"), st.none()),
)


class Judge(FakeSessions):
    """Keeps its own account of what has happened, and refuses to be sent anything that it would not have sent."""

    def __init__(self) -> None:
        super().__init__(FakeSession(ONE))
        self.clock: Any = None
        self.on = self.paused = self.stopped = self.tool = self.ask = self.sent_here = False
        self.quiet_since = self.aborted = -1000.0
        self.tried: float | None = None
        self.spent = self.failures = self.tries = 0
        self.budget: int | None = None

    async def send(self, id_: str, content: str, **more: Any) -> None:
        now = self.clock.now
        assert self.on and not self.paused and not self.stopped
        assert not self.sessions[ONE].running and not self.tool and not self.ask and not self.sent_here
        assert now >= self.quiet_since + IDLE and now >= self.aborted + 3
        assert self.tried is None or now >= self.tried + COOLDOWN * 2**self.failures
        assert self.failures < FAILURES
        assert self.spent < (BUDGET if self.budget is None else self.budget)
        assert str(self.spent + 1) in content
        self.tried, self.tries = now, self.tries + 1
        try:
            await super().send(id_, content, **more)
        except RookeryError:
            self.failures += 1
            raise
        self.spent, self.sent_here = self.spent + 1, True

    def note(self, step: Step) -> None:
        """What the rules make of it, written down a second time."""
        what, given_ = step
        now = self.clock.now
        if what == "session" and given_ == "idle":
            # A session that has worked is in a new idle period, and the turn of an enforcement was good.
            self.failures = 0 if self.sent_here else self.failures
            self.quiet_since, self.sent_here, self.tool, self.ask = now, False, False, False
        elif what == "says" and given_ == "user":
            self.quiet_since, self.sent_here, self.failures = now, False, 0
        elif what in ("tool", "ask"):
            setattr(self, what, given_ in ("started", "opened"))
        elif what == "aborted":
            self.aborted = now
        elif what == "budget":
            self.quiet_since, self.budget = max(self.quiet_since, now), given_
        elif what == "act":
            self.quiet_since = now
            if given_ in ("on", "off"):
                self.on = given_ == "on"
            elif given_ == "reset":
                self.paused = self.stopped = self.sent_here = False
                self.spent, self.failures, self.tried = 0, 0, None
            else:
                self.paused = given_ == "pause" or (self.paused and given_ == "stop")
                self.stopped = given_ == "stop" or (self.stopped and given_ == "pause")
                self.failures = 0 if given_ == "resume" else self.failures


async def play(it: BoulderDriver, step: Step) -> None:
    what, given_ = step
    match what:
        case "pass":
            await it.pass_(given_)
        case "session":
            await it.session(given_)
        case "aborted":
            await it.session("error", aborted=True)
        case "tool":
            await it.tool(given_)
        case "ask":
            await it.ask(given_)
        case "says":
            await it.says(given_, "There is more.")
        case "budget":
            await it.act("budget", sessionId=ONE, budget=given_)
        case "refuses":
            it.one.refuses = RookeryError("agent-unavailable", "not now") if given_ else None
        case _:
            await it.act(given_, sessionId=ONE)


async def story(played: list[Step]) -> Judge:
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        async with start_boulder(Path(folder) / "db", played=judge) as it:
            judge.clock = it.clock
            for step in [("says", "user"), ("session", "busy"), ("session", "idle"), ("act", "on"), *played]:
                judge.note(step)
                await play(it, step)
                assert (await it.of())["iteration"] == judge.spent
    return judge


@soak
@requirement("boulder.gates.hold", "boulder.control.actions")
@settings(max_examples=repetitions(15, 200))
@given(st.lists(steps, max_size=25))
def test_nothing_is_ever_sent_through_a_closed_gate(played: list[Step]) -> None:
    judge = asyncio.run(story(played))
    assert judge.spent <= judge.tries


async def _at_once() -> None:
    return


@requirement("boulder.gates.hold", "boulder.control.actions")
@pytest.mark.parametrize(
    "step",
    [
        ("session", "busy"),
        ("tool", "started"),
        ("ask", "opened"),
        ("says", "user"),
        ("aborted", None),
        *(("act", what) for what in ("off", "pause", "stop", "reset")),
        ("budget", 0),
    ],
)
def test_a_gate_that_closes_before_the_message_is_sent_holds_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    keep = BoulderStore.save_session

    async def work() -> None:
        async with start_boulder(tmp_path / "db") as it:

            async def interrupted(self: BoulderStore, *given: Any) -> None:
                await keep(self, *given)
                if given[-1] is not None and given[-1].what == "enforced":
                    # Nobody can wait here until all is done: this is what is to be done.
                    it.settle = _at_once
                    await play(it, step)
                    del it.settle

            monkeypatch.setattr(BoulderStore, "save_session", interrupted)
            for one in [("act", "on"), ("says", "user"), ("session", "busy"), ("session", "idle"), ("pass", 30.0)]:
                await play(it, one)
            assert not it.one.toasts and not it.one.sent
            assert (await it.of())["iteration"] == 0
            assert it.told[-1].what == "failed" and "cancelled" in it.told[-1].why

    asyncio.run(work())
