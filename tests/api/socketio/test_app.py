"""Socket.IO as editor extensions use it: the official client, a real listener and real workspaces."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from socketio.exceptions import ConnectionError as NotConnected
from websockets.asyncio.client import connect

from rookery.api.socketio import app as socketio, clients
from rookery.api.socketio.app import SocketIo
from rookery.api.socketio.events import WorkspaceEvents
from rookery.operations.table import list_all_operations
from rookery.wire.http.auth import OWNER, Principal, Tokens, make_tcp_authenticator
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.worktrees import read_git_folder
from tests.support.daemon.socketio import editor
from tests.support.http.listener import RunningListener, start_listener, within_limit
from tests.support.requirements import requirement
from tests.support.workspaces.no_agents import NoAgents
from tests.support.workspaces.service import WorkspaceParts, branches, make_repository, start_workspaces
from tests.support.workspaces.toolset import bind_workspaces, call_workspace_tool

pytestmark = pytest.mark.anyio
BEARER = {"Authorization": "Bearer owner"}
TRANSPORTS = [pytest.param(["websocket"], id="websocket"), pytest.param(["polling"], id="polling")]


@dataclass
class Desk:
    """A service of workspaces with one project, `app`, and Socket.IO in front of it."""

    served: WorkspaceParts
    tools: WorkspaceOperations
    site: RunningListener
    tokens: Tokens
    app: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.site.port}"

    async def make(self, name: str) -> Path:
        project = await self.served.project(self.app)
        made = await self.served.workspaces.create(project, name)
        return (await self.served.workspaces.wait_until_prepared(made)).path

    def token_of(self, path: Path) -> str:
        """Such as the daemon gives to what it runs in a workspace."""
        own = read_git_folder(path)
        assert own is not None
        self.tokens.add(f"of {path.name}", Principal("workspace", workspace=own.resolve()))
        return f"of {path.name}"


@pytest.fixture
async def desk(state: Path, tmp_path: Path) -> AsyncGenerator[Desk]:
    app = make_repository(tmp_path / "app")
    tokens = Tokens()
    tokens.add("owner", OWNER)
    async with start_workspaces(state) as served:
        await served.project(app)
        tools = WorkspaceOperations(served.workspaces, served.projects, served.git, served.events, NoAgents())
        served_app = SocketIo(WorkspaceEvents(tools, bind_workspaces(tools)), served.events)
        async with start_listener(served_app, judge_of=lambda port: make_tcp_authenticator(port, tokens)) as site:
            yield Desk(served, tools, site, tokens, app)
            served.events.end_all("shutdown")
            await within_limit(served_app._tasks.wait_all())


@requirement("ws.socketio.ack")
@pytest.mark.parametrize("transports", [*TRANSPORTS, pytest.param(None, id="upgrade")])
async def test_every_event_is_acknowledged_with_its_data(desk: Desk, transports: list[str] | None) -> None:
    one = await desk.make("one")
    async with editor(desk.url, "owner", transports=transports, path=str(one)) as ours:
        status = await ours.data("getStatus")
        assert status["isDirty"] is False
        assert status["agent"] == {"type": "none", "counts": {"idle": 0, "busy": 0, "total": 0}}
        (one / "new").touch()
        assert (await ours.data("getStatus", {}))["isDirty"] is True
        assert await ours.data("getMetadata") == {"base": "main"}
        assert await ours.data("setMetadata", {"key": "note", "value": "a"}) is None
        assert await ours.data("getMetadata") == {"base": "main", "note": "a"}
        assert await ours.data("setMetadata", {"key": "note", "value": None}) is None
        assert await ours.data("getMetadata") == {"base": "main"}
        assert await ours.data("getAgentSession") is None
        made = await ours.data("create", {"name": "two", "base": "main", "wait": True})
        assert (made["name"], made["state"], made["branch"]) == ("two", "ready", "two")
        assert await ours.data("getMetadata", {"workspacePath": made["path"]}) == {"base": "main"}
        assert await ours.data("delete", {"workspacePath": made["path"], "wait": True}) == {"started": True}
        assert not Path(made["path"]).exists()
        assert ours.transport == (transports[0] if transports else "websocket")


@requirement("ws.socketio.ack", "ops.table.single")
@pytest.mark.parametrize("transports", TRANSPORTS)
async def test_what_cannot_be_done_is_acknowledged_with_code_and_message(desk: Desk, transports: list[str]) -> None:
    one, elsewhere = str(await desk.make("one")), str(make_repository(desk.app.parent / "elsewhere"))
    async with editor(desk.url, "owner", transports=transports) as ours:
        for event in ("getStatus", "getMetadata", "getAgentSession", "delete"):
            assert await ours.code(event) == "invalid-input"
            assert await ours.code(event, {"workspacePath": "/nowhere"}) == "workspace-not-found"
            assert await ours.code(event, {"workspacePath": elsewhere}) == "project-not-found"
            assert await ours.code(event, {"workspacePath": one, "unknown": 1}) == "invalid-input"
        for bad in ("relative", "/a\0b", "/" + "x" * 5000, 5, ""):
            assert await ours.code("getStatus", {"workspacePath": bad}) == "invalid-input"
        for given in (1, "text", [1], True, b"bytes", {"workspacePath": b"bytes"}):
            assert await ours.code("getStatus", given) == "invalid-input"
        assert await ours.code("getStatus", {}, {}) == "invalid-input"
        for given in ({"value": "a"}, {"key": "a"}, {"key": "-a", "value": "a"}, {"key": "a", "value": 1}):
            assert await ours.code("setMetadata", {"workspacePath": one, **given}) == "invalid-input"
        for given in ({}, {"name": "../x"}, {"name": "one"}, {"name": "x", "project": "none-such"}):
            assert await ours.code("create", given) in ("invalid-input", "project-not-found", "workspace-exists")
        assert await ours.code("delete", {"workspacePath": str(desk.app)}) == "invalid-input"
        for event in ("api:workspace:fly", "api:other:getStatus", "", "*"):
            assert await ours.code(event or ":", {}) == "invalid-input"
        remedy: str = (await ours.call("fly"))["error"]["remedy"]
        assert {*remedy.removeprefix("use one of ").split(", ")} == {event for event, _ in list_events()}


@requirement("ws.socketio.delete")
@pytest.mark.parametrize("keep", [None, False, True])
async def test_a_workspace_is_deleted_exactly_as_the_tool_does(desk: Desk, keep: bool | None) -> None:
    given = {} if keep is None else {"keepBranch": keep}
    answers: list[Any] = []
    for name in ("by-tool", "by-event"):
        path = await desk.make(name)
        (path / "uncommitted").touch()

        async def ask(more: dict[str, Any], path: Path = path, name: str = name) -> Any:
            if name == "by-event":
                async with editor(desk.url, "owner", path=str(path)) as ours:
                    return await ours.call("delete", {**given, **more})
            found = await call_workspace_tool(desk.tools, path, "workspace_delete", **given, **more)
            if "error" in found:
                return {"success": False, "error": found["error"]}
            return {"success": True, "data": found}

        refused = await ask({})
        assert path.is_dir()
        answers.append([refused["error"]["code"], await ask({"force": True, "wait": True})])
        assert not path.exists()
    assert answers[0] == answers[1] == ["workspace-not-clean", {"success": True, "data": {"started": True}}]
    assert branches(desk.app) == ({"main", "by-tool", "by-event"} if keep else {"main"})
    assert len(desk.served.workspaces.deletions.trash.all()) == 2


async def test_what_stands_in_the_way_of_a_deletion_is_listed(desk: Desk) -> None:
    path = await desk.make("one")
    (path / "mine").touch()
    async with editor(desk.url, "owner", path=str(path)) as ours:
        refused = await ours.call("delete")
        assert any("mine" in line for line in refused["error"]["details"])


def list_events() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every event of the table of operations, with the parameters that it requires."""
    given = {"api:workspace:create": {"name": "x"}, "api:workspace:setMetadata": {"key": "mine", "value": "no"}}
    events = [event for operation in list_all_operations() if (event := operation.declared.socketio) is not None]
    assert given.keys() < set(events)
    for event in events:
        yield event, given.get(event, {})


