"""Which sessions can be found: all but those that only run tools, also while their agent restarts."""

import asyncio
import os
import signal

import pytest

from rookery.agents.policy import SupervisionIntervals
from rookery.agents.run import AgentRun
from rookery.agents.workspace_agent import WorkspaceAgent
from rookery.sessions.conversion import HIDDEN_TITLE
from tests.support.agents.host import LIMIT
from tests.support.agents.sessions import refusal, start_session_driver
from tests.support.agents.watcher import make_script
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@requirement("session.get.one", "session.send.wait", "session.wait.timeout")
async def test_children_are_hidden_sent_prompts_are_not_idle_and_restarts_close_nothing() -> None:
    async with start_session_driver(
        make_script(hello=[{"say": "hello yourself"}]), pace=SupervisionIntervals(first_pause=0.1)
    ) as stage:
        sessions = stage.sessions
        one = await stage.host.create("one")
        session = await stage.session(one)
        agent_run = await stage.host.agents.ensure_running(one)

        # A turn that has been taken runs, whatever OpenCode has said of it by then.
        assert (await sessions.send(session, "hello", wait=False)).status == "taken"
        idle = await sessions.wait_for_idle(session, 60)
        assert idle.session is not None and idle.session.message_count == 2

        child = await agent_run.client.create_session(title=HIDDEN_TITLE, parent=session)
        for asked in (
            sessions.get(child.id),
            sessions.messages(child.id),
            sessions.send(child.id, "hello"),
            sessions.wait_for_idle(child.id),
            sessions.close(child.id),
        ):
            async with refusal("session-not-found"):
                await asked

        # A process of which nothing is known yet.
        found: list[bool] = []

        def began(workspace_agent: WorkspaceAgent, agent_run: AgentRun) -> None:
            found.append(sessions._index.of_agent(workspace_agent).session(session) is not None)

        stage.host.agents.listeners.append(began)
        waiting = asyncio.ensure_future(sessions.wait_for_file(session, "late.txt", 90))
        os.kill(agent_run.process.pid, signal.SIGKILL)
        await stage.until(lambda: found)
        (one.path / "late.txt").write_text("now")
        assert (await waiting).found
        assert found == [True]


@requirement("session.get.one")
async def test_a_session_is_waited_for_while_it_is_not_known_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_session_driver(make_script(hello=[{"say": "hello yourself"}])) as stage:
        sessions, agents = stage.sessions, stage.host.agents
        # However slow the machine is.
        monkeypatch.setattr("rookery.sessions.index._START_SECONDS", LIMIT)
        one = await stage.host.create("one")
        session = await stage.session(one)
        agent_run = await agents.ensure_running(one)
        # Of children nothing is kept.
        child = await agent_run.client.create_session(title="helper", parent=session)

        # As after a start of the daemon, whose workspaces are opened one after the other.
        agents.restored.clear()
        await agents.on_closed(one)
        asked = asyncio.ensure_future(sessions.get(child.id))
        await agents.on_opened(one)
        agents.restored.set()
        assert (await asked).id == child.id

        await agents.on_closed(one)
        await agents.on_opened(one)
        assert await sessions.list() == []
        assert [each.id for each in await sessions.list_in(one.project.id, "one")] == [session]

        # It ends, also where that is never known.
        agents.restored.clear()
        monkeypatch.setattr("rookery.sessions.index._START_SECONDS", 0.1)
        async with refusal("session-not-found"):
            await sessions.get("ses_nowhere")
        assert (await sessions.get(session)).id == session
