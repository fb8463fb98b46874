"""Closing and deleting a workspace that clients use: its calls end with a reason, and no others are affected."""

import asyncio
import itertools
from pathlib import Path

import pytest

from rookery.system.ids import project_id
from rookery.workspaces.model import Workspace
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.http.listener import within_limit
from tests.support.mcp.caller import ERAS, failure, told, words
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio


def repository() -> Path:
    return make_repository(Path.home() / "src" / "app")


async def made(gateway: Gateway, folder: Path, name: str) -> Workspace:
    return await gateway.workspaces.wait_until_prepared(await gateway.workspaces.create(project_id(folder), name))


def path_of(workspace: Workspace) -> str:
    return f"/w/{workspace.project.id}/{workspace.name}/mcp"


@requirement("ws.delete.others")
@pytest.mark.parametrize("era", ERAS)
async def test_e17_closing_ends_calls_with_a_reason_and_leaves_other_workspaces_alone(era: str) -> None:
    folder = repository()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        left, right = await made(gateway, folder, "left"), await made(gateway, folder, "right")
        callers = [await gateway.caller(path_of(one), era) for one in (left, right)]
        held = [caller.begin("one__hold") for caller in callers]
        servers = [await gateway.scripted.comes("one", number) for number in (1, 2)]
        ending, staying = sorted(servers, key=lambda one: one.cwd != left.path)
        for one in servers:
            await one.called("hold")
        closed = await gateway.workspaces.close(left)
        assert closed.open is False
        found = await within_limit(held[0])
        assert failure(found) == "upstream-failed" and "closed" in words(found)
        await ending.has_ended()
        staying.answer(await staying.called("hold"), {"content": []})
        assert "result" in await within_limit(held[1])
        assert told(await callers[1].call("one__echo"))["pid"] == staying.pid
        # It is closed, not gone: who comes again is served.
        again = await gateway.caller(path_of(left), era)
        assert told(await again.call("one__echo"))["server"] == "one"


async def test_e17_sessions_and_streams_of_a_closed_workspace_end() -> None:
    folder = repository()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        task = await made(gateway, folder, "task")
        caller = await gateway.old_caller(path_of(task))
        await caller.listen()
        assert caller.standing is not None
        await gateway.workspaces.close(task)
        await within_limit(caller.standing)
        assert (await caller.raw(b'{"jsonrpc":"2.0","id":9,"method":"ping"}'))[0] == 404


@requirement("ws.delete.started")
@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_that_deletes_its_own_workspace_hears_that_it_is_done(era: str) -> None:
    folder = repository()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        task = await made(gateway, folder, "task")
        caller = await gateway.caller(path_of(task), era)
        await caller.call("one__echo")
        found = await caller.call("workspace_delete", {"wait": True})
        assert found["result"]["structuredContent"]["started"] is True
        await gateway.scripted.of("one")[0].has_ended()
        assert not task.path.exists()
        assert [one.name for one in await gateway.workspaces.list()] == ["@main"]
        status, _ = await caller.raw(b'{"jsonrpc":"2.0","id":9,"method":"ping"}')
        assert status == 404
        closed = [one["name"] for one in gateway.events.of("workspace.closed")]
        assert closed == ["task"]


async def test_e17_many_who_open_and_close_at_once_take_turns() -> None:
    folder = repository()
    turns: list[str] = []

    class Companion:
        async def on_opened(self, workspace: Workspace) -> None:
            turns.append("opening")
            await asyncio.sleep(0)
            turns.append("opened")

        async def on_closed(self, workspace: Workspace) -> bool:
            turns.append("closing")
            await asyncio.sleep(0)
            turns.append("closed")
            return True

    async with start_gateway(None, folder) as gateway:
        gateway.workspaces.lifecycle.hooks.append(Companion())
        main = await gateway.workspaces.get(project_id(folder), "@main")
        assert main.open is False
        for _ in range(3):
            doing = [gateway.workspaces.open(main), gateway.workspaces.close(main), gateway.workspaces.open(main)]
            await asyncio.gather(*doing)
        assert len(turns) >= 6
        pairs = list(zip(turns[::2], turns[1::2], strict=True))
        assert set(pairs) == {("opening", "opened"), ("closing", "closed")}
        events = [event.type for event in gateway.events.all if event.type in ("workspace.opened", "workspace.closed")]
        assert all(one != other for one, other in itertools.pairwise(events))
        opens = sum(pair == ("opening", "opened") for pair in pairs)
        assert opens == events.count("workspace.opened")


async def test_what_cannot_be_started_or_stopped_keeps_no_other_from_it() -> None:
    folder = repository()
    seen: list[str] = []

    class Broken:
        async def on_opened(self, workspace: Workspace) -> None:
            raise RuntimeError("it does not start")

        async def on_closed(self, workspace: Workspace) -> bool:
            raise RuntimeError("it does not stop")

    class Whole:
        async def on_opened(self, workspace: Workspace) -> None:
            seen.append(f"{workspace.name} opened")

        async def on_closed(self, workspace: Workspace) -> bool:
            seen.append(f"{workspace.name} closed")
            return False

    async with start_gateway(None, folder) as gateway:
        companions = gateway.workspaces.lifecycle.hooks
        companions[:] = [Whole(), Broken(), *companions]
        companions.append(Broken())
        task = await made(gateway, folder, "task")
        assert (task.open, seen) == (True, ["task opened"])
        await gateway.workspaces.delete(task, wait=True)
        assert seen == ["task opened", "task closed"]
        assert not task.path.exists()
