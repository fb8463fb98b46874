"""Creating workspaces."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.small_disk import SmallDisk
from tests.support.workspaces.service import (
    Pause,
    WorkspaceParts,
    branches,
    commit,
    git,
    make_clone,
    make_repository,
    snapshot,
    start_workspaces,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(state: Path) -> AsyncIterator[WorkspaceParts]:
    async with start_workspaces(state) as running:
        yield running


async def refused(
    served: WorkspaceParts, project: str, name: str, base: str | None = None, branch: str | None = None
) -> RookeryError:
    with pytest.raises(RookeryError) as caught:
        await served.workspaces.create(project, name, base=base, branch=branch)
    taken = caught.value.message.startswith("the workspace ")
    assert caught.value.code == ("workspace-exists" if taken else "invalid-input")
    return caught.value


@requirement("ws.create.base")
async def test_a_workspace_starts_from_the_default_branch_of_the_remote(
    served: WorkspaceParts, state: Path, tmp_path: Path
) -> None:
    app = make_clone(tmp_path / "app")
    theirs = git(app, "rev-parse", "HEAD")
    commit(app, "local")
    project = await served.project(app)
    made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "feature/x"))
    assert (made.state, made.branch) == ("ready", "feature/x")
    assert made.path == state.resolve() / "projects" / project / "workspaces" / "feature%x"
    assert git(made.path, "rev-parse", "HEAD") == theirs
    assert (await served.workspaces.metadata(made))["base"] == "origin/main"
    # No upstream was set: a push would otherwise go to the branch it began from.
    assert git(app, "config", "--get-regexp", r"branch\.feature.*", check=False) == ""


@requirement("ws.create.base")
async def test_without_a_remote_it_starts_from_head_and_with_a_ref_from_that(
    served: WorkspaceParts, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    first = git(app, "rev-parse", "HEAD")
    git(app, "tag", "v1")
    second = commit(app, "two")
    project = await served.project(app)
    one = await served.workspaces.create(project, "one")
    two = await served.workspaces.create(project, "two", base="v1")
    assert git(one.path, "rev-parse", "HEAD") == second
    assert git(two.path, "rev-parse", "HEAD") == first
    assert (await served.workspaces.metadata(one))["base"] == "main"
    assert (await served.workspaces.metadata(two))["base"] == "v1"


@requirement("ws.create.base")
async def test_a_branch_of_the_remote_is_found_by_its_short_name(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_clone(tmp_path / "app")
    git(tmp_path / "app-origin", "checkout", "-q", "-b", "topic")
    theirs = commit(tmp_path / "app-origin", "topic")
    git(app, "fetch", "-q")
    made = await served.workspaces.create(await served.project(app), "mine", base="topic")
    assert git(made.path, "rev-parse", "HEAD") == theirs
    assert (await served.workspaces.metadata(made))["base"] == "origin/topic"


@requirement("ws.create.base")
async def test_an_existing_branch_is_used_again_and_its_commits_stay(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "checkout", "-q", "-b", "work")
    mine = commit(app, "mine")
    git(app, "checkout", "-q", "main")
    git(app, "branch", "other", "work")
    project = await served.project(app)
    with pytest.raises(RookeryError) as refused_without:
        await served.workspaces.create(project, "work")
    assert refused_without.value.code == "branch-exists"
    same = await served.workspaces.create(project, "work", branch="work")
    named = await served.workspaces.create(project, "elsewhere", branch="other")
    assert git(same.path, "rev-parse", "HEAD") == git(named.path, "rev-parse", "HEAD") == mine
    assert (named.name, named.branch) == ("elsewhere", "other")
    assert (await served.workspaces.get(project, "elsewhere")).branch == "other"


@requirement("ws.create.base")
async def test_a_template_moves_workspaces_and_the_status_is_clean(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state, place="../trees/{project}-{name}") as served:
        made = await served.workspaces.create(await served.project(app), "a/b")
        assert made.path == tmp_path.resolve() / "trees" / "app-a%b"
        assert git(made.path, "status", "--porcelain") == ""
        assert (await served.workspaces.at(made.path)).name == "a/b"


@requirement("ws.create.name")
async def test_e09_what_cannot_be_made_is_refused_before_anything_is_touched(
    served: WorkspaceParts, state: Path, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "branch", "taken/here")
    project = await served.project(app)
    first = await served.workspaces.create(project, "first")
    await served.workspaces.wait_until_prepared(first)
    before, files = snapshot(app), sorted(state.rglob("*"))
    assert "already" in (await refused(served, project, "first")).message
    assert "already" in (await refused(served, project, "FIRST")).message
    # What can be chosen otherwise is what was named.
    error = await refused(served, project, "main")
    assert "checked out" in error.message and error.remedy == "choose another name"
    error = await refused(served, project, "other", branch="first")
    assert "checked out" in error.message and error.remedy == "choose another branch"
    assert "cannot be created because" in (await refused(served, project, "taken")).message
    assert "cannot be created because" in (await refused(served, project, "taken/here/too")).message
    assert "no branch" in (await refused(served, project, "x", branch="absent")).message
    for branch in ("-f", "a..b", ""):
        await refused(served, project, "x", branch=branch)
    for base in ("absent", "-x", "--all", "", "HEAD:README", "a\0b"):
        assert "not a commit" in (await refused(served, project, "x", base=base)).message
    await refused(served, project, "../x")
    with pytest.raises(RookeryError) as caught:
        await served.workspaces.create("absent", "x")
    assert caught.value.code == "project-not-found"
    assert (snapshot(app), sorted(state.rglob("*"))) == (before, files)


@requirement("ws.create.name")
@pytest.mark.parametrize("case", ["full", "empty", "file", "link", "dangling", "closed"])
async def test_e10_a_place_that_is_in_the_way_is_refused(state: Path, tmp_path: Path, case: str) -> None:
    app = make_repository(tmp_path / "app")
    place = tmp_path / "trees" / "x"
    place.parent.mkdir()
    if case in ("full", "empty"):
        place.mkdir()
    if case == "full":
        (place / "mine").write_text("mine")
    if case == "file":
        place.write_text("mine")
    if case in ("link", "dangling"):
        place.symlink_to(tmp_path if case == "link" else tmp_path / "nowhere")
    if case == "closed":
        # Root may write to closed folders, but not into a file.
        place.parent.rmdir()
        place.parent.write_text("a file")
    async with start_workspaces(state, place=f"{tmp_path}/trees/{{name}}") as served:
        before = snapshot(app)
        await refused(served, await served.project(app), "x")
        assert snapshot(app) == before
    assert case != "full" or (place / "mine").read_text() == "mine"


@requirement("ws.project.add")
@pytest.mark.parametrize("inside", ["app/deep/{name}", "other/{name}", "one/{name}"])
async def test_e18_no_workspace_is_made_inside_another(state: Path, tmp_path: Path, inside: str) -> None:
    app, other = make_repository(tmp_path / "app"), make_repository(tmp_path / "other")
    git(app, "worktree", "add", "-q", str(tmp_path / "one"))
    async with start_workspaces(state, place=f"{tmp_path}/{inside}") as served:
        await served.project(other)
        error = await refused(served, await served.project(app), "x")
        assert "inside" in error.message
    assert not list(tmp_path.glob("*/deep"))


async def test_e10_a_missing_worktree_keeps_its_place(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "worktree", "add", "-q", "-b", "old", str(tmp_path / "x"))
    (tmp_path / "x").rename(tmp_path / "gone")
    (tmp_path / "gone" / ".git").unlink()
    async with start_workspaces(state, place=f"{tmp_path}/{{name}}") as served:
        assert "missing" in (await refused(served, await served.project(app), "x")).message
    assert "prunable" in git(app, "worktree", "list", "--porcelain")


@requirement("ws.create.rollback")
async def test_e08_twenty_at_once_from_a_remote_tracking_branch(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_clone(tmp_path / "app", {f"file{number}": "x" for number in range(30)})
    project = await served.project(app)
    names = [f"task-{number}" for number in range(20)]
    made = await asyncio.gather(*(served.workspaces.create(project, name, base="origin/main") for name in names))
    ready = await asyncio.gather(*(served.workspaces.wait_until_prepared(one) for one in made))
    assert [one.name for one in ready] == names
    assert {one.state for one in ready} == {"ready"}
    assert branches(app) == {"main", *names}
    assert {git(one.path, "status", "--porcelain") for one in ready} == {""}
    assert len({(await served.workspaces.environment(one))["ROOKERY_PORTS"] for one in ready}) == 20
    assert len(await served.workspaces.list(project)) == 21


@requirement("ws.create.rollback")
async def test_e08_twenty_at_once_under_one_name_give_one(served: WorkspaceParts, tmp_path: Path) -> None:
    project = await served.project(make_repository(tmp_path / "app"))
    tries = [served.workspaces.create(project, "same") for _ in range(20)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert len([one for one in results if isinstance(one, RookeryError)]) == 19
    assert [one.name for one in await served.workspaces.list(project)] == ["@main", "same"]


@requirement("ws.create.rollback")
async def test_a_branch_is_taken_back_if_its_worktree_cannot_be_made(served: WorkspaceParts, tmp_path: Path) -> None:
    """A filter of the user's that fails, and must not: git gives up in the middle of the files."""
    app = make_repository(tmp_path / "app", {"a": "1", "bad.x": "2", "z": "3"})
    (app / ".gitattributes").write_text("*.x filter=broken\n")
    git(app, "add", ".gitattributes")
    git(app, "commit", "-q", "-m", "attributes")
    git(app, "config", "--global", "filter.broken.smudge", "false")
    git(app, "config", "--global", "filter.broken.required", "true")
    git(app, "branch", "kept")
    project, before = await served.project(app), snapshot(app)
    for name, branch in (("new", None), ("kept", "kept")):
        with pytest.raises(RookeryError) as caught:
            await served.workspaces.create(project, name, branch=branch)
        assert caught.value.code == "git-failed"
        assert "bad.x" in caught.value.message
    assert snapshot(app) == before
    assert not list((tmp_path / "state").rglob("bad.x"))
    git(app, "config", "--global", "filter.broken.smudge", "cat")
    assert (await served.workspaces.create(project, "new")).name == "new"


