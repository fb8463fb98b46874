"""Boulder over time, with a clock that the tests set: which sessions it continues, when, and the budget."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rookery.plugins.api import MessageEvent
from rookery.plugins.boulder.messages import MARK
from rookery.plugins.boulder.policy import BoulderLimits
from rookery.sessions.records import SessionMessage, ToolRun
from rookery.system.errors import RookeryError
from tests.support.plugins.boulder import ELSEWHERE, ONE, TWO, WORKSPACE, FakeSession, start_boulder
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

MORE = "I have read the code."


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "rookery.db"


@requirement("boulder.enforce.idle", "boulder.enforce.words")
async def test_a_session_idle_for_the_set_time_gets_a_toast_and_a_message_to_continue(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.turn(MORE)
        await it.pass_(1000)
        assert (await it.of())["status"] == "OFF" and not it.one.sent
        await it.act("on", sessionId=ONE)
        await it.pass_(29.9)
        assert not it.one.toasts and await it.gates() == ["idle"]
        await it.pass_(0.1)
        assert [MARK in one for one in (*it.one.toasts, *it.one.sent)] == [True, True]
        state = await it.of()
        assert (state["iteration"], state["status"], state["lastEnforcement"]) == (1, "ENFORCING", it.clock.now * 1000)
        await it.pass_(10_000)
        assert len(it.one.sent) == 1 and "enforced" in await it.gates()
        await it.says("user", it.one.sent[0])
        await it.turn(MORE, asked=None)
        await it.pass_(30)
        assert len(it.one.sent) == 2 and (await it.of())["iteration"] == 2


@requirement("boulder.gates.hold")
async def test_it_waits_for_tools_asks_and_turns_however_long_they_take(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        await it.tool("started")
        await it.pass_(1000)
        assert await it.gates() == ["tool"]
        await it.ask("opened")
        await it.tool("finished")
        await it.pass_(1000)
        assert await it.gates() == ["asks"]
        await it.session("busy")
        await it.ask("answered")
        await it.pass_(1000)
        assert await it.gates() == ["busy"] and not it.one.sent
        await it.session("idle")
        await it.session("error", aborted=True)
        assert await it.gates() == ["idle", "aborted"]
        await it.pass_(30)
        assert len(it.one.sent) == 1


@requirement("boulder.gates.hold", "boulder.complete.checks")
async def test_five_times_and_no_more_until_it_gets_a_budget_or_is_reset(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        for _ in range(8):
            await it.pass_(100)
            await it.turn(MORE, asked=None)
        assert len(it.one.sent) == 5
        assert (await it.of())["status"] == "EXHAUSTED" and "budget" in await it.gates()
        await it.says("user", "Thank you. Please go on.")
        await it.turn(MORE, asked=None)
        await it.pass_(100)
        assert len(it.one.sent) == 5
        assert (await it.act("budget", sessionId=ONE, budget=6))["budget"] == 6
        await it.pass_(100)
        assert len(it.one.sent) == 6
        await it.turn(MORE, asked=None)
        assert (await it.act("reset", sessionId=ONE))["iteration"] == 0
        await it.pass_(100)
        assert len(it.one.sent) == 7 and (await it.of())["iteration"] == 1


async def test_a_message_that_cannot_be_sent_is_not_counted_as_one_and_the_pauses_grow(store: Path) -> None:
    async with start_boulder(store) as it:
        it.one.refuses = RookeryError("agent-unavailable", "the agent does not answer")
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        await it.pass_(30)
        state = await it.of()
        assert (state["iteration"], state["failureCount"], state["lastEnforcement"]) == (0, 1, None)
        assert await it.gates() == ["cooldown"]
        await it.pass_(60)
        assert (await it.of())["failureCount"] == 2 and not it.one.toasts
        await it.pass_(10_000)
        assert (await it.of())["failureCount"] == 5 and await it.gates() == ["failures"]
        assert [one["what"] for one in await it.act("log")] == ["on", *(["enforced", "failed"] * 5)]
        it.one.refuses = None
        await it.act("resume", sessionId=ONE)
        await it.pass_(60)
        assert len(it.one.sent) == 1 and (await it.of())["failureCount"] == 0


async def test_no_toast_tells_of_a_message_that_is_not_in_the_transcript(store: Path) -> None:
    async with start_boulder(store) as it:
        it.one.reads = False
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        await it.pass_(30)
        assert len(it.one.sent) == 1 and not it.one.toasts
        # It was sent, so it stays spent.
        state = await it.of()
        assert (state["iteration"], state["failureCount"], state["lastEnforcement"]) == (1, 0, 1_030_000)


async def test_a_toast_that_cannot_be_shown_takes_nothing_back(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*given: object, **more: object) -> None:
        raise RookeryError("agent-unavailable", "the agent does not answer")

    async with start_boulder(store) as it:
        monkeypatch.setattr(it.played, "show_toast", refuse)
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        await it.pass_(30)
        await it.pass_(500)
        assert len(it.one.sent) == 1 and [one["what"] for one in await it.act("log")] == ["on", "enforced"]
        assert (await it.of())["iteration"] == 1 and (await it.of())["failureCount"] == 0


async def test_a_turn_of_its_own_that_fails_counts_as_a_failure(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        await it.pass_(30)
        it.one.error = "no credit left"
        await it.turn("", asked=None)
        await it.pass_(30)
        assert len(it.one.sent) == 1 and (await it.of())["failureCount"] == 1
        await it.pass_(30)
        assert len(it.one.sent) == 2


@requirement("boulder.control.actions")
async def test_paused_and_stopped_it_does_nothing_until_it_is_resumed(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        for action, status in (("pause", "PAUSED"), ("stop", "STOPPED")):
            state = await it.act(action, sessionId=ONE)
            assert state["status"] == status and state["stopRequested"] is (action == "stop")
            await it.pass_(1000)
            await it.turn(MORE)
            await it.pass_(1000)
        assert not it.one.sent and await it.gates() == ["paused", "stopped"]
        assert (await it.act("resume", sessionId=ONE))["status"] == "CONTINUOUS"
        await it.pass_(29)
        assert not it.one.sent
        await it.pass_(1)
        assert len(it.one.sent) == 1


async def test_what_happens_while_it_looks_counts_more_than_what_it_saw(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", sessionId=ONE)
        await it.turn("All is done.")
        spoken = MessageEvent(hook="message.added", session_id=ONE, message_id="m", role="user", content="One more.")
        it.one.meanwhile = [spoken]
        await it.pass_(30)
        assert [one["what"] for one in await it.act("log")] == ["on"] and await it.gates() == ["idle"]
        await it.turn(MORE)
        # It works, and nobody has told so yet.
        it.one.running = True
        await it.pass_(30)
        assert await it.gates() == ["busy"] and not it.one.sent


@requirement("boulder.gates.hold")
async def test_a_tool_that_somebody_runs_by_its_name_keeps_the_session_in_use(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        run = ToolRun(id="call_1", session_id=ONE, tool="bash", status="running", origin="execute_tool")
        it.one.runs = [run]
        await it.pass_(100)
        assert not it.one.sent and await it.gates() == ["idle"]
        it.one.runs = [replace(run, status="completed")]
        await it.pass_(30)
        assert len(it.one.sent) == 1


@requirement("boulder.control.actions")
async def test_state_switches_and_what_was_spent_outlive_the_daemon(store: Path) -> None:
    async with start_boulder(store, limits=BoulderLimits(budget=2)) as it:
        await it.act("on", workspace=WORKSPACE)
        await it.turn(MORE)
        await it.pass_(30)
        await it.turn(MORE, asked=None)
        before, clock = await it.of(), it.clock
    async with start_boulder(store, limits=BoulderLimits(budget=2), clock=clock) as it:
        assert (await it.state())["iteration"] == 1
        await it.session("idle", found=True)
        it.played.sessions[ONE].messages.append(SessionMessage(id="msg_old", role="assistant", content=MORE, time=0))
        after = await it.of()
        wanted = ("iteration", "status", "lastActivity", "lastEnforcement", "failureCount", "stopRequested", "switched")
        assert [after[key] for key in wanted] == [before[key] for key in wanted]
        await it.pass_(30)
        assert len(it.one.sent) == 1 and (await it.of())["iteration"] == 2
        await it.turn(MORE, asked=None)
        await it.pass_(1000)
        assert len(it.one.sent) == 1 and await it.gates() == ["budget"]


async def test_a_turn_that_the_daemons_end_has_cut_off_does_not_hold_it_back_for_ever(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", sessionId=ONE)
        await it.turn(MORE)
        await it.pass_(30)
        it.clock.now += 1
        await it.session("busy")
        clock = it.clock
    async with start_boulder(store, clock=clock) as it:
        it.one.messages.append(SessionMessage(id="msg_old", role="assistant", content=MORE, time=0))
        await it.session("idle", found=True)
        await it.pass_(60)
        assert len(it.one.sent) == 1 and (await it.of())["iteration"] == 2


async def test_switching_a_workspace_on_does_not_start_work_in_its_old_sessions(store: Path) -> None:
    async with start_boulder(store, FakeSession(ONE), FakeSession(TWO), FakeSession("ses_there", ELSEWHERE)) as it:
        for id_ in (ONE, TWO, "ses_there"):
            await it.session("idle", id_, found=True)
            await it.says("assistant", MORE, id_)
        await it.act("on", workspace=WORKSPACE)
        await it.pass_(1000)
        assert await it.gates(ONE) == ["untouched"] and not it.one.sent
        await it.turn(MORE, id_=ONE)
        await it.turn(MORE, id_="ses_there")
        await it.pass_(1000)
        sent = {id_: len(one.sent) for id_, one in it.played.sessions.items()}
        assert sent == {ONE: 1, TWO: 0, "ses_there": 0}
        await it.act("on", workspace=WORKSPACE)
        assert "untouched" not in await it.gates(ONE) and "untouched" in await it.gates(TWO)
        await it.act("off", sessionId=ONE)
        await it.turn(MORE)
        await it.pass_(1000)
        assert len(it.one.sent) == 1 and (await it.of())["switched"] == "session"
        await it.act("on", project="app")
        await it.turn(MORE, id_="ses_there")
        await it.pass_(1000)
        assert len(it.played.sessions["ses_there"].sent) == 1


async def test_a_session_that_is_closed_or_works_for_another_one_is_left_alone(store: Path) -> None:
    async with start_boulder(store) as it:
        await it.act("on", workspace=WORKSPACE)
        await it.session("busy", "ses_child", parent=ONE)
        await it.turn(MORE)
        await it.session("closed")
        await it.pass_(1000)
        assert not it.one.sent and not it.boulder.engine.sessions and not len(it.boulder.engine.timers)
        assert (await it.state())["sessions"] == {}
        with pytest.raises(RookeryError, match="no session"):
            await it.act("pause", sessionId="ses_child")
