"""OpenCode and the daemon, killed in the middle of a turn: only that turn is lost, it is said, and can be taken up."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.status import CONTINUE_PROMPT
from tests.support.daemon.process import wait_dead
from tests.support.daemon.system import Colony, Shown, a_colony, is_ready, place_of
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


def writes(name: str) -> dict[str, Any]:
    return {"call": "write", "with": {"filePath": f"{name}.txt", "content": name}}


# A whole turn, and one that is cut off twice: while a reply is awaited, before and after it was taken up.
SCRIPT = {
    "conversation": [
        {"when": "whole", "turn": [{"step": [writes("w"), {"say": "Done."}]}]},
        {
            "when": "half",
            "turn": [
                {"step": [writes("h"), {"say": "Never said.", "hold": "for ever"}]},
                {"step": [{"say": "Never said either.", "hold": "for ever"}]},
                {"step": [{"say": "At last."}]},
            ],
        },
    ]
}


@requirement("agent.crash.interrupted", "agent.restart.policy")
async def test_d07_d15_killed_in_the_middle_of_a_turn_only_that_turn_is_lost_and_can_be_taken_up(
    tmp_path: Path,
) -> None:
    async with a_colony(SCRIPT, make_repository(tmp_path / "app")) as colony:
        whole = await colony.create("whole", "Do the whole.")
        await colony.asked(lambda one: one.conversation == 1 and one.step == 2 and one.ended)
        half = await colony.create("half", "Do half.")
        await turn(colony, 1)

        before = await colony.workspaces()
        os.kill(before["half"]["agent"]["pid"], signal.SIGKILL)
        found = await colony.until(half, is_cut_off)
        assert found["agent"]["port"] == before["half"]["agent"]["port"]
        assert found["agent"]["pid"] != before["half"]["agent"]["pid"]
        assert (await colony.workspaces())["whole"]["agent"] == before["whole"]["agent"]

        await colony.rest("POST", f"{place_of(half)}/agent/resume")
        taken_up = await turn(colony, 2)
        assert taken_up.user == CONTINUE_PROMPT

        agents = [one["agent"]["pid"] for one in (await colony.workspaces()).values()]
        await colony.killed()
        await colony.start_again()
        for pid in agents:
            await asyncio.to_thread(wait_dead, pid)
        found = await colony.until(half, is_cut_off)
        assert found["agent"]["port"] == before["half"]["agent"]["port"]
        other = await colony.until(whole, is_idle)
        assert other["attention"] == []
        for one, name in ((whole, "w"), (half, "h")):
            assert (Path(one["path"]) / f"{name}.txt").read_text() == name

        done = await colony.cli("agent", "resume", "half", cwd=tmp_path / "app")
        assert done.returncode == 0, done.stderr
        last = await turn(colony, 3)
        assert {last.session} == {one.session for one in colony.model.requests if one.conversation == 2}
        found = await colony.until(half, lambda one: is_idle(one) and not is_cut_off(one))
        assert found["attention"] == []
        assert colony.model.requests.unforeseen == []


async def turn(colony: Colony, number: int) -> Any:
    """The last step of a turn of the session that is cut off."""
    step = 2 if number == 1 else 1
    return await colony.asked(lambda one: (one.conversation, one.turn, one.step) == (2, number, step))


def is_cut_off(one: Shown) -> bool:
    return is_ready(one) and "interrupted" in [need["reason"] for need in one["attention"]]


def is_idle(one: Shown) -> bool:
    return is_ready(one) and one["status"]["agent"]["type"] == "idle"
