"""The generated methods of the Python client, at a real daemon."""

import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

import rookery
from rookery.sessions.records import Turn, TurnUpdate
from tests.support.daemon.process import Daemon
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

# What belongs to the daemon alone.
HEAVY = {"aiohttp", "ctypes", "mcp", "psutil", "pydantic", "socketio", "sqlite3", "starlette.routing"}


def test_the_client_does_not_import_what_only_the_daemon_needs() -> None:
    code = "import sys, rookery.sdk; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "rookery.sdk.operations" in loaded
    assert not loaded & HEAVY
    packages = {name.split(".")[1] for name in loaded if name.startswith("rookery.")}
    assert packages == {"daemon_client", "sdk", "sessions", "system", "wire"}


async def test_results_are_structs_text_or_streams(daemon: Daemon) -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with rookery.connect() as r:
        health = await r.operations.daemon.health()
        assert health.status == "ok" and health.instance == (await r.operations.daemon.status()).instance
        assert "rookery_" in await r.operations.daemon.metrics()
        assert await r.operations.trash.list() == []
        async with aclosing(r.operations.daemon.events(since=0)) as events:
            await r.projects.add(app)
            added = await anext(event async for event in events if event.type == "project.added")
        assert added.data["project"]["name"] == "app" and added.id is not None
        async with aclosing(r.operations.daemon.events(since=added.id - 1)) as events:
            assert (await anext(events)).id == added.id
        report = await r.operations.daemon.report()
        assert [project.path for project in report.projects] == [str(app)]
        # What the command line prints has the names of JSON.
        assert (await r.status())["projects"][0]["id"] == report.projects[0].id


async def test_errors_have_the_codes_of_the_daemon(daemon: Daemon) -> None:
    async with rookery.connect() as r:
        for failing, code in (
            (r.operations.trash.restore("no/../such"), "workspace-not-found"),
            (r.operations.session.messages("ses_unknown", since=time.time()), "session-not-found"),
            (r.operations.session.wait("ses_unknown", "message"), "invalid-input"),
        ):
            with pytest.raises(rookery.RookeryError) as caught:
                await failing
            assert caught.value.code == code


@pytest.mark.timeout(600)
async def test_a_turn_can_be_followed_and_its_screen_drawn() -> None:
    async with start_system_with_sessions("fix"), rookery.connect() as r:
        s = await (await r.workspaces.get("fix")).sessions.create()
        async with aclosing(r.operations.session.send_events(s.id, "look around", timeout=120)) as events:
            received = [event async for event in events]
        assert received[0].type == "taken" and "tool" in {event.type for event in received}
        assert all(isinstance(event.data, TurnUpdate) for event in received[:-1])
        last = received[-1].data
        assert isinstance(last, Turn) and (received[-1].type, last.status) == ("turn", "finished")
        picture = await r.operations.session.screenshot(session=s.id, format="svg")
        assert picture.media_type == "image/svg+xml" and picture.text.startswith("<svg")
        assert picture.headers["x-rookery-session"] == s.id
        assert (await r.operations.session.screenshot_json(session=s.id)).data.startswith(b"\x89PNG")
