"""MCP, REST, the command line and Socket.IO of one daemon: a change through one is visible in all."""

import asyncio
import json
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from rookery.system.ids import project_id
from tests.support.daemon.events import Reader
from tests.support.daemon.process import Daemon, rookery
from tests.support.daemon.socketio import Editor, editor
from tests.support.mcp.client import LIMIT
from tests.support.requirements import requirement
from tests.support.workspaces.service import branches, make_repository

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


@dataclass
class Faces:
    """One workspace, called `fix`, through all of them. A failure is answered as `{"error": …}`."""

    daemon: Daemon
    client: Client
    editor: Editor
    app: Path
    path: Path

    async def rest(self, method: str, end: str, body: Any = None) -> Any:
        place = f"/api/workspaces/{project_id(self.app)}/fix{end}"
        data = json.dumps(body).encode() if body is not None else None
        return (await asyncio.to_thread(self.daemon.http, method, place, data, headers=JSON)).json()

    async def tool(self, name: str, **given: Any) -> Any:
        content = (await self.client.call_tool(name, given)).structured_content
        assert content is not None
        return content.get("result", content)

    async def cli(self, *words: str) -> Any:
        done = await asyncio.to_thread(rookery, "ws", *words, "--json", cwd=self.app)
        return json.loads(done.stdout) if done.returncode == 0 else {"error": json.loads(done.stderr)["error"]}

    async def socketio(self, event: str, **given: Any) -> Any:
        told = await self.editor.call(event, given)
        return told["data"] if told["success"] else {"error": told["error"]}

    async def metadata(self) -> list[Any]:
        return [
            await self.rest("GET", "/metadata"),
            await self.tool("workspace_get_metadata"),
            await self.cli("meta", "fix"),
            await self.socketio("getMetadata"),
        ]


@pytest.fixture
async def faces(daemon: Daemon) -> AsyncGenerator[Faces]:
    app = make_repository(Path.home() / "app")
    made = await asyncio.to_thread(rookery, "ws", "create", "fix", "--json", cwd=app)
    path = Path(json.loads(made.stdout)["path"])
    async with editor(daemon.runtime["url"], daemon.token, path=str(path)) as ours, _client(daemon, path) as client:
        yield Faces(daemon, client, ours, app, path)


@asynccontextmanager
async def _client(daemon: Daemon, path: Path) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {daemon.token}", "X-Workspace-Path": str(path)}
    async with create_mcp_http_client(headers) as http:
        way = streamable_http_client(f"{daemon.runtime['url']}/mcp", http_client=http)
        async with Client(way, read_timeout_seconds=LIMIT) as client:
            await client.list_tools()
            yield client


@requirement("ws.face.same", "ws.metadata.set")
async def test_what_one_face_sets_all_of_them_see(faces: Faces) -> None:
    await faces.rest("PUT", "/metadata", {"key": "rest", "value": "1"})
    await faces.tool("workspace_set_metadata", key="tool", value="2")
    await faces.cli("meta", "set", "cli", "3", "-w", "fix")
    await faces.socketio("setMetadata", key="socketio", value="4")
    wanted = {"base": "main", "rest": "1", "tool": "2", "cli": "3", "socketio": "4"}
    assert await faces.metadata() == [wanted] * 4


@requirement("ws.metadata.set")
def test_a_metadata_put_starts_as_many_processes_among_3_workspaces_as_among_30(daemon: Daemon) -> None:
    app = make_repository(Path.home() / "app")
    assert rookery("project", "add", str(app)).returncode == 0
    project = project_id(app)

    def make(number: int) -> None:
        body = json.dumps({"name": f"w{number}", "agent": False, "wait": True}).encode()
        assert daemon.http("POST", "/api/workspaces", body, headers=JSON).status == 201

    def started() -> int:
        told = daemon.http("GET", "/metrics").body.decode()
        return int(float(told.partition("\nrookery_children_started_total ")[2].split()[0]))

    def counted() -> int:
        """The processes that the daemon starts for ten changes, and for who watches, asks and is pushed them."""
        assert len(daemon.http("GET", "/api/workspaces").json()) == len(made) + 1
        events = Reader(daemon, "/api/events")
        before = started()
        for number in range(10):
            body = json.dumps({"key": "note", "value": f"{len(made)}-{number}"}).encode()
            answer = daemon.http("PUT", f"/api/workspaces/{project}/w0/metadata", body, headers=JSON)
            assert answer.json()["note"] == f"{len(made)}-{number}"
            assert events.until("workspace.changed")["data"]["metadata"]["note"] == f"{len(made)}-{number}"
        events.close()
        return started() - before

    made: list[int] = []
    found: list[int] = []
    for count in (3, 30):
        missing = range(len(made), count)
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(make, missing))
        made += missing
        found.append(counted())
    assert found == [0, 0]


@requirement("ws.face.same", "ws.status.shape")
async def test_all_of_them_tell_the_same_status(faces: Faces) -> None:
    (faces.path / "new").write_text("new\n")
    told = [
        await faces.rest("GET", "/status"),
        await faces.tool("workspace_get_status"),
        (await faces.cli("show", "fix"))["status"],
        await faces.socketio("getStatus"),
    ]
    assert told[0]["isDirty"] is True
    assert told == [told[0]] * 4


@requirement("ws.face.same", "ws.error.shape")
async def test_all_of_them_fail_with_the_same_code_and_message(faces: Faces) -> None:
    (faces.path / "new").write_text("new\n")
    wrong_key = [
        await faces.rest("PUT", "/metadata", {"key": "1x", "value": "x"}),
        await faces.tool("workspace_set_metadata", key="1x", value="x"),
        await faces.cli("meta", "set", "1x", "x", "-w", "fix"),
        await faces.socketio("setMetadata", key="1x", value="x"),
    ]
    not_clean = [
        await faces.rest("DELETE", ""),
        await faces.tool("workspace_delete"),
        await faces.cli("rm", "fix"),
        await faces.socketio("delete"),
    ]
    for found, code in ((wrong_key, "invalid-input"), (not_clean, "workspace-not-clean")):
        first, *others = [(one["error"]["code"], one["error"]["message"]) for one in found]
        assert first[0] == code
        assert others == [first] * 3
    assert faces.path.exists()


@requirement("ws.face.same", "ws.delete.started", "ws.socketio.delete")
async def test_what_one_of_them_deletes_is_gone_for_all(faces: Faces) -> None:
    assert await faces.socketio("delete", keepBranch=True, wait=True) == {"started": True}
    assert not faces.path.exists()
    assert branches(faces.app) == {"main", "fix"}
    gone = [
        await faces.rest("GET", ""),
        await faces.tool("workspace_get_status"),
        await faces.cli("show", "fix"),
        await faces.socketio("getStatus"),
    ]
    assert [one["error"]["code"] for one in gone] == ["workspace-not-found"] * 4
