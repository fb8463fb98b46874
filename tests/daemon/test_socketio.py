"""Socket.IO on the whole daemon: loaded by its first client, served on both doors, and closed with the daemon."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.editor import editor
from tests.support.house import SECONDS, House, rookery, up
from tests.support.requirements import requirement
from tests.support.workspaces import make_repository

pytestmark = pytest.mark.anyio


def imported(house: House) -> set[str]:
    """The packages that a daemon has told of because of PYTHONPROFILEIMPORTTIME."""
    told = (house.state / "logs" / "daemon.out").read_text()
    return set(re.findall(r"^import time:[^|]*\|[^|]*\|\s*([^\s.]+)\S*$", told, re.MULTILINE))


async def test_the_library_is_imported_with_the_first_client_and_not_before(tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    house = up(str(app), env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert house.http("GET", "/api/status").status == 200
    before = imported(house)
    assert {"rookery", "websockets"} <= before
    assert not {"socketio", "engineio"} & before
    async with editor(house.runtime["url"], house.token, path=str(app)) as ours:
        assert await ours.data("getMetadata") == {"base": "main"}
    assert {"socketio", "engineio"} <= imported(house)
    assert not {"simple_websocket", "wsproto"} & imported(house)
    assert rookery("down").returncode == 0


@requirement("ws.socketio.ack")
async def test_the_unix_socket_serves_it_without_a_token(house: House, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    assert rookery("project", "add", str(app)).returncode == 0
    for transport in ("websocket", "polling"):
        async with editor("http://here", None, transports=[transport], unix=house.runtime["socket"]) as ours:
            assert (await ours.data("getStatus", {"workspacePath": str(app)}))["isDirty"] is False
            assert await ours.code("getStatus") == "invalid-input"


@pytest.mark.parametrize("transport", ["websocket", "polling"])
async def test_a_daemon_that_stops_tells_its_clients(house: House, transport: str) -> None:
    async with editor(house.runtime["url"], house.token, transports=[transport]) as ours:
        down = await asyncio.to_thread(rookery, "down")
        assert down.returncode == 0
        assert await ours.heard("shutdown") is None
        async with asyncio.timeout(SECONDS):
            await ours.parted.wait()
    assert not [line for line in house.log() if line["level"] in ("error", "warning")]
