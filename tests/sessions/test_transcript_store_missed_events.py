"""Missed events are recovered by reading again: no final message is lost, and no turn hangs."""

import asyncio
import os
import signal

import pytest

from rookery.agents.policy import SupervisionIntervals
from tests.support.agents.sessions import start_session_driver
from tests.support.agents.watcher import make_script, start_watcher
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SCRIPT = make_script(
    hello=[{"say": "hello yourself"}],
    one=[{"say": "the end of one", "hold": "one"}],
    two=[{"say": "never", "hold": "two"}],
)


@requirement("session.send.timeout")
async def test_f02_a_stream_that_breaks_mid_turn_loses_no_final_message() -> None:
    async with start_session_driver(SCRIPT) as stage:
        sessions = stage.sessions
        one = await stage.host.create("one")
        session = await stage.session(one)
        assert (await sessions.send(session, "hello", timeout=60)).status == "finished"
        sending = asyncio.ensure_future(sessions.send(session, "one", timeout=90))
        waiting = asyncio.ensure_future(sessions.wait_for_message(session, "end of one", 90, role="assistant"))
        await stage.until_is(one, session, "busy")
        life = stage.host.agents.agents[one.path].supervisor.run
        assert life is not None
        # What is said from here on until somebody listens again is heard by nobody.
        await life.watcher.close()
        async with start_watcher(life.client) as somebody_else:
            stage.host.model.release("one")
            await somebody_else.until_is(session, "idle")
        life.watcher.start()
        turn = await sending
        assert (turn.status, turn.content) == ("finished", "the end of one")
        assert (await waiting).found
        shown = (await sessions.messages(session)).messages
        assert [each.content for each in shown] == ["hello", "hello yourself", "one", "the end of one"]
        assert (await sessions.get(session)).message_count == 4


@requirement("session.send.timeout", "session.wait.timeout")
async def test_d15_an_agent_that_dies_mid_turn_ends_the_call_and_its_session_is_used_again() -> None:
    async with start_session_driver(SCRIPT, pace=SupervisionIntervals(first_pause=0.1)) as stage:
        sessions = stage.sessions
        one = await stage.host.create("one")
        session = await stage.session(one)
        assert (await sessions.send(session, "hello", timeout=60)).status == "finished"
        sending = asyncio.ensure_future(sessions.send(session, "two", timeout=90))
        waiting = asyncio.ensure_future(sessions.wait_for_message(session, "hello yourself, again", 120))
        await stage.until_is(one, session, "busy")
        life = stage.host.agents.agents[one.path].supervisor.run
        assert life is not None
        os.kill(life.process.pid, signal.SIGKILL)
        turn = await sending
        assert turn.status == "error"
        assert turn.error is not None and "the agent ended" in turn.error
        await stage.until_is(one, session, "interrupted")
        shown = await sessions.get(session)
        assert (shown.status, shown.opencode) == ("error", "interrupted")
        stage.host.model.play(make_script(hello=[{"say": "hello yourself, again"}]))
        again = await sessions.send(session, "hello", timeout=90)
        assert (again.status, again.content) == ("finished", "hello yourself, again")
        # A wait lasts over the end of the process that it began with.
        assert (await waiting).found