@pytest.mark.parametrize("transports", TRANSPORTS)
async def test_the_token_of_a_workspace_implies_it_and_opens_no_other(desk: Desk, transports: list[str]) -> None:
    one, two = await desk.make("one"), await desk.make("two")
    token = desk.token_of(one)
    async with editor(desk.url, token, transports=transports) as ours:
        await ours.data("setMetadata", {"key": "mine", "value": "yes"})
        assert (await ours.data("getMetadata", {"workspacePath": str(one)}))["mine"] == "yes"
        for event, given in list_events():
            for other in (two, desk.app, Path("/nowhere"), one / ".." / "two"):
                assert await ours.code(event, {**given, "workspacePath": str(other)}) == "forbidden", event
        assert await ours.code("create", {"name": "x", "project": "another"}) == "forbidden"
        assert "mine" not in await desk.served.workspaces.metadata(await desk.served.workspaces.at(two))
        assert (await ours.data("create", {"name": "three", "wait": True}))["state"] == "ready"
    for other in (two, desk.app, Path("/nowhere")):
        with pytest.raises(NotConnected) as caught:
            async with editor(desk.url, token, transports=transports, path=str(other)):
                raise AssertionError("it was let in")
        assert "forbidden" in caught.value.__notes__[0]
    async with editor(desk.url, token, transports=transports, path=str(one)) as ours:
        assert await ours.data("delete", {"wait": True}) == {"started": True}
        await ours.heard("workspace:deleted")
        assert one == await desk.make("one")
        assert await ours.code("getStatus") == "workspace-not-found"
        await desk.served.workspaces.delete(await desk.served.workspaces.at(one), wait=True)
    assert not one.exists()
    assert two.is_dir()
    with pytest.raises(NotConnected):
        async with editor(desk.url, token, transports=transports):
            raise AssertionError("its workspace is gone")


