"""Who can give boulder orders, who sees its state, and what is logged."""

from pathlib import Path

import msgspec
import pytest

from rookery.plugins.boulder.state import BoulderState
from rookery.plugins.boulder.store import MAX_LOG_LINES, LogLine
from rookery.system.errors import RookeryError
from tests.support.agents.sessions import refusal
from tests.support.plugins.boulder import ELSEWHERE, ONE, TWO, WORKSPACE, FakeSession, start_boulder
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

FIELDS = {"iteration", "status", "lastActivity", "lastEnforcement", "failureCount", "stopRequested", "gates"}


@requirement("boulder.state.resource")
async def test_the_session_enforced_last_is_told_at_the_top_and_all_of_them_below(tmp_path: Path) -> None:
    async with start_boulder(
        tmp_path / "db", FakeSession(ONE), FakeSession(TWO, ELSEWHERE), FakeSession("ses_idle")
    ) as it:
        empty = await it.state()
        assert set(empty) >= FIELDS and empty["sessions"] == {} and empty["gates"][0]["gate"] == "off"
        for id_ in (ONE, TWO):
            await it.act("on", sessionId=id_)
            await it.turn("More.", id_=id_)
            await it.pass_(30)
        state = await it.state()
        assert (state["sessionId"], state["iteration"]) == (TWO, 1)
        assert set(state["sessions"]) == {ONE, TWO}
        assert all(set(one) >= FIELDS for one in (state, *state["sessions"].values()))
        gate = state["gates"][-1]
        assert (gate["gate"], gate["until"]) == ("cooldown", (it.clock.now + 30) * 1000) and "30 s" in gate["reason"]
        await it.turn("More.", asked="Please go on.")
        await it.pass_(60)
        assert (await it.state())["sessionId"] == ONE


@requirement("boulder.state.resource")
async def test_a_workspace_sees_its_own_sessions_and_gives_no_orders(tmp_path: Path) -> None:
    async with start_boulder(tmp_path / "db", FakeSession(ONE), FakeSession(TWO, ELSEWHERE)) as it:
        for id_ in (ONE, TWO):
            await it.act("on", sessionId=id_)
            await it.turn("More.", id_=id_)
            await it.pass_(30)
        here = Path(WORKSPACE)
        state = await it.state(here)
        assert state["sessionId"] == ONE and set(state["sessions"]) == {ONE}
        assert {one["sessionId"] for one in await it.act("log", here)} == {ONE}
        async with refusal("session-not-found"):
            await it.boulder.session_state(TWO, here)
        for action in ("pause", "resume", "stop", "reset", "budget", "on", "off"):
            async with refusal("forbidden", "cost money"):
                await it.act(action, here, sessionId=ONE)


@requirement("boulder.control.actions")
async def test_orders_that_make_no_sense_are_refused_with_what_would(tmp_path: Path) -> None:
    async with start_boulder(tmp_path / "db") as it:
        async with refusal("invalid-input", "the target is not clear"):
            await it.act("on")
        async with refusal("invalid-input", "the target is not clear"):
            await it.act("off", sessionId=ONE, workspace=WORKSPACE)
        async with refusal("invalid-input", "not a check"):
            await it.act("on", sessionId=ONE, checks="everything")
        async with refusal("invalid-input", "one session"):
            await it.act("on", workspace=WORKSPACE, budget=3)
        for budget in (-1, 100_000):
            async with refusal("invalid-input", "not a valid budget"):
                await it.act("budget", sessionId=ONE, budget=budget)
        async with refusal("session-not-found"):
            await it.act("pause", sessionId="ses_none")
        async with refusal("invalid-input", "limit"):
            await it.act("log", limit=0)
        assert (await it.of())["status"] == "OFF"


