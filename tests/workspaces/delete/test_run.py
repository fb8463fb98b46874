"""Deleting a workspace: refusals, reports, and that no foreign process or file is affected."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces.delete.folders import move_folder
from rookery.workspaces.model import Workspace
from tests.support.daemon.process import alive
from tests.support.requirements import requirement
from tests.support.small_disk import SmallDisk
from tests.support.workspaces.deletion import contents, fill, index_of, make_app, make_workspace, start_deletions
from tests.support.workspaces.service import branches, commit, git, make_repository, snapshot, start_workspaces

pytestmark = pytest.mark.anyio

# Holds a file open until its stdin ends.
WRITES_AT_THE_END = (
    "import sys; f = open(sys.argv[1], 'a'); print(flush=True); sys.stdin.read(); f.write('late'); f.close()"
)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than the state folder."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system here")
    with tempfile.TemporaryDirectory(dir=memory, prefix="rk-") as folder:
        yield Path(folder)


@requirement("ws.delete.input", "ws.delete.restore")
@pytest.mark.parametrize("keep", [False, True])
async def test_a_clean_workspace_goes_to_the_trash_with_or_without_its_branch(
    state: Path, tmp_path: Path, keep: bool
) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "feat/x", tmp_path / "x")
    before = contents(place)
    async with start_deletions(state, app) as ours:
        await ours.removals.delete(await ours.find("feat/x"), keep_branch=keep, wait=True)
        (one,) = ours.removals.trash.all()
        assert await ours.names() == []
        assert ("feat/x" in branches(app)) is keep
        assert one.id.endswith("-feat%x")
        assert git(app, "rev-parse", one.ref) == git(app, "rev-parse", "main")
        assert contents(ours.removals.trash.folder_of(one)) == before
    assert not place.exists()


@requirement("ws.delete.preflight")
@pytest.mark.parametrize("work", ["changed", "staged", "untracked", "committed", "locked", "conflict"])
async def test_e03_a_workspace_with_work_in_it_is_refused_with_the_list(state: Path, tmp_path: Path, work: str) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    if work == "changed":
        (place / "README").write_text("changed\n")
    elif work in ("staged", "untracked"):
        (place / "new-file").write_text("new\n")
        git(place, "add", *(["new-file"] if work == "staged" else ["-n", "new-file"]))
    elif work == "locked":
        git(app, "worktree", "lock", "--reason", "mine", str(place))
    else:
        commit(place, "README", "theirs\n")
    if work == "conflict":
        commit(app, "README", "ours\n")
        git(place, "merge", "-q", "main", check=False)
    names = {"changed": "README", "conflict": "UU README", "committed": "README", "locked": "mine"}
    before, known = contents(place), snapshot(app)
    async with start_deletions(state, app) as ours:
        with pytest.raises(RookeryError, match=names.get(work, "new-file")) as refused:
            await ours.removals.delete(await ours.find("task"), wait=True)
        assert refused.value.code == "workspace-not-clean"
        assert (contents(place), snapshot(app), ours.told()) == (before, known, [])
        assert not list(state.glob("projects/*/deleting/*"))
        await ours.removals.delete(await ours.find("task"), force=True, wait=True)
        assert not place.exists()
        await ours.removals.restore("task")
        assert contents(place) == before
        assert snapshot(app) == known


@requirement("ws.delete.preflight")
@pytest.mark.parametrize("force", [False, True])
async def test_the_main_checkout_and_what_holds_another_worktree_are_never_deleted(
    state: Path, tmp_path: Path, force: bool
) -> None:
    app = make_app(tmp_path)
    outer = make_workspace(app, "outer", tmp_path / "outer")
    make_workspace(app, "inner", outer / "inner")
    before = contents(tmp_path)
    async with start_deletions(state, app) as ours:
        for name in ("@main", "outer"):
            with pytest.raises(RookeryError, match="main checkout" if name == "@main" else "inner"):
                await ours.removals.delete(await ours.find(name), force=force, wait=True)
    assert contents(tmp_path) == before


async def test_commits_of_a_branch_that_stays_are_not_in_the_way(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    head = commit(make_workspace(app, "task", tmp_path / "task"), "more")
    async with start_deletions(state, app) as ours:
        await ours.removals.delete(await ours.find("task"), keep_branch=True, wait=True)
    assert git(app, "rev-parse", "task") == head


@requirement("ws.delete.started")
async def test_it_is_told_step_by_step_with_all_there_is_to_know_and_begun_only_once(
    state: Path, tmp_path: Path
) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    stopped: list[str] = []
    go_on = asyncio.Event()

    async def stop(workspace: Workspace) -> bool:
        stopped.append(workspace.name)
        await go_on.wait()
        return True

    async with start_deletions(state, app, stop=stop) as ours:
        found = await ours.find("task")
        assert await ours.removals.delete(found) is None
        again = asyncio.gather(*(ours.removals.delete(found, wait=True) for _ in range(3)))
        go_on.set()
        await again
        assert stopped == ["task"]
        told = ours.told()
        assert [type_ for type_, _ in told] == ["workspace.deleting"] * (len(told) - 1) + ["workspace.deleted"]
        assert told[-1][1]["progress"]["done"] == ["stop", "processes", "keep", "move", "unregister", "branch"]
        assert all(data["name"] == "task" and data["path"] == str(tmp_path / "task") for _, data in told)


async def test_work_that_comes_while_it_is_stopped_is_not_taken_unasked(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")

    async def stop(_: Workspace) -> bool:
        (place / "last words").write_text("written while stopping\n")
        return True

    async with start_deletions(state, app, stop=stop) as ours:
        with pytest.raises(RookeryError, match="last words"):
            await ours.removals.delete(await ours.find("task"), wait=True)
        assert await ours.names() == ["task"]
        assert not ours.removals.trash.all()
        assert ours.told()[-1][0] == "workspace.failed"
        await ours.removals.delete(await ours.find("task"), force=True, wait=True)
        assert await ours.names() == []


async def test_commits_made_while_it_is_stopped_are_what_the_trash_keeps(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    made: list[str] = []

    async def stop(_: Workspace) -> bool:
        made.append(await asyncio.to_thread(commit, place, "late"))
        return True

    async with start_deletions(state, app, stop=stop) as ours:
        await ours.removals.delete(await ours.find("task"), force=True, wait=True)
        (one,) = ours.removals.trash.all()
        assert git(app, "rev-parse", one.ref) == made[0]
        assert branches(app) == {"main"}


@requirement("ws.delete.sequence")
@requirement("ws.delete.foreign")
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("how", ["cwd", "file"])
async def test_e04_foreign_processes_are_named_and_never_signalled(
    state: Path, tmp_path: Path, how: str, force: bool
) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    written = place / "README" if how == "file" else tmp_path / "outside"
    with subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        [sys.executable, "-c", WRITES_AT_THE_END, str(written)],
        cwd=place if how == "cwd" else tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as foreign:
        assert foreign.stdout is not None
        foreign.stdout.readline()
        async with start_deletions(state, app) as ours:
            ended = await ours.removals.delete(await ours.find("task"), force=force, wait=True)
            assert ended is not None
            (one,) = ours.removals.trash.all()
            (process,) = ended.occupants
            assert process.pid == foreign.pid and process.command.startswith(f"{sys.executable} -c import")
            assert ours.told()[-1][1]["progress"]["processes"] == [msgspec.to_builtins(process)]
            assert not place.exists()
        foreign.communicate()
        assert foreign.returncode == 0
        # What it wrote afterwards is in the trash, and nowhere else.
        kept = (ours.removals.trash.folder_of(one) / "README").read_text()
        assert kept == ("one\nlate" if how == "file" else "one\n")


@requirement("ws.delete.foreign")
@pytest.mark.parametrize("deaf", [False, True])
async def test_e04_only_processes_started_in_that_workspace_are_ended(state: Path, tmp_path: Path, deaf: bool) -> None:
    app = make_app(tmp_path)
    task = make_workspace(app, "task", tmp_path / "task")
    other = make_workspace(app, "other", tmp_path / "other")
    # Left its group and its leader, as a server does that an agent put in the background.
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if deaf else ""
    stays = f"import signal; {ignore}print(flush=True); signal.pause()"
    leaves = f"import subprocess as s, sys; left = s.Popen([sys.executable, '-c', {stays!r}], cwd=sys.argv[1],"
    leaves += " start_new_session=True, stdout=s.PIPE); left.stdout.readline(); print(left.pid)"
    async with start_deletions(state, app) as ours:
        env = dict(os.environ)
        pids: list[int] = []
        for at, cwd in ((task, task), (task, other), (other, task)):
            child = await ours.spawner.start(
                [sys.executable, "-c", leaves, str(cwd)], name="leaves", cwd=at, env=env, stdout="stream"
            )
            await child.wait()
            assert child.stdout is not None
            pids.append(int(await asyncio.wait_for(child.stdout.read(), 60)))
        own, elsewhere, guest = pids
        ended = await ours.removals.delete(await ours.find("task"), force=True, wait=True)
        assert ended is not None
        assert [one.pid for one in ended.occupants] == [guest]
        assert [alive(pid) for pid in (own, elsewhere, guest)] == [False, True, True]


async def test_the_service_tells_status_deletes_and_restores(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    async with start_workspaces(state) as served:
        workspaces = served.workspaces
        project = await served.project(app)
        made = await workspaces.wait_until_prepared(await workspaces.create(project, "task"))
        commit(made.path, "own")
        (made.path / "note").write_text("note\n")
        told = await workspaces.status(project)
        assert (told["task"].is_dirty, told["task"].unmerged_commits, told["@main"].is_dirty) == (True, 1, False)
        with pytest.raises(RookeryError, match="note"):
            await workspaces.delete(made, wait=True)
        await workspaces.delete(made, force=True, wait=True)
        assert [one.name for one in await workspaces.list(project)] == ["@main"]
        assert await workspaces.restore("task", project) == msgspec.structs.replace(made, open=False)
        assert await workspaces.status(project) == told


@requirement("ws.delete.others")
async def test_e17_others_are_untouched_by_many_deletions_at_once(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    for number in range(6):
        make_workspace(app, f"task{number}", tmp_path / f"task{number}")
    fill(tmp_path / "task0")
    before, staged = contents(tmp_path / "task0"), index_of(tmp_path / "task0")
    async with start_deletions(state, app) as ours:
        found = [await ours.find(f"task{number}") for number in range(1, 6)]
        await asyncio.gather(*(ours.removals.delete(one, wait=True) for one in found))
        assert await ours.names() == ["task0"]
        assert len(ours.removals.trash.all()) == 5
    assert (contents(tmp_path / "task0"), index_of(tmp_path / "task0")) == (before, staged)
    assert branches(app) == {"main", "task0"}


async def test_e16_a_workspace_without_its_folder_can_be_deleted_and_restored(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    (place / "staged").write_text("staged\n")
    git(place, "add", "staged")
    shutil.rmtree(place)
    async with start_deletions(state, app) as ours:
        await ours.removals.delete(await ours.find("task"), wait=True)
        assert await ours.names() == []
        git(app, "gc", "--quiet", "--prune=now")
        await ours.removals.restore("task")
    assert (place / "staged").read_text() == "staged\n"


async def test_a_branch_that_another_worktree_has_too_stays(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    git(app, "worktree", "add", "-q", "-f", str(tmp_path / "twin"), "task")
    async with start_deletions(state, app) as ours:
        found = next(one for one in [await ours.find(name) for name in await ours.names()])
        await ours.removals.delete(found, wait=True)
    assert branches(app) == {"main", "task"}


@pytest.mark.parametrize("what", ["detached", "rebase", "submodule"])
async def test_worktrees_in_unusual_states_come_back_as_they_were(state: Path, tmp_path: Path, what: str) -> None:
    app = make_app(tmp_path)
    if what == "submodule":
        library = make_repository(tmp_path / "library")
        git(app, "submodule", "add", "-q", str(library), "lib")
        git(app, "commit", "-q", "-m", "lib")
    place = make_workspace(app, "task", tmp_path / "task")
    if what == "submodule":
        git(place, "submodule", "update", "-q", "--init")
        commit(place / "lib", "inner")
    else:
        commit(place, "README", "theirs\n")
        commit(app, "README", "ours\n")
        git(place, *(["rebase", "-q", "main"] if what == "rebase" else ["checkout", "-q", "--detach"]), check=False)
    before, staged = contents(place), index_of(place)
    async with start_deletions(state, app) as ours:
        (name,) = await ours.names()
        await ours.removals.delete(await ours.find(name), force=True, wait=True)
        git(app, "gc", "--quiet", "--prune=now")
        await ours.removals.restore(name)
    assert (contents(place), index_of(place)) == (before, staged)


async def test_a_workspace_on_another_file_system_is_copied_and_comes_back(
    state: Path, tmp_path: Path, elsewhere: Path
) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", elsewhere / "task")
    fill(place)
    os.mkfifo(place / "pipe")
    before, staged = contents(place), index_of(place)
    async with start_deletions(state, app) as ours:
        await ours.removals.delete(await ours.find("task"), force=True, wait=True)
        (one,) = ours.removals.trash.all()
        assert contents(ours.removals.trash.folder_of(one)) == before
        assert not place.exists()
        await ours.removals.restore("task")
    assert (contents(place), index_of(place)) == (before, staged)
    assert not list((state / "trash").iterdir())


def test_a_copy_that_was_cut_off_is_finished_with_what_was_written_since(tmp_path: Path, elsewhere: Path) -> None:
    source, to = elsewhere / "source", tmp_path / "to"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_text("new")
    (source / "b").write_text("b")
    shutil.copytree(source, tmp_path / "to.partial")
    (tmp_path / "to.partial" / "deep" / "a").write_text("cut o")
    before = contents(source)
    move_folder(source, to, lambda: None, copied=True)
    assert contents(to) == before
    # Killed while the source was removed: part of it is left.
    source.mkdir()
    (source / "b").write_text("written since")
    move_folder(source, to, lambda: None, copied=True)
    assert (to / "b").read_text() == "written since"
    assert (to / "deep" / "a").read_text() == "new"
    assert not source.exists()


def test_what_came_to_the_place_of_a_folder_that_was_moved_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "source" / "new").write_text("somebody's")
    move_folder(tmp_path / "source", tmp_path / "to", lambda: None, copied=False)
    assert (tmp_path / "source" / "new").read_text() == "somebody's"


def test_e12_a_full_disk_of_the_trash_leaves_the_workspace_whole(small_disk: SmallDisk, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    (place / "large").write_bytes(os.urandom(3_000_000))
    before, known = contents(place), snapshot(app)
    said = small_disk.run(
        f"""
        import asyncio, sys
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from rookery.system.errors import RookeryError
        from tests.support.workspaces.deletion import start_deletions

        async def main():
            async with start_deletions(disk, Path({str(app)!r})) as ours:
                try:
                    await ours.removals.delete(await ours.find("task"), force=True, wait=True)
                except RookeryError as error:
                    print(error.code, ours.removals.trash.all(), [path.name for path in (disk / "trash").iterdir()])
                (Path({str(place)!r}) / "large").rename({str(tmp_path / "large")!r})
                await ours.removals.delete(await ours.find("task"), force=True, wait=True)
                (Path({str(tmp_path / "large")!r})).rename(disk.parent / "large")
                await ours.removals.restore("task")
                (disk.parent / "large").rename({str(place / "large")!r})

        asyncio.run(main())
        """
    )
    assert said == ["move-failed [] []"]
    assert (contents(place), snapshot(app)) == (before, known)
