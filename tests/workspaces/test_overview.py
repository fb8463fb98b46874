"""The overview of workspaces: their status is requested once, for one or for all."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rookery.system.git import Git
from rookery.system.process.spawn import CompletedCommand
from rookery.workspaces.operations import WorkspaceOperations
from tests.support.requirements import requirement
from tests.support.workspaces.no_agents import NoAgents
from tests.support.workspaces.service import WorkspaceParts, commit, make_repository, start_workspaces

pytestmark = pytest.mark.anyio


def tools_of(served: WorkspaceParts) -> WorkspaceOperations:
    return WorkspaceOperations(served.workspaces, served.projects, served.git, served.events, NoAgents())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What git is asked, from now on."""
    words: list[str] = []
    run = Git.run

    async def noted(self: Git, folder: Path, *args: str, **more: Any) -> CompletedCommand:
        words.append(args[0])
        return await run(self, folder, *args, **more)

    monkeypatch.setattr(Git, "run", noted)
    return words


async def made(served: WorkspaceParts, app: Path, count: int) -> None:
    project = await served.project(app)
    each = await asyncio.gather(*(served.workspaces.create(project, f"w{number}") for number in range(count)))
    await asyncio.gather(*map(served.workspaces.wait_until_prepared, each))


async def test_a_list_asks_git_once_for_each_project(state: Path, asked: list[str]) -> None:
    app, other = make_repository(Path.home() / "app"), make_repository(Path.home() / "other")
    async with start_workspaces(state) as served:
        await made(served, app, 4)
        await served.project(other)
        asked.clear()
        assert len(await tools_of(served).overview.all()) == 6
        assert asked == ["worktree", "worktree"]


@requirement("ws.status.more")
async def test_asking_for_one_neither_looks_at_the_others_nor_forgets_them(state: Path, asked: list[str]) -> None:
    app = make_repository(Path.home() / "app")
    async with start_workspaces(state) as served:
        await made(served, app, 4)
        for one in await served.workspaces.list("app"):
            if not one.main:
                commit(one.path, one.name)
        tools = tools_of(served)
        asked.clear()
        first = await tools.workspaces.get("app", "w0")
        await tools.overview.status(first)
        assert asked.count("status") == 1
        every = await tools.overview.all("app", status=True)
        assert [one["status"]["ahead"] for one in every] == [0, 1, 1, 1, 1]
        await served.workspaces.statuses.wait_until_watched()
        await tools.overview.all("app", status=True)
        asked.clear()
        # Neither of them makes the other one forget what it knows.
        await tools.overview.status(first)
        again = await tools.overview.all("app", status=True)
        assert again == every
        assert set(asked) <= {"worktree", "for-each-ref", "symbolic-ref"}


async def test_a_workspace_is_as_its_own_answer_says(state: Path) -> None:
    app = make_repository(Path.home() / "app")
    async with start_workspaces(state) as served:
        await made(served, app, 1)
        tools = tools_of(served)
        one = await tools.workspaces.get("app", "w0")
        (_, listed) = await tools.overview.all("app", status=True)
        assert await tools.overview.details(one) == {**listed, "metadata": {"base": "main"}}
        assert await tools.overview.summary(one) == {**listed, "status": None}
