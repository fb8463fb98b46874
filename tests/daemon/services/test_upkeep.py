"""What goes on by itself: the user's command is run when a workspace begins to need them, and the trash is emptied."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rookery.daemon import notifying
from rookery.daemon.settings import Notify, Settings, Trash
from rookery.daemon.upkeep import Emptying
from rookery.system.ids import project_id
from tests.support.clock import SetClock
from tests.support.gateway import Gateway, a_gateway
from tests.support.requirements import requirement
from tests.support.wire import soon
from tests.support.workspaces import make_repository, serving

pytestmark = pytest.mark.anyio

DAY = 86_400.0


class Pager:
    """A notify command that tells the test, over a pipe, what it was given."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / "told"
        os.mkfifo(self._pipe)
        told = "$ROOKERY_WORKSPACE_NAME $ROOKERY_ATTENTION $ROOKERY_WORKSPACE_PATH"
        self.command = f'(echo "{told}"; cat; echo) > {self._pipe}'

    async def told(self) -> tuple[str, dict[str, Any]]:
        words, given = (await soon(asyncio.to_thread(self._pipe.read_text))).split("\n")[:2]
        return words, json.loads(given)


def repository(command: str) -> Path:
    config = f"[workspace]\nsetup = {json.dumps(command)}\n"
    return make_repository(Path.home() / "src" / "app", {".rookery/config.toml": config})


async def approve_all(gateway: Gateway) -> None:
    for one in await gateway.parts.workspaces.waiting():
        await gateway.approvals.approve(one, one.digest)


@requirement("ws.daily.attention")
async def test_the_command_is_run_when_a_workspace_begins_to_need_its_user_and_not_again(tmp_path: Path) -> None:
    fine = tmp_path / "fine"
    folder, pager = repository(f"test -e {fine}"), Pager(tmp_path)
    settings = Settings(notify=Notify(pager.command))
    async with a_gateway(None, folder, settings=settings) as gateway:
        service = gateway.workspaces
        task = await service.create(project_id(folder), "task")
        words, given = await pager.told()
        assert words == f"task needs-approval {task.path}"
        assert (given["name"], given["state"], given["path"]) == ("task", "failed", str(task.path))
        assert [one["reason"] for one in given["attention"]] == ["needs-approval"]
        # A change that is none for the user is not told: the next thing that is heard is the next new reason.
        await service.set_metadata(task, "note", "x")
        await approve_all(gateway)
        await service.approved_now(str(folder))
        words, given = await pager.told()
        assert words == f"task failed {task.path}"
        assert "ended with 1" in given["attention"][0]["text"]
        fine.touch()
        await service.prepare(task)
        assert (await service.prepared(task)).state == "ready"
        fine.unlink()
        await service.prepare(task)
        assert (await pager.told())[0] == f"task failed {task.path}"
    # What was so when the daemon stopped is not told when it starts: the other one is heard first.
    async with a_gateway(None, folder, settings=settings) as gateway:
        other = await gateway.workspaces.create(project_id(folder), "other")
        assert (await pager.told())[0] == f"other failed {other.path}"


@requirement("ws.daily.attention")
async def test_a_command_that_fails_is_logged_and_hurts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository("exit 3")
    logged: asyncio.Queue[str] = asyncio.Queue()

    def warning(text: str, *more: object) -> None:
        logged.put_nowait(text % more)

    monkeypatch.setattr(notifying.logger, "warning", warning)
    settings = Settings(notify=Notify("echo it is broken >&2; exit 7"))
    async with a_gateway(None, folder, settings=settings) as gateway:
        for name in ("one", "two"):
            made = await gateway.workspaces.create(project_id(folder), name)
            await gateway.workspaces.prepared(made)
            assert await soon(logged.get()) == "the notify command ended with 7: it is broken"
        assert [one.state for one in await gateway.workspaces.list()] == ["ready", "failed", "failed"]


@requirement("ws.delete.restore")
async def test_the_trash_is_looked_through_at_the_start_and_then_each_day(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    clock = SetClock()
    async with serving(state) as served:
        project = await served.project(app)
        emptying = Emptying(served.workspaces, clock)
        assert await emptying.look()
        for name in ("old", "new"):
            made = await served.workspaces.prepared(await served.workspaces.create(project, name))
            await served.workspaces.delete(made, wait=True)
        clock.now += DAY - 1
        assert not await emptying.look()
        clock.now += 1
        assert await emptying.look() and not await emptying.look()
        assert len(served.workspaces.removals.trash.all()) == 2
        # A clock that was set back must not keep the trash for ever.
        clock.now -= 300 * DAY
        assert await emptying.look()


@requirement("ws.delete.restore")
@pytest.mark.parametrize("trash", [Trash(days=1e-9), Trash(limit=1024)])
async def test_the_settings_say_when_the_trash_is_emptied(trash: Trash) -> None:
    folder = make_repository(Path.home() / "src" / "app", {"large": "x" * 100_000})
    async with a_gateway(None, folder, settings=Settings(trash=trash)) as gateway:
        made = await gateway.workspaces.create(project_id(folder), "task")
        await gateway.workspaces.delete(await gateway.workspaces.prepared(made), wait=True)
        assert len(gateway.workspaces.removals.trash.all()) == 1
        assert await Emptying(gateway.workspaces).look()
        assert gateway.workspaces.removals.trash.all() == []
    async with a_gateway(None, folder) as gateway:
        made = await gateway.workspaces.create(project_id(folder), "task")
        await gateway.workspaces.delete(await gateway.workspaces.prepared(made), wait=True)
        await Emptying(gateway.workspaces).look()
        assert len(gateway.workspaces.removals.trash.all()) == 1