@requirement("house.auth.token", "house.auth.cross-site")
async def test_nobody_is_let_in_whom_the_judge_refuses(desk: Desk) -> None:
    polling = f"{desk.url}/socket.io/?EIO=4&transport=polling"
    async with aiohttp.ClientSession() as session:
        for headers, more, status in (
            ({}, "", 401),
            ({"Authorization": "Bearer wrong"}, "", 401),
            ({}, "&token=owner", 401),
            (BEARER | {"Origin": "http://evil.example"}, "", 403),
            (BEARER | {"Origin": "null"}, "", 403),
            (BEARER | {"Host": "evil.example"}, "", 421),
            (BEARER, "&j=0", 400),
            (BEARER, "", 200),
        ):
            async with session.get(polling + more, headers=headers) as answer:
                assert answer.status == status, (headers, more)
                assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        for kind, status in (("text/plain", 400), ("application/x-www-form-urlencoded", 415)):
            async with session.post(polling, data=b"1", headers=BEARER | {"Content-Type": kind}) as answer:
                assert answer.status == status
    for token, headers in ((None, {}), ("wrong", {}), ("owner", {"Origin": "http://evil.example"})):
        for transport in ("websocket", "polling"):
            with pytest.raises(NotConnected):
                async with editor(desk.url, token, transports=[transport], headers=headers):
                    raise AssertionError("it was let in")


async def test_the_session_of_one_token_is_of_no_use_with_another(desk: Desk) -> None:
    token = desk.token_of(await desk.make("one"))
    polling = f"{desk.url}/socket.io/?EIO=4&transport=polling"
    async with aiohttp.ClientSession() as session:
        async with session.get(polling, headers=BEARER) as answer:
            sid = json.loads((await answer.text())[1:])["sid"]
        for method in ("GET", "POST"):
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}
            async with session.request(method, f"{polling}&sid={sid}", headers=headers, data="40") as answer:
                assert answer.status == 403


async def test_an_auth_that_makes_no_sense_is_refused_and_one_that_is_not_known_yet_is_not(desk: Desk) -> None:
    for path in ("relative", 5, "/a\0b"):
        with pytest.raises(NotConnected) as caught:
            async with editor(desk.url, "owner", path=path):
                raise AssertionError("it was let in")
        assert "invalid-input" in caught.value.__notes__[0]
    place = desk.app.parent / "linked"
    async with editor(desk.url, "owner", path=str(place)) as ours:
        assert await ours.code("getStatus") == "workspace-not-found"
    place.symlink_to(desk.app)
    async with editor(desk.url, "owner", path=str(place)) as ours:
        assert await ours.data("getMetadata") == {"base": "main"}


@contextlib.asynccontextmanager
async def raw(desk: Desk) -> AsyncGenerator[Any]:
    """A WebSocket below the library, connected to Socket.IO."""
    url = f"ws://127.0.0.1:{desk.site.port}/socket.io/?EIO=4&transport=websocket"
    async with connect(url, proxy=None, additional_headers=BEARER) as socket:
        assert str(await within_limit(socket.recv())).startswith("0{")
        await socket.send("40")
        assert str(await within_limit(socket.recv())).startswith("40{")
        yield socket


async def acknowledged(socket: Any) -> str:
    """What is said to an event that follows, whatever was said before."""
    await socket.send('427["api:workspace:fly",{}]')
    async with asyncio.timeout(20):
        while not (told := str(await socket.recv())).startswith("437"):
            pass
    return told


