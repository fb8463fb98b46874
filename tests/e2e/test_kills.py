"""OpenCode and the daemon, killed in mid-turn: only that turn is lost, it is reported, and can be resumed."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.status import CONTINUE_PROMPT
from tests.support.daemon.process import wait_dead
from tests.support.daemon.system import FullSystem, Shown, is_ready, place_of, start_system
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
async def test_d07_d15_a_kill_in_mid_turn_loses_only_that_turn_which_can_be_resumed(
    tmp_path: Path,
) -> None:
    async with start_system(SCRIPT, make_repository(tmp_path / "app")) as system:
        whole = await system.create("whole", "Do the whole.")
        await system.asked(lambda one: one.conversation == 1 and one.step == 2 and one.ended)
        half = await system.create("half", "Do half.")
        await turn(system, 1)

        before = await system.workspaces()
        os.kill(before["half"]["agent"]["pid"], signal.SIGKILL)
        found = await system.until(half, is_cut_off)
        assert found["agent"]["port"] == before["half"]["agent"]["port"]
        assert found["agent"]["pid"] != before["half"]["agent"]["pid"]
        assert (await system.workspaces())["whole"]["agent"] == before["whole"]["agent"]

        await system.rest("POST", f"{place_of(half)}/agent/resume")
        taken_up = await turn(system, 2)
        assert taken_up.user == CONTINUE_PROMPT

        agents = [one["agent"]["pid"] for one in (await system.workspaces()).values()]
        await system.killed()
        await system.start_again()
        for pid in agents:
            await asyncio.to_thread(wait_dead, pid)
        found = await system.until(half, is_cut_off)
        assert found["agent"]["port"] == before["half"]["agent"]["port"]
        other = await system.until(whole, is_idle)
        assert other["attention"] == []
        for one, name in ((whole, "w"), (half, "h")):
            assert (Path(one["path"]) / f"{name}.txt").read_text() == name

        done = await system.cli("agent", "resume", "half", cwd=tmp_path / "app")
        assert done.returncode == 0, done.stderr
        last = await turn(system, 3)
        assert {last.session} == {one.session for one in system.model.requests if one.conversation == 2}
        found = await system.until(half, lambda one: is_idle(one) and not is_cut_off(one))
        assert found["attention"] == []
        assert system.model.requests.unforeseen == []


async def turn(system: FullSystem, number: int) -> Any:
    """The last step of a turn of the session that is cut off."""
    step = 2 if number == 1 else 1
    return await system.asked(lambda one: (one.conversation, one.turn, one.step) == (2, number, step))


def is_cut_off(one: Shown) -> bool:
    return is_ready(one) and "interrupted" in [need["reason"] for need in one["attention"]]


def is_idle(one: Shown) -> bool:
    return is_ready(one) and one["status"]["agent"]["type"] == "idle"
