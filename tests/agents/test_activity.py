"""The activity of a workspace's sessions: states, persistence, and dismissal by the user. With real OpenCodes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rookery
from rookery.agents.activity import ActivityStore
from rookery.agents.status import SessionState, TurnFailure
from tests.support.clock import SetClock
from tests.support.daemon.events import Reader
from tests.support.daemon.notify import Pager
from tests.support.daemon.process import ROOKERY
from tests.support.daemon.system import FullSystem, Shown, is_ready, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

INVALID = {"error": 401, "message": "invalid key"}
QUESTION = {"question": "Which way?", "header": "Way", "options": [{"label": "left", "description": "go left"}]}
SCRIPT = {
    "conversation": [
        {
            "when": "fail",
            "turn": [
                {"step": [INVALID]},
                {"step": [INVALID]},
                {"step": [{"say": "Working again.", "hold": "for ever"}]},
                {"step": [{"say": "It works now."}]},
            ],
        },
        {"when": "ask", "turn": [{"step": [{"call": "question", "with": {"questions": [QUESTION]}}, {"say": "-"}]}]},
        {"when": "finish", "turn": [{"step": [{"say": "Finished."}]}]},
        {"when": "work", "turn": [{"step": [{"say": "Never said.", "hold": "for ever"}]}]},
        {
            "when": "dismiss",
            "turn": [
                {
                    "step": [
                        {
                            "call": "bash",
                            "with": {"command": f"{ROOKERY} ws dismiss failing; true", "description": "-"},
                        },
                        {"say": "{{result}}"},
                    ]
                }
            ],
        },
    ]
}
PROMPTS = {"failing": "fail", "asking": "ask", "finished": "finish", "working": "work", "fresh": None}


def activities(found: dict[str, Shown]) -> dict[str, str]:
    return {name: one["activity"] for name, one in found.items()}


def told(one: Shown) -> tuple[str, list[str]]:
    return one["activity"], reasons(one)


def reasons(one: Shown) -> list[str]:
    return [need["reason"] for need in one["attention"]]


async def send(system: FullSystem, session: str, text: str) -> int:
    return (await system.cli("session", "send", session, text)).returncode


@requirement("ws.attention.failed", "ws.notify.fires")
async def test_failed_finished_waiting_working_and_never_started_are_told_apart(tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    with Pager(tmp_path) as pager:
        # Inside a sandbox the command line does not reach the daemon at all.
        settings = {"ROOKERY_NOTIFY_COMMAND": pager.command, "ROOKERY_AGENTS_SANDBOX": "off"}
        async with start_system(SCRIPT, app, settings=settings) as system:
            for name, prompt in PROMPTS.items():
                await system.rest("POST", "/api/workspaces", {"name": name, "prompt": prompt})
            wanted = {
                "failing": "failed",
                "asking": "waiting",
                "finished": "finished",
                "working": "working",
                "fresh": "new",
            }
            found = await system.until_all(lambda all_: activities(all_) == wanted and is_ready(all_["fresh"]))
            assert {name: reasons(one) for name, one in found.items() if one["attention"]} == {
                "failing": ["turn-failed"],
                "asking": ["question"],
            }
            assert "invalid key" in found["failing"]["attention"][0]["text"]
            session: str = found["failing"]["attention"][0]["id"]
            # The shape of the seeds stays: a session that failed is idle.
            assert found["failing"]["status"]["agent"] == {"type": "idle", "counts": {"idle": 1, "busy": 0, "total": 1}}
            # To see, in each place.
            words = {"failing": "turn failed", "asking": "waits for you", "finished": "finished"}
            words |= {"working": "busy", "fresh": "new"}
            for command in (("ws", "list"), ("status",)):
                rows = {line.split()[0]: line for line in (await system.cli(*command)).stdout.splitlines() if line}
                assert [name for name, word in words.items() if word not in rows[name]] == [], rows.values()
                assert "invalid key" in rows["failing"]
            page = pager.until(lambda page: page.reasons == ("turn-failed",))
            assert page.name == "failing" and "invalid key" in page.given["attention"][0]["text"]
            assert pager.until(lambda page: page.reasons == ("question",)).name == "asking"
            assert await asyncio.to_thread(told_of, system, "failing", "invalid key")

            # A list is no look; to show one is, and both are known after a crash.
            assert activities(await system.workspaces())["finished"] == "finished"
            await system.killed()
            await system.start_again()
            # A session that is known from before is waited for while its agent starts.
            assert (await system.rest("GET", f"/api/sessions/{session}"))["id"] == session
            found = await system.until_all(lambda all_: all(map(is_ready, all_.values())))
            again = {**wanted, "asking": "waiting", "working": "waiting"}
            found = await system.until_all(lambda all_: activities(all_) == again)
            assert reasons(found["failing"]) == ["turn-failed"]
            assert (await system.cli("ws", "show", "finished", cwd=app)).returncode == 0
            assert activities(await system.workspaces())["finished"] == "idle"

            # An agent cannot dismiss what its user should see; its user can, and it stays so.
            await system.rest("POST", "/api/workspaces", {"name": "naughty", "prompt": "dismiss"})
            naughty = await system.asked(lambda one: one.step == 2 and one.conversation == 5)
            assert "started by Rookery" in naughty.results[0]
            assert activities(await system.workspaces())["failing"] == "failed"
            done = await system.cli("ws", "dismiss", "failing", cwd=app)
            assert done.stdout == "1 failed turn dismissed in failing\n", done.stderr
            await system.until_all(lambda all_: all_["failing"]["attention"] == [])
            assert (await system.cli("agent", "restart", "failing", cwd=app)).returncode == 0
            shown = (await system.workspaces())["failing"]
            assert (shown["activity"], shown["attention"]) == ("idle", [])

            # It stays while a later turn runs and after its user has ended that one; one that succeeds ends it.
            assert await send(system, session, "fail again") == 1
            await system.until_all(lambda all_: told(all_["failing"]) == ("failed", ["turn-failed"]))
            assert (await system.cli("session", "send", "--no-wait", session, "work")).returncode == 0
            await system.until_all(lambda all_: told(all_["failing"]) == ("working", ["turn-failed"]))
            assert (await system.cli("session", "abort", session)).returncode == 0
            await system.until_all(lambda all_: told(all_["failing"]) == ("failed", ["turn-failed"]))
            assert await send(system, session, "succeed") == 0
            found = await system.until_all(lambda all_: reasons(all_["failing"]) == [])
            assert found["failing"]["activity"] in ("finished", "idle")


@requirement("agent.crash.interrupted")
async def test_a_cut_off_turn_is_shown_where_agents_start_on_use(tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with start_system(SCRIPT, app, settings={"ROOKERY_AGENTS_START": "use"}) as system:
        made = await system.create("working", "work")
        await system.until(made, lambda one: one["activity"] == "working")
        await system.killed()
        await system.start_again()
        shown = await system.show(made)
        assert (shown["agent"]["state"], shown["activity"], reasons(shown)) == ("stopped", "waiting", ["interrupted"])
        assert "cut off in the middle of a turn" in (await system.cli("ws", "list", cwd=app)).stdout


async def test_a_program_of_the_user_dismisses_a_failed_turn(tmp_path: Path) -> None:
    async with start_system(SCRIPT, make_repository(tmp_path / "app")) as system:
        await system.create("failing", "fail")
        found = await system.until_all(lambda all_: activities(all_) == {"failing": "failed"})
        async with rookery.connect() as r:
            workspace = await r.workspaces.get("failing")
            assert workspace.agent.activity == "failed"
            with pytest.raises(rookery.RookeryError) as caught:
                await workspace.dismiss("ses_of_another")
            assert caught.value.code == "session-not-found"
            failed: str = found["failing"]["attention"][0]["id"]
            assert await workspace.dismiss(failed[:10]) == [failed]
            assert (await workspace.refresh()).attention == []


def told_of(system: FullSystem, name: str, text: str) -> bool:
    """Wait for an event about the agent of a workspace that holds this text; those of the past count."""
    reader = Reader(system.daemon, "/api/events?since=0")
    try:
        while True:
            event = reader.until("agent.state")["data"]
            if event["name"] == name and text in str(event["agent"]["attention"]):
                return True
    finally:
        reader.close()


# ---- the record alone


def state(id_: str, state: Any = "idle", failure: TurnFailure | None = None) -> SessionState:
    return SessionState(id_, f"about {id_}", state, failure=failure)


def test_the_record_outlives_its_process_and_knows_who_has_looked(tmp_path: Path) -> None:
    clock = SetClock()
    clock.now = 1000.0
    record = ActivityStore(tmp_path, clock)
    assert record.summary(()) == "new" and record.summary((), queued=True) == "queued"
    for step in ("busy", "idle"):
        record.observe([state("a", step), state("b", step)])
        clock.now += 1
    assert ActivityStore(tmp_path, clock).summary([state("a"), state("b")]) == "finished"
    record.mark_seen("a")
    assert record.summary([state("a"), state("b")]) == "finished"
    record.mark_seen()
    assert ActivityStore(tmp_path, clock).summary([state("a"), state("b")]) == "idle"


def test_a_dismissed_failure_stays_dismissed_and_a_later_one_counts(tmp_path: Path) -> None:
    clock = SetClock()
    clock.now = 1000.0
    record = ActivityStore(tmp_path, clock)
    failed = [state("a", failure=TurnFailure("invalid key", clock.now * 1000))]
    record.observe(failed)
    assert record.summary(failed) == "failed" and [need.id for need in record.needs(failed)] == ["a"]
    clock.now += 1
    assert record.dismiss("b") == [] and record.dismiss() == ["a"] and record.dismiss() == []
    again = ActivityStore(tmp_path, clock)
    assert again.needs(failed) == [] and again.summary(failed) != "failed"
    clock.now += 1
    later = [state("a", failure=TurnFailure("invalid key", clock.now * 1000))]
    again.observe(later)
    assert again.summary(later) == "failed"


@pytest.mark.parametrize("content", [b"", b"{", b'{"sessions": 3}', b"\xff"])
def test_a_record_that_was_spoilt_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rookery").mkdir()
    (tmp_path / "rookery" / "activity.json").write_bytes(content)
    record = ActivityStore(tmp_path)
    assert record.sessions() == ()
    record.observe([state("a", "busy")])
    assert [one.id for one in ActivityStore(tmp_path).sessions()] == ["a"]


def test_the_record_of_a_workspace_that_is_gone_brings_no_folder_back(tmp_path: Path) -> None:
    record = ActivityStore(tmp_path / "gone")
    record.observe([state("a", "busy")])
    assert not (tmp_path / "gone").exists()
