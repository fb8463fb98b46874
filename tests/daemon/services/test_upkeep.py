"""Periodic maintenance: `notify.command` runs for new needs of a workspace, and the trash is emptied."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rookery.daemon.services import notify
from rookery.daemon.services.upkeep import TrashEmptying
from rookery.daemon.settings.schema import NotifySettings, Settings, TrashSettings
from rookery.system.ids import project_id
from tests.support.cli import workspaces as ws
from tests.support.clock import MachineClock, SetClock
from tests.support.daemon.events import Reader
from tests.support.daemon.process import Daemon, rookery, up
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.http.listener import within_limit
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository, start_workspaces

pytestmark = pytest.mark.anyio

DAY = 86_400.0


def logged(daemon: Daemon, begins: str) -> str:
    """Wait for a line of the daemon's log."""
    reader = Reader(daemon, "/api/logs?last=200")
    try:
        while event := reader.next():
            if event["data"].get("message", "").startswith(begins):
                return event["data"]["message"]
    finally:
        reader.close()
    raise AssertionError("the log ended")


class Pager:
    """A notify command that tells the test, over a pipe, what it was given."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / "told"
        os.mkfifo(self._pipe)
        told = "$ROOKERY_WORKSPACE_NAME $ROOKERY_ATTENTION $ROOKERY_WORKSPACE_PATH"
        self.command = f'(echo "{told}"; cat; echo) > {self._pipe}'

    async def told(self) -> tuple[str, dict[str, Any]]:
        words, given = (await within_limit(asyncio.to_thread(self._pipe.read_text))).split("\n")[:2]
        return words, json.loads(given)


def repository(command: str) -> Path:
    config = f"[workspace]\nsetup = {json.dumps(command)}\n"
    return make_repository(Path.home() / "src" / "app", {".rookery/config.toml": config})


async def approve_all(gateway: Gateway) -> None:
    for one in await gateway.parts.workspaces.list_subjects():
        await gateway.approvals.approve(one, one.digest)


@requirement("ws.daily.attention")
async def test_the_command_is_run_when_a_workspace_begins_to_need_its_user_and_not_again(tmp_path: Path) -> None:
    fine = tmp_path / "fine"
    folder, pager = repository(f"test -e {fine}"), Pager(tmp_path)
    settings = Settings(notify=NotifySettings(pager.command))
    async with start_gateway(None, folder, settings=settings) as gateway:
        service = gateway.workspaces
        task = await service.create(project_id(folder), "task")
        words, given = await pager.told()
        assert words == f"task needs-approval {task.path}"
        assert (given["name"], given["state"], given["path"]) == ("task", "failed", str(task.path))
        assert [one["reason"] for one in given["attention"]] == ["needs-approval"]
        # A change that is none for the user is not told: the next thing that is heard is the next new reason.
        await service.set_metadata(task, "note", "x")
        await approve_all(gateway)
        await service.on_approved(str(folder))
        words, given = await pager.told()
        assert words == f"task failed {task.path}"
        assert "ended with 1" in given["attention"][0]["text"]
        fine.touch()
        await service.prepare(task)
        assert (await service.wait_until_prepared(task)).state == "ready"
        fine.unlink()
        await service.prepare(task)
        assert (await pager.told())[0] == f"task failed {task.path}"
    # What was so when the daemon stopped is not told when it starts: the other one is heard first.
    async with start_gateway(None, folder, settings=settings) as gateway:
        other = await gateway.workspaces.create(project_id(folder), "other")
        assert (await pager.told())[0] == f"other failed {other.path}"


@requirement("ws.daily.attention", "house.error.disk-full")
async def test_a_command_that_fails_is_logged_and_hurts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository("exit 3")
    logged: asyncio.Queue[str] = asyncio.Queue()

    def warning(text: str, *more: object) -> None:
        logged.put_nowait(text % more)

    monkeypatch.setattr(notify.logger, "warning", warning)
    settings = Settings(notify=NotifySettings("echo it is broken >&2; cp /etc/passwd /dev/full"))
    async with start_gateway(None, folder, settings=settings) as gateway:
        for name in ("one", "two"):
            made = await gateway.workspaces.create(project_id(folder), name)
            await gateway.workspaces.wait_until_prepared(made)
            told = await within_limit(logged.get())
            assert told.startswith("the notify command ended with 1: the disk is full: /dev/full: it is broken")
        assert [one.state for one in await gateway.workspaces.list()] == ["ready", "failed", "failed"]


@requirement("ws.delete.restore")
async def test_the_trash_is_looked_through_at_the_start_and_then_each_day(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    clock = SetClock()
    async with start_workspaces(state) as served:
        project = await served.project(app)
        emptying = TrashEmptying(served.workspaces, clock)
        assert await emptying.empty_if_due()
        for name in ("old", "new"):
            made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, name))
            await served.workspaces.delete(made, wait=True)
        clock.now += DAY - 1
        assert not await emptying.empty_if_due()
        clock.now += 1
        assert await emptying.empty_if_due() and not await emptying.empty_if_due()
        assert len(served.workspaces.deletions.trash.all()) == 2


@requirement("ws.trash.clock")
async def test_setting_the_clock_neither_brings_a_look_forward_nor_puts_it_off(state: Path) -> None:
    clock = MachineClock()
    async with start_workspaces(state) as served:
        emptying = TrashEmptying(served.workspaces, clock)
        assert await emptying.empty_if_due()
        clock.set_wall(300 * DAY)
        assert not await emptying.empty_if_due()
        clock.set_wall(-900 * DAY)
        clock.sleep(DAY)
        assert await emptying.empty_if_due()


@requirement("ws.trash.clock")
def test_a_daemon_that_starts_twenty_days_ahead_purges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Before anything of the daemon is imported, so that all of it has the wrong time.
    ahead = "import time, os\nreal = time.time\ntime.time = lambda: real() + float(os.environ.get('AHEAD', 0))\n"
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(ahead)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "clock"))
    up()
    checkout = ws.app(tmp_path / "app")
    ws.made("fix", cwd=checkout)
    ws.ws("rm", "fix", cwd=checkout)
    before = ws.told("trash", cwd=checkout)
    for days in (20, 3650, -3650, 20):
        assert rookery("down").returncode == 0
        daemon = up("--log-level", "debug", env={"AHEAD": str(days * DAY)})
        # It has the wrong time, and has looked through the trash.
        started = datetime.fromisoformat(daemon.runtime["started"])
        assert abs(started - datetime.now(UTC) - timedelta(days=days)) < timedelta(hours=1)
        assert logged(daemon, "checked the trash") == "checked the trash: 0 purged"
        assert ws.told("trash", cwd=checkout) == before
    assert rookery("down").returncode == 0
    # As it would have been purged if its days were over.
    daemon = up("--log-level", "debug", env={"ROOKERY_TRASH_DAYS": "0.000001"})
    assert logged(daemon, "checked the trash") == "checked the trash: 1 purged"
    assert ws.told("trash", cwd=checkout) == []
    assert rookery("down").returncode == 0


@requirement("ws.delete.restore")
@pytest.mark.parametrize("trash", [TrashSettings(days=1e-9), TrashSettings(limit=1024)])
async def test_the_settings_say_when_the_trash_is_emptied(trash: TrashSettings) -> None:
    folder = make_repository(Path.home() / "src" / "app", {"large": "x" * 100_000})
    async with start_gateway(None, folder, settings=Settings(trash=trash)) as gateway:
        made = await gateway.workspaces.create(project_id(folder), "task")
        await gateway.workspaces.delete(await gateway.workspaces.wait_until_prepared(made), wait=True)
        assert len(gateway.workspaces.deletions.trash.all()) == 1
        assert await TrashEmptying(gateway.workspaces).empty_if_due()
        assert gateway.workspaces.deletions.trash.all() == []
    async with start_gateway(None, folder) as gateway:
        made = await gateway.workspaces.create(project_id(folder), "task")
        await gateway.workspaces.delete(await gateway.workspaces.wait_until_prepared(made), wait=True)
        await TrashEmptying(gateway.workspaces).empty_if_due()
        assert len(gateway.workspaces.deletions.trash.all()) == 1
