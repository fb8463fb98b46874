"""Many sessions of many real OpenCodes at once: each response in its own session, and no wait missed."""

import asyncio

import pytest

from rookery.workspaces.model import Workspace
from tests.support.agents.host import LIMIT
from tests.support.agents.sessions import SessionDriver, start_session_driver
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

WORKSPACES, TURNS = repetitions(2, 5), repetitions(2, 4)
SCRIPT = make_script(
    say=[{"say": "heard {{user}}"}],
    where=[{"call": "bash", "with": {"command": "pwd", "description": "where"}}, {"say": "it is {{result}}"}],
)


async def drive(stage: SessionDriver, workspace: Workspace, name: str) -> None:
    sessions = stage.sessions
    session = await stage.session(workspace)
    for number in range(TURNS):
        word = f"say {name} {number}"
        waiting = asyncio.ensure_future(sessions.wait_for_message(session, f"^heard {word}$", LIMIT, role="assistant"))
        turn = await sessions.send(session, word, timeout=LIMIT)
        assert (turn.status, turn.content) == ("finished", f"heard {word}")
        assert (await waiting).found
    turn = await sessions.send(session, "where", timeout=LIMIT)
    assert turn.content.strip() == f"it is {workspace.path}"
    said = [one.content for one in (await sessions.messages(session, None)).messages if one.role == "user"]
    assert said == [*(f"say {name} {number}" for number in range(TURNS)), "where"]
    (run,) = await sessions.tool_history(session)
    assert (run.output or "").strip() == str(workspace.path)


@soak
@requirement("session.parallel.apart")
async def test_f06_sessions_of_many_workspaces_driven_at_once_are_not_mixed_up() -> None:
    async with start_session_driver(SCRIPT, start="use") as stage:
        made = [await stage.host.create(f"ws-{number}") for number in range(WORKSPACES)]
        # One after the other: so many starts at once take long on a small machine.
        for workspace in made:
            await stage.host.agents.ensure_running(workspace)
        await asyncio.gather(*(drive(stage, one, f"{one.name}-{half}") for one in made for half in "ab"))
        assert len(await stage.sessions.list()) == 2 * WORKSPACES
        assert {one.status for one in await stage.sessions.list()} == {"idle"}
