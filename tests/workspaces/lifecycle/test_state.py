"""Which workspaces are open, and their tokens, across restarts of the daemon."""

import shutil
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from tests.support.requirements import requirement
from tests.support.workspaces.service import WorkspaceParts, git, make_repository, start_workspaces

pytestmark = pytest.mark.anyio


class Companion:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def on_opened(self, workspace: Workspace) -> None:
        self.seen.append(("opened", workspace.name))

    async def on_closed(self, workspace: Workspace) -> bool:
        self.seen.append(("closed", workspace.name))
        return True


async def opened(served: WorkspaceParts, project: str) -> dict[str, bool]:
    return {one.name: one.open for one in await served.workspaces.list(project)}


@requirement("ws.project.add")
async def test_what_is_there_already_is_closed_what_is_made_is_open_and_all_is_kept(
    state: Path, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "worktree", "add", str(tmp_path / "by-hand"), "-b", "by-hand")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        assert await opened(served, project) == {"@main": False, "by-hand": False}
        one = await served.workspaces.create(project, "one")
        two = await served.workspaces.create(project, "two")
        assert one.open and two.open
        await served.workspaces.wait_until_prepared(one)
        assert (await served.workspaces.close(await served.workspaces.wait_until_prepared(two))).open is False
        main = await served.workspaces.get(project, "@main")
        assert (await served.workspaces.open(main)).open
        wanted = {"@main": True, "by-hand": False, "one": True, "two": False}
        assert await opened(served, project) == wanted
        told = [(event, data["name"]) for event, data in served.told() if event.endswith(("opened", "closed"))]
        order = [("workspace.opened", "one"), ("workspace.opened", "two")]
        assert told == [*order, ("workspace.closed", "two"), ("workspace.opened", "@main")]
    async with start_workspaces(state) as served:
        assert await opened(served, project) == wanted
        companion = Companion()
        served.workspaces.lifecycle.hooks.append(companion)
        await served.workspaces.start_open_workspaces()
        assert sorted(companion.seen) == [("opened", "@main"), ("opened", "one")]
        assert not [event for event, _ in served.told() if event == "workspace.opened"]


async def test_e16_a_deleted_or_replaced_workspace_is_closed_and_its_token_invalid(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    names = ("gone", "again", "moved", "stays")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = {
            name: await served.workspaces.wait_until_prepared(await served.workspaces.create(project, name))
            for name in names
        }
        tokens = {name: await served.workspaces.token(one) for name, one in made.items()}
    assert len(set(tokens.values())) == 4
    for name in ("gone", "again"):
        git(app, "worktree", "remove", "--force", str(made[name].path))
    git(app, "worktree", "add", str(made["again"].path), "again")
    shutil.move(made["moved"].path, made["moved"].path.with_name("elsewhere"))
    valid: dict[str, Path] = {}
    async with start_workspaces(state, started=False) as served:
        served.workspaces.tokens.on_valid = lambda token, own: valid.update({token: own})
        served.workspaces.tokens.on_revoked = lambda token, own: valid.pop(token) and None
        await served.workspaces.start()
        assert set(valid) == {tokens["moved"], tokens["stays"]}
        found = await opened(served, project)
        assert found == {"@main": False, "again": False, "moved": True, "stays": True}
        again = await served.workspaces.get(project, "again")
        assert await served.workspaces.token(again) not in tokens.values()
        moved = await served.workspaces.get(project, "moved")
        assert moved.path.name == "elsewhere" and await served.workspaces.token(moved) == tokens["moved"]


async def test_what_is_deleted_is_closed_first_and_what_is_missing_cannot_be_opened(
    state: Path, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        companion = Companion()
        served.workspaces.lifecycle.hooks.append(companion)
        project = await served.project(app)
        task = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "task"))
        await served.workspaces.delete(task, wait=True)
        assert companion.seen == [("opened", "task"), ("closed", "task")]
        restored = await served.workspaces.restore("task", project)
        assert restored.open is False
        shutil.rmtree(restored.path)
        with pytest.raises(RookeryError, match="is missing") as refused:
            await served.workspaces.open(restored)
        assert refused.value.code == "workspace-not-found"
        with pytest.raises(RookeryError, match="is missing"):
            await served.workspaces.token(restored)
