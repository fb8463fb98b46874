"""Socket.IO in the daemon: imported with the first client, on port and Unix socket, and closed with the daemon."""

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rookery.system.ids import project_id
from tests.conformance.suite import NODE
from tests.support.daemon.process import SECONDS, Daemon, rookery, up
from tests.support.daemon.socketio import editor
from tests.support.npm.packages import fetched
from tests.support.requirements import requirement
from tests.support.workspaces.service import branches, make_repository

pytestmark = pytest.mark.anyio
EXTENSION = Path(__file__).parents[1] / "programs" / "editor.js"
CLIENT = "4.8.4"


def imported(daemon: Daemon) -> set[str]:
    """The packages that a daemon has told of because of PYTHONPROFILEIMPORTTIME."""
    told = (daemon.state / "logs" / "daemon.out").read_text()
    return set(re.findall(r"^import time:[^|]*\|[^|]*\|\s*([^\s.]+)\S*$", told, re.MULTILINE))


async def test_the_library_is_imported_with_the_first_client_and_not_before(tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    daemon = up(str(app), env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert daemon.http("GET", "/api/status").status == 200
    before = imported(daemon)
    assert {"rookery", "websockets"} <= before
    assert not {"socketio", "engineio"} & before
    async with editor(daemon.runtime["url"], daemon.token, path=str(app)) as ours:
        assert await ours.data("getMetadata") == {"base": "main"}
    assert {"socketio", "engineio"} <= imported(daemon)
    assert not {"simple_websocket", "wsproto"} & imported(daemon)
    assert rookery("down").returncode == 0


@requirement("ws.socketio.ack")
async def test_the_unix_socket_serves_it_without_a_token(daemon: Daemon, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    assert rookery("project", "add", str(app)).returncode == 0
    for transport in ("websocket", "polling"):
        async with editor("http://here", None, transports=[transport], unix=daemon.runtime["socket"]) as ours:
            assert (await ours.data("getStatus", {"workspacePath": str(app)}))["isDirty"] is False
            assert await ours.code("getStatus") == "invalid-input"


def extension(options: dict[str, Any], *questions: list[Any]) -> dict[str, Any]:
    """What the official JavaScript client tells, which is what extensions use."""
    modules = fetched("socket.io", {"socket.io-client": CLIENT})
    done = subprocess.run(
        [NODE / "bin" / "node", EXTENSION, json.dumps(options), json.dumps(questions)],
        env=os.environ | {"NODE_PATH": str(modules)},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@requirement("ws.socketio.ack", "ws.socketio.delete")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("transports", [["polling", "websocket"], ["websocket"], ["polling"]], ids="-".join)
def test_the_official_javascript_client_is_served(daemon: Daemon, tmp_path: Path, transports: list[str]) -> None:
    app = make_repository(tmp_path / "app")
    assert rookery("project", "add", str(app)).returncode == 0
    bearer = {"Authorization": f"Bearer {daemon.token}"}
    options = {"url": daemon.runtime["url"], "transports": transports, "extraHeaders": bearer}
    place = daemon.state / "projects" / project_id(app) / "workspaces" / "one"
    told = extension(
        options | {"auth": {"workspacePath": str(place)}},
        ["api:workspace:getStatus"],
        ["api:workspace:create", {"project": project_id(app), "name": "one", "agent": False, "wait": True}],
        ["api:workspace:getStatus", {}],
        ["api:workspace:setMetadata", {"key": "note", "value": "a"}],
        ["api:workspace:getMetadata"],
        ["api:workspace:getAgentSession"],
        ["api:workspace:delete", {"keepBranch": True, "wait": True}],
        ["api:workspace:fly"],
    )
    missing, made, status, noted, metadata, session, deleted, unknown = told["answers"]
    assert (missing["success"], missing["error"]["code"]) == (False, "workspace-not-found")
    assert (made["success"], made["data"]["path"]) == (True, str(place))
    assert status["data"]["isDirty"] is False
    assert noted == session == {"success": True, "data": None}
    assert metadata == {"success": True, "data": {"base": "main", "note": "a"}}
    assert deleted == {"success": True, "data": {"started": True}}
    assert unknown["error"]["code"] == "invalid-input"
    assert {"workspace:ready", "workspace:changed", "workspace:deleted"} <= set(told["pushed"])
    assert told["transport"] == transports[-1]
    assert not place.exists()
    assert branches(app) == {"main", "one"}
    assert extension(options | {"extraHeaders": {}})["refused"]
    assert extension(options | {"auth": {"workspacePath": "relative"}})["data"]["code"] == "invalid-input"


@pytest.mark.parametrize("transport", ["websocket", "polling"])
async def test_a_daemon_that_stops_tells_its_clients(daemon: Daemon, transport: str) -> None:
    async with editor(daemon.runtime["url"], daemon.token, transports=[transport]) as ours:
        down = await asyncio.to_thread(rookery, "down")
        assert down.returncode == 0
        assert await ours.heard("shutdown") is None
        async with asyncio.timeout(SECONDS):
            await ours.parted.wait()
    assert not [line for line in daemon.log() if line["level"] in ("error", "warning")]
