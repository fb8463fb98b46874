"""First turns are admitted in order, and five at once on a large repository all succeed."""

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from rookery.agents.admission import FirstTurnLimiter
from tests.support.agents.launch import config_with
from tests.support.daemon.events import Reader
from tests.support.daemon.system import FullSystem, start_system
from tests.support.opencode.home import scripted_config
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]

FILES = repetitions(9_000, 27_000)
NAMES = [f"task-{number}" for number in range(1, 6)]
SCRIPT = {"conversation": [{"turn": [{"step": [{"say": "{{user}} is done."}]}]}]}


def large_repository(folder: Path) -> Path:
    """Make a repository of many empty files, with one process for all of them."""
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    parts = ["blob\nmark :1\ndata 0\n\n"]
    parts.append("commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 5\nfirst\n")
    parts += [f"M 100644 :1 src/m{number // 200}/f{number}.py\n" for number in range(FILES)]
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input="".join(parts).encode(), check=True)
    subprocess.run(["git", "reset", "-q", "--hard", "main"], cwd=folder, check=True)
    return folder


@dataclass
class FirstTurns:
    """What the events of the daemon say of first turns, in order; times are those of the daemon."""

    queued: list[str]
    admitted: list[str]
    prompted: list[str]
    waited: dict[str, float]
    seconds: dict[str, float]


def first_turns(system: FullSystem) -> FirstTurns:
    """Read the events of the daemon from its start until all turns have ended."""
    turns = FirstTurns([], [], [], {}, {})
    began: dict[str, float] = {}
    reader = Reader(system.daemon, "/api/events?since=0")
    try:
        while len(turns.seconds) < len(NAMES):
            event = reader.next()
            assert event is not None
            kind, data = event["event"], event["data"]
            name = data.get("name", "")
            waits = kind == "agent.state" and "is queued behind" in (data["agent"]["detail"] or "")
            if (waits or kind == "agent.admitted") and name not in turns.queued:
                turns.queued.append(name)
            if kind == "agent.admitted":
                turns.admitted.append(name)
                turns.waited[name], began[name] = data["waited"], data["at"]
            elif kind == "agent.prompted":
                assert data["error"] is None
                turns.prompted.append(name)
            elif kind == "agent.state" and data["agent"]["activity"] == "finished":
                turns.seconds.setdefault(name, data["at"] - began[name])
    finally:
        reader.close()
    return turns


@soak
@requirement("agent.load.first-turns")
async def test_five_prompts_at_once_on_a_large_repository_are_answered_in_order(tmp_path: Path) -> None:
    app = await asyncio.to_thread(large_repository, tmp_path / "app")
    # Agents in the background would be held up by other tests, one after the other.
    settings = {"ROOKERY_AGENTS_PRIORITY": "normal", "ROOKERY_EVENTS_HISTORY": "100000"}
    async with start_system(SCRIPT, app, settings=settings) as system:
        config = Path.home() / ".config" / "opencode" / "opencode.json"
        # With snapshots, as users have them.
        config.write_text(config_with(**scripted_config(system.model.url, snapshot=True)))
        asked = [{"name": name, "prompt": f"prompt of {name}"} for name in NAMES]
        await asyncio.gather(*(system.rest("POST", "/api/workspaces", one) for one in asked))
        async with asyncio.timeout(1500):
            turns = await asyncio.to_thread(first_turns, system)
        assert [one["attention"] for one in (await system.workspaces()).values()] == [[]] * 5
        answers = [str(one.user) for one in system.model.requests if one.kind == "step" and one.ended == "answered"]
        assert sorted(answers) == [f"prompt of {name}" for name in NAMES], "each is answered, and once"
        assert sorted(turns.admitted) == sorted(turns.prompted) == NAMES, "each is admitted and sent, and once"
        assert turns.admitted == turns.queued
        for name in NAMES:
            others = sum(seconds for other, seconds in turns.seconds.items() if other != name)
            assert turns.waited[name] <= others, turns


@requirement("agent.load.first-turns")
async def test_first_turns_are_admitted_in_the_order_in_which_they_come() -> None:
    """So nobody waits for longer than those together who came before."""
    admission = FirstTurnLimiter(2)
    admitted: list[int] = []
    places: dict[int, list[int]] = {number: [] for number in range(5)}
    leave = [asyncio.Event() for _ in range(5)]

    async def turn(number: int) -> None:
        async with admission.turn(places[number].append):
            admitted.append(number)
            await leave[number].wait()

    tasks = [asyncio.ensure_future(turn(number)) for number in range(5)]
    await settled()
    assert admitted == [0, 1] and [places[number] for number in range(5)] == [[], [], [1], [2], [3]]
    leave[1].set()
    await settled()
    assert admitted == [0, 1, 2] and [places[number][-1] for number in (2, 3, 4)] == [0, 1, 2]
    # One that goes away while it waits leaves its place to those behind it.
    tasks[3].cancel()
    await settled()
    assert places[4][-1] == 1
    leave[0].set()
    await settled()
    assert admitted == [0, 1, 2, 4]
    for event in leave:
        event.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(5), admission.turn(lambda place: None), admission.turn(lambda place: None):
        pass


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
