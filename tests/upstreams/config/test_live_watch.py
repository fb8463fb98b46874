"""A change of any file takes effect automatically, however the file was changed."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rookery.system.tasks import TaskSet
from rookery.upstreams.config.live import LiveConfig, watch_config
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return "asyncio", {"use_uvloop": request.param}


class Watched:
    """A configuration under watch, and the waiting until it says what is expected."""

    def __init__(self) -> None:
        self.configuration = LiveConfig({})
        self.named: list[Path | None] = []
        self.tasks = TaskSet("test")
        self._changed = asyncio.Event()

    def start(self) -> None:
        self.tasks.start(watch_config(self.configuration, self._told, quiet=0.02), "watch")

    def _told(self, directory: Path | None) -> None:
        self.named.append(directory)
        self._changed.set()

    async def until(self, directory: Path | None, **commands: str) -> Path | None:
        """Wait until these are the servers of a directory; the directory that was named last."""
        async with asyncio.timeout(10):
            while {one.name: one.command[-1] for one in self.configuration.get(directory).servers} != commands:
                self._changed.clear()
                await self._changed.wait()
        return self.named.pop()


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    one = Watched()
    yield one
    await one.tasks.close()


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app"


def servers(**commands: str) -> str:
    return json.dumps({"servers": {name: {"command": command} for name, command in commands.items()}})


@requirement("hub.config.invalid")
async def test_a_file_that_comes_changes_breaks_is_replaced_and_goes(watched: Watched, app: Path) -> None:
    watched.configuration.get(app)
    watched.start()
    file = app / ".rookery" / "mcp.json"
    file.parent.mkdir()
    file.write_text(servers(a="1"))
    assert await watched.until(app, a="1") == app
    file.write_text(servers(a="2", b="1"))
    assert await watched.until(app, a="2", b="1") == app
    file.write_text("{")
    async with asyncio.timeout(10):
        while not watched.configuration.get(app).problems:
            watched._changed.clear()
            await watched._changed.wait()
    watched.named.clear()
    assert len(watched.configuration.get(app).servers) == 2
    (app / "new").write_text(servers(a="3"))
    (app / "new").rename(file)
    assert await watched.until(app, a="3") == app
    file.unlink()
    file.parent.rmdir()
    assert await watched.until(app) == app
    file.parent.mkdir()
    file.write_text(servers(a="4"))
    assert await watched.until(app, a="4") == app


async def test_the_users_files_are_watched_before_any_of_their_folders_is_there(watched: Watched, app: Path) -> None:
    watched.configuration.get(None)
    watched.start()
    file = Path.home() / ".config" / "rookery" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(servers(a="1"))
    assert await watched.until(None, a="1") is None


async def test_a_link_of_the_users_is_watched_where_it_leads_to(watched: Watched, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text(servers(a="1"))
    (Path.home() / ".config" / "rookery").mkdir(parents=True)
    (Path.home() / ".config" / "rookery" / "mcp.json").symlink_to(real)
    watched.configuration.get(None)
    watched.start()
    await asyncio.sleep(0)
    real.write_text(servers(a="2"))
    assert await watched.until(None, a="2") is None


async def test_a_file_that_another_one_names_is_watched_too(watched: Watched, app: Path) -> None:
    (app / "key").write_text("1")
    (app / "opencode.json").write_text('{"mcp": {"a": {"command": ["x", "{file:key}"]}}}')
    watched.configuration.get(app)
    watched.start()
    (app / "key").write_text("2")
    assert await watched.until(app, a="2") == app


async def test_a_directory_that_comes_into_use_later_is_watched(watched: Watched, app: Path) -> None:
    watched.start()
    await asyncio.sleep(0)
    watched.configuration.get(app)
    (app / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "1"}}}')
    assert await watched.until(app, a="1") == app
    (app / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "2"}}}')
    assert await watched.until(app, a="2") == app


async def test_a_change_between_reading_and_watching_is_not_missed(watched: Watched, app: Path) -> None:
    watched.configuration.get(app)
    (app / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "1"}}}')
    watched.start()
    assert await watched.until(app, a="1") == app


async def test_many_changes_at_once_are_told_once(watched: Watched, app: Path) -> None:
    watched.configuration.get(app)
    watched.start()
    await asyncio.sleep(0)
    for number in range(100):
        (app / ".mcp.json").write_text(f'{{"mcpServers": {{"a": {{"command": "{number}"}}}}}}')
    assert await watched.until(app, a="99") == app
    assert watched.named == []


async def test_nothing_stays_behind_when_the_watching_ends(app: Path) -> None:
    before = len(list(Path("/dev/fd").iterdir())), threading.active_count()
    watched = Watched()
    watched.configuration.get(app)
    watched.start()
    (app / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "1"}}}')
    assert await watched.until(app, a="1") == app
    await watched.tasks.close()
    assert (len(list(Path("/dev/fd").iterdir())), threading.active_count()) == before