async def test_every_enforcement_and_every_order_is_written_down_with_who_when_and_why(tmp_path: Path) -> None:
    async with start_boulder(tmp_path / "db") as it:
        await it.act("on", workspace=WORKSPACE, checks="todos")
        await it.turn("More.")
        await it.pass_(30)
        enforced = it.clock.now
        await it.act("stop", sessionId=ONE)
        lines = await it.act("log")
        told = [(one["what"], one["who"], one["sessionId"], one["iteration"]) for one in lines]
        by = "boulder, switched on for the workspace"
        assert told == [("on", "owner", "", 0), ("enforced", by, ONE, 1), ("stop", "owner", ONE, 1)]
        assert lines[1]["at"] == enforced * 1000 and "not said that all is done" in lines[1]["why"]
        assert lines[0]["why"] == f"for the workspace {WORKSPACE}, checks: todos"
        assert [one["what"] for one in await it.act("log", sessionId=ONE, limit=1)] == ["stop"]
        assert msgspec.to_builtins(it.told) == lines


async def test_the_log_keeps_the_newest_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.plugins.boulder.store.MAX_LOG_LINES", 3)
    monkeypatch.setattr("rookery.plugins.boulder.store.MAX_SESSIONS", 2)
    assert MAX_LOG_LINES > 1000
    async with start_boulder(tmp_path / "db") as it:
        book = it.boulder._store
        for number in range(5):
            line = LogLine(number, "stop", "owner", f"ses_{number}", WORKSPACE, 0, "")
            await book.save_session(f"ses_{number}", WORKSPACE, BoulderState(), number, line)
        assert [one.session_id for one in await book.read_log(10)] == ["ses_2", "ses_3", "ses_4"]
        assert set(await book.sessions()) == {"ses_3", "ses_4"}


async def test_who_listens_is_told_of_changes_until_that_ends(tmp_path: Path) -> None:
    async with start_boulder(tmp_path / "db") as it:
        told: list[tuple[str, str]] = []
        stop = it.boulder.listen(lambda session, path: told.append((session, path)))
        await it.act("on", sessionId=ONE)
        assert (ONE, WORKSPACE) in told
        stop()
        told.clear()
        await it.act("pause", sessionId=ONE)
        assert told == []


async def test_what_cannot_be_written_down_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_boulder(tmp_path / "db") as it:
        await it.act("on", sessionId=ONE)
        await it.turn("More.")

        async def full(*given: object) -> None:
            raise RookeryError("store-failed", "the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(it.boulder._store, "save_session", full)
            await it.pass_(1000)
        assert not it.one.sent and not it.one.toasts
        assert "the disk is full" in (await it.of())["gates"][-1]["reason"]


@requirement("boulder.complete.checks")
async def test_what_was_said_while_it_was_off_is_new_work_once_it_is_on_again(tmp_path: Path) -> None:
    async with start_boulder(tmp_path / "db") as it:
        await it.act("on", sessionId=ONE)
        await it.turn("All is done.")
        await it.pass_(30)
        assert (await it.of())["status"] == "COMPLETE"
        await it.act("off", sessionId=ONE)
        await it.turn("More.", asked="There is one more thing.")
        await it.act("on", sessionId=ONE)
        assert (await it.of())["complete"] is None
        await it.pass_(30)
        assert len(it.one.sent) == 1


async def test_a_workspace_that_is_gone_is_off_also_if_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*given: object) -> None:
        raise RookeryError("store-failed", "no space left")

    async with start_boulder(tmp_path / "db") as it:
        await it.act("on", workspace=WORKSPACE)
        await it.turn("More.")
        monkeypatch.setattr(it.boulder._store, "delete_switch", full)
        await it.boulder._forget("workspace", WORKSPACE)
        await it.pass_(100)
        assert await it.gates() == ["off"] and not it.one.sent
        # The same if its owner does not wait until it is kept, or it cannot be.
        await it.act("on", workspace=WORKSPACE)
        monkeypatch.setattr(it.boulder._store, "save_switch", full)
        async with refusal("store-failed"):
            await it.act("off", workspace=WORKSPACE)
        assert "off" in await it.gates()