@requirement("ws.create.rollback")
async def test_a_caller_that_goes_away_does_not_leave_it_half_made(served: WorkspaceParts, tmp_path: Path) -> None:
    pause = Pause(tmp_path / "pause")
    project = await served.project(pause.repository(tmp_path / "app"))
    asking = asyncio.get_running_loop().create_task(served.workspaces.create(project, "x"))
    await asyncio.to_thread(pause.wait)
    (making,) = [one for one in await served.workspaces.list(project) if not one.main]
    assert (making.name, making.state) == ("x", "preparing")
    waiting = asyncio.get_running_loop().create_task(served.workspaces.wait_until_prepared(making))
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    reader = served.events.subscribe()
    pause.go_on()
    async with asyncio.timeout(30):
        while "workspace.ready" not in [event.type for event in await reader.next_batch()]:
            pass
    made = await waiting
    assert (made.state, git(made.path, "status", "--porcelain")) == ("ready", "")


async def test_e17_a_repair_meanwhile_waits_and_begins_nothing_twice(served: WorkspaceParts, tmp_path: Path) -> None:
    pause = Pause(tmp_path / "pause")
    project = (await served.projects.add(pause.repository(tmp_path / "app"))).project
    loop = asyncio.get_running_loop()
    making = loop.create_task(served.workspaces.create(project.id, "x"))
    await asyncio.to_thread(pause.wait)
    repairing = loop.create_task(served.workspaces.repair(project))
    pause.go_on()
    made, _ = await asyncio.gather(making, repairing)
    assert (await served.workspaces.wait_until_prepared(made)).state == "ready"
    assert [event for event, _ in served.told()].count("workspace.ready") == 1
    assert git(made.path, "status", "--porcelain") == ""


@requirement("ws.create.rollback")
def test_e12_a_disk_that_is_full_leaves_nothing_and_the_next_try_works(
    state: Path, tmp_path: Path, small_disk: SmallDisk
) -> None:
    make_repository(tmp_path / "app", {"small": "x", "z-large": "x" * 3_000_000})
    said = small_disk.run(f"""
        import asyncio, subprocess
        from tests.support.workspaces.service import git, snapshot, start_workspaces
        from rookery.system.errors import RookeryError

        async def main():
            app = Path({str(tmp_path / "app")!r})
            async with start_workspaces(Path({str(state)!r}), place=f"{{disk}}/{{{{name}}}}") as served:
                project, before = await served.project(app), snapshot(app)
                try:
                    await served.workspaces.create(project, "x")
                except RookeryError as error:
                    print(error.code, snapshot(app) == before, [one.name for one in disk.iterdir()])
                subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
                made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
                print(made.state, repr(git(made.path, "status", "--porcelain")))

        asyncio.run(main())
    """)
    assert said == ["git-failed True []", "ready ''"]