async def test_packets_that_the_library_would_stumble_over_are_ignored(desk: Desk) -> None:
    async with raw(desk) as socket:
        for packet in (
            '421["connect",{"asgi.scope":{}},{}]',
            '421["disconnect","client"]',
            "421" + "[" * 100_000 + "]" * 100_000,
            "421{}",
            "421[]",
            '421[["a"],1]',
            "42",
            "40",
            "43999[1]",
            '4599999-["a",{"_placeholder":true,"num":0}]',
            b"an attachment of nothing",
            "4",
            '4{"a":1}',
            "49",
            "44",
        ):
            await socket.send(packet)
            assert '"invalid-input"' in await acknowledged(socket), packet[:50]


@pytest.mark.parametrize("packet", ["", "x", "4" + "x" * 1_100_000])
async def test_a_connection_that_is_beyond_help_ends_and_nothing_of_it_stays(desk: Desk, packet: str) -> None:
    async with raw(desk) as socket:
        await socket.send(packet)
        await within_limit(socket.wait_closed())
    await desk.site.connections.reach(0)
    async with editor(desk.url, "owner", path=str(desk.app)) as ours:
        assert await ours.data("getMetadata") == {"base": "main"}


async def test_clients_and_events_under_way_are_bounded_and_the_limit_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socketio, "_MAX_CLIENTS", 1)
    monkeypatch.setattr(clients, "_MAX_EVENTS", 2)
    holding, entered = asyncio.Event(), asyncio.Queue[None]()
    whole = desk.tools.overview.status

    async def status(workspace: Any) -> Any:
        entered.put_nowait(None)
        await holding.wait()
        return await whole(workspace)

    monkeypatch.setattr(desk.tools.overview, "status", status)
    async with editor(desk.url, "owner", path=str(desk.app)) as ours, asyncio.TaskGroup() as group:
        first = [group.create_task(ours.data("getStatus")) for _ in range(2)]
        for _ in first:
            await within_limit(entered.get())
        assert await ours.code("getStatus") == "too-many-events"
        polling = f"{desk.url}/socket.io/?EIO=4&transport=polling"
        async with aiohttp.ClientSession() as session, session.get(polling, headers=BEARER) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (429, "too-many-connections")
        holding.set()
        for one in first:
            assert "isDirty" in await within_limit(one)


async def changed(desk: Desk, name: str) -> None:
    project = await desk.served.project(desk.app)
    await desk.served.workspaces.set_metadata(await desk.served.workspaces.get(project, name), "note", "a")


async def test_changes_are_pushed_to_whom_they_concern(desk: Desk) -> None:
    one, two = await desk.make("one"), await desk.make("two")
    async with (
        editor(desk.url, "owner") as owner,
        editor(desk.url, "owner", path=str(one)) as first,
        editor(desk.url, desk.token_of(two), transports=["polling"]) as second,
    ):
        await changed(desk, "one")
        await changed(desk, "two")
        assert [(await owner.heard("workspace:changed"))["name"] for _ in range(2)] == ["one", "two"]
        assert (await second.heard("workspace:changed"))["name"] == "two"
        told = await first.heard("workspace:changed")
        assert (told["name"], told["metadata"]["note"]) == ("one", "a")
        assert first.heard_so_far() == second.heard_so_far() == []


async def test_a_client_that_does_not_read_is_cut_off(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_MAX_UNREAD", 3)
    polling = f"{desk.url}/socket.io/?EIO=4&transport=polling"
    async with (
        aiohttp.ClientSession(headers=BEARER | {"Content-Type": "text/plain"}) as session,
        editor(desk.url, "owner") as reading,
    ):
        async with session.get(polling) as answer:
            sid = json.loads((await answer.text())[1:])["sid"]
        async with session.post(f"{polling}&sid={sid}", data="40") as answer:
            assert answer.status == 200
        for _ in range(6):
            await changed(desk, "@main")
            await reading.heard("workspace:changed")
        async with session.post(f"{polling}&sid={sid}", data='421["a"]') as answer:
            assert answer.status == 400
        await changed(desk, "@main")
        assert (await reading.heard("workspace:changed"))["name"] == "@main"


@pytest.mark.parametrize("transports", TRANSPORTS)
async def test_clients_are_told_of_the_end(desk: Desk, transports: list[str]) -> None:
    async with editor(desk.url, "owner", transports=transports) as ours:
        assert await ours.code("getStatus") == "invalid-input"
        desk.served.events.end_all("shutdown")
        assert await ours.heard("shutdown") is None
        await within_limit(ours.parted.wait())
