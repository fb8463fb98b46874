"""Which sessions can be found: not those that only run tools, and the others also while their agent starts again."""

import asyncio
import os
import signal

import pytest

from rookery.agents.life import Life
from rookery.agents.supervision import Pace
from rookery.agents.tenant import Tenant
from rookery.sessions.hidden import TITLE
from tests.support.driving import driving, refusal
from tests.support.requirements import requirement
from tests.support.watched import steps

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@requirement("session.get.one", "session.send.wait", "session.wait.timeout")
async def test_hidden_children_are_not_found_and_what_was_sent_is_not_idle_and_a_restart_closes_nothing() -> None:
    async with driving(steps(hello=[{"say": "hello yourself"}]), pace=Pace(first_pause=0.1)) as stage:
        sessions = stage.sessions
        one = await stage.agency.create("one")
        session = await stage.session(one)
        life = await stage.agency.agents.up(one)

        # A turn that has been taken runs, whatever OpenCode has said of it by then.
        assert (await sessions.send(session, "hello", wait=False)).status == "taken"
        idle = await sessions.wait_for_idle(session, 60)
        assert idle.session is not None and idle.session.message_count == 2

        child = await life.client.create_session(title=TITLE, parent=session)
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

        def began(tenant: Tenant, life: Life) -> None:
            found.append(sessions._finding.room(tenant).session(session) is not None)

        stage.agency.agents.listeners.append(began)
        waiting = asyncio.ensure_future(sessions.wait_for_file(session, "late.txt", 90))
        os.kill(life.process.pid, signal.SIGKILL)
        await stage.until(lambda: found)
        (one.path / "late.txt").write_text("now")
        assert (await waiting).found
        assert found == [True]
