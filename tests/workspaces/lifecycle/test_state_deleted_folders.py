"""Open workspaces whose folder is deleted from outside."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.workspaces.model import Workspace
from tests.support.http.listener import within_limit
from tests.support.sandbox import open_descriptors
from tests.support.workspaces.service import WorkspaceParts, git, make_repository, start_workspaces

pytestmark = pytest.mark.anyio


class Companion:
    """Notes who is open, and tells when one is closed."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.closing: asyncio.Queue[str] = asyncio.Queue()

    async def on_opened(self, workspace: Workspace) -> None:
        self.open.add(workspace.name)

    async def on_closed(self, workspace: Workspace) -> bool:
        self.open.discard(workspace.name)
        self.closing.put_nowait(workspace.name)
        return True


async def made(served: WorkspaceParts, project: str, name: str, branch: str | None = None) -> Workspace:
    return await served.workspaces.wait_until_prepared(await served.workspaces.create(project, name, branch=branch))


async def told_closed(served: WorkspaceParts) -> str:
    """The name of the first of which it is told."""
    reader = served.events.subscribe(0)
    while True:
        for event in await within_limit(reader.next_batch()):
            if event.type == "workspace.closed":
                reader.end("read")
                return event.data["name"]


def by_git(app: Path, folder: Path) -> None:
    git(app, "worktree", "remove", "--force", str(folder))


def by_hand(app: Path, folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize("remove", [by_git, by_hand])
async def test_what_belongs_to_a_workspace_ends_when_its_folder_is_deleted(
    state: Path, tmp_path: Path, remove: Callable[[Path, Path], None]
) -> None:
    app, companion, void = make_repository(tmp_path / "app"), Companion(), asyncio.Queue[str]()
    async with start_workspaces(state) as served:
        served.workspaces.lifecycle.hooks.append(companion)
        project = await served.project(app)
        before = open_descriptors()
        one, two = await made(served, project, "one"), await made(served, project, "two")
        token = await served.workspaces.token(one)
        served.workspaces.tokens.on_revoked = lambda token, own: void.put_nowait(token)
        remove(app, one.path)
        assert await within_limit(companion.closing.get()) == "one"
        # Its token goes with it.
        assert await within_limit(void.get()) == token
        assert await told_closed(served) == "one"
        assert companion.open == {"two"}
        told = {each.name: each.open for each in await served.workspaces.list(project)}
        assert told == {"@main": False, "two": True} | ({"one": False} if remove is by_hand else {})
        await served.workspaces.close(two)
        # The watch itself stays.
        assert open_descriptors() == before + 1
        # One in its place is another one.
        if remove is by_hand:
            git(app, "worktree", "prune")
        again = await made(served, project, "one", branch="one")
        assert again.path == one.path and companion.open == {"one"}
        by_hand(app, again.path)
        assert [await within_limit(companion.closing.get()) for _ in range(2)] == ["two", "one"]


async def test_a_workspace_that_is_moved_or_whose_files_change_stays_open(state: Path, tmp_path: Path) -> None:
    app, companion = make_repository(tmp_path / "app"), Companion()
    async with start_workspaces(state) as served:
        served.workspaces.lifecycle.hooks.append(companion)
        project = await served.project(app)
        one, two = await made(served, project, "one"), await made(served, project, "two")
        git(app, "worktree", "move", str(one.path), str(tmp_path / "moved"))
        (two.path / "new").mkdir()
        two.path.chmod(0o700)
        # What is seen of another one afterwards says that these were seen before.
        main = await served.workspaces.open(await served.workspaces.get(project, "@main"))
        assert main.open
        three = await made(served, project, "three")
        by_hand(app, three.path)
        assert await told_closed(served) == "three"
        assert companion.open == {"@main", "one", "two"}
        told = {each.name: each.open for each in await served.workspaces.list(project)}
        assert told == {"@main": True, "one": True, "two": True, "three": False}


async def test_a_checkout_that_is_deleted_takes_what_ran_in_it_along(state: Path, tmp_path: Path) -> None:
    app, companion = make_repository(tmp_path / "app"), Companion()
    async with start_workspaces(state) as served:
        served.workspaces.lifecycle.hooks.append(companion)
        project = await served.project(app)
        await served.workspaces.open(await served.workspaces.get(project, "@main"))
        shutil.rmtree(app)
        assert await within_limit(companion.closing.get()) == "@main"
        assert companion.open == set()


async def test_what_was_open_before_the_daemon_is_seen_to_go_too(state: Path, tmp_path: Path) -> None:
    app, companion = make_repository(tmp_path / "app"), Companion()
    async with start_workspaces(state) as served:
        project = await served.project(app)
        one = await made(served, project, "one")
    before = open_descriptors()
    async with start_workspaces(state) as served:
        served.workspaces.lifecycle.hooks.append(companion)
        await served.workspaces.start_open_workspaces()
        by_git(app, one.path)
        assert await within_limit(companion.closing.get()) == "one"
    assert open_descriptors() == before
