"""The status of workspaces: correct in every field, cached while nothing changes, and updated on changes."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.system.fs.watch import TreeWatch, WatchLimitReached
from rookery.system.git import Git
from rookery.system.ids import new_id, project_id
from rookery.system.process.spawn import CompletedCommand, Spawner
from rookery.workspaces.lookup import list_workspaces
from rookery.workspaces.projects import Project
from rookery.workspaces.status.cache import FreshnessTracker, GitStatus, StatusCache, WatchedFolders
from rookery.workspaces.status.changes import parse_status
from rookery.workspaces.status.history import count_distances, count_divergence
from tests.support.requirements import requirement
from tests.support.workspaces.deletion import fill, make_app, make_workspace, start_deletions
from tests.support.workspaces.service import commit, git, make_repository

pytestmark = pytest.mark.anyio


class CountingGit(Git):
    """Git that counts what is asked of it."""

    def __init__(self, spawner: Spawner) -> None:
        super().__init__(spawner)
        self.asked: list[str] = []

    async def run(self, folder: Path, *args: str, **more: Any) -> CompletedCommand:
        self.asked.append(args[0])
        return await super().run(folder, *args, **more)


class Asking:
    def __init__(self, app: Path, state: Path, git: CountingGit) -> None:
        self.git, self.statuses = git, StatusCache(git)
        self._project, self._state = Project(project_id(app), app.name, str(app)), state

    async def all(self, bases: Mapping[str, str] | None = None) -> dict[str, GitStatus]:
        found = [one.workspace for one in await list_workspaces(self.git, self._state, self._project)]
        wanted = {one.path: (bases or {}).get(one.name, "main") for one in found}
        self.git.asked.clear()
        told = await self.statuses.get(found, wanted)
        return {one.name: told[one.path] for one in found if one.path in told}

    async def kept(self) -> dict[str, GitStatus]:
        """Ask until git is not needed for the answer: what has changed a moment ago is looked at again."""
        async with asyncio.timeout(20):
            while True:
                told = await self.all()
                await self.statuses.wait_until_watched()
                if not self.git.asked:
                    return told


@contextlib.asynccontextmanager
async def asking(app: Path, state: Path) -> AsyncGenerator[Asking]:
    spawner = Spawner(new_id())
    one = Asking(app, state, CountingGit(spawner))
    try:
        yield one
    finally:
        await one.statuses.close()
        await spawner.stop_all()


@requirement("ws.status.more")
async def test_dirty_unmerged_ahead_behind_and_conflicts_are_told(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    places = {
        name: make_workspace(app, name, tmp_path / name)
        for name in ("clean", "dirty", "ahead", "clash", "squashed", "detached")
    }
    (places["dirty"] / "new").write_text("new")
    commit(places["ahead"], "a")
    commit(places["ahead"], "b")
    commit(places["clash"], "README", "theirs\n")
    commit(places["squashed"], "s")
    git(places["detached"], "checkout", "-q", "--detach")
    commit(places["detached"], "d")
    git(app, "merge", "-q", "--squash", "squashed")
    git(app, "commit", "-q", "-m", "squashed")
    commit(app, "README", "ours\n")
    git(app, "checkout", "-q", "--orphan", "other")
    git(app, "commit", "-q", "-m", "other")
    make = make_workspace(app, "unrelated", tmp_path / "unrelated")
    git(make, "reset", "-q", "--hard", "other")
    async with asking(app, state) as ours:
        told = await ours.all()
        assert told["clean"] == GitStatus(False, 0, 0, 2, (), "main")
        assert told["dirty"] == GitStatus(True, 0, 0, 2, (), "main")
        assert told["ahead"] == GitStatus(False, 2, 2, 2, (), "main")
        assert told["clash"] == GitStatus(False, 1, 1, 2, ("README",), "main")
        assert told["squashed"] == GitStatus(False, 0, 1, 2, (), "main", "main")
        assert told["detached"] == GitStatus(False, 1, 1, 2, (), "main")
        # The base does not have its commit, but the branch of the main checkout has.
        assert told["unrelated"] == GitStatus(False, 0, 1, told["unrelated"].behind, (), "main", "other")
        unknown = await ours.all({"ahead": "no-such-branch", "clash": "--help"})
        assert unknown["ahead"] == GitStatus(False, 0, 0, 0, (), "no-such-branch")


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "a file is changed": lambda _, place: (place / "src" / "one").write_text("changed\n"),
    "a file is made": lambda _, place: (place / "src" / "new").touch(),
    "a file is removed": lambda _, place: (place / "src" / "one").unlink(),
    "a file is made executable": lambda _, place: (place / "src" / "one").chmod(0o755),
    "a file is moved in": lambda app, place: (app / "loose").rename(place / "loose"),
    "a folder with a file is moved in": lambda app, place: (app / "folder").rename(place / "folder"),
    "a file is staged and removed": lambda _, place: git(place, "rm", "-q", "src/one"),
    "a file is no longer ignored": lambda _, place: (place / ".gitignore").write_text("\n"),
    "a commit is made": lambda _, place: commit(place, "committed"),
    "a commit without a file is made": lambda _, place: git(place, "commit", "-q", "--allow-empty", "-m", "none"),
    "a branch is moved from elsewhere": lambda app, _: git(app, "update-ref", "refs/heads/task", "second"),
    "the base is moved": lambda app, _: git(app, "update-ref", "refs/heads/main", "second"),
    "the refs are packed and the base is moved": lambda app, _: (
        git(app, "pack-refs", "--all"),
        git(app, "update-ref", "refs/heads/main", "second"),
        git(app, "pack-refs", "--all"),
    ),
}


@requirement("ws.status.more")
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "looked-at"])
@pytest.mark.parametrize("change", CHANGES)
async def test_it_is_kept_while_nothing_changes_and_anew_when(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, watched: bool
) -> None:
    app = make_repository(tmp_path / "app", {"src/one": "1\n", ".gitignore": "cache/\n"})
    git(app, "branch", "second")
    git(app, "checkout", "-q", "second")
    commit(app, "more")
    git(app, "checkout", "-q", "main")
    git(app, "config", "core.excludesFile", "")
    (app / "folder").mkdir()
    for name in ("loose", "folder/inner"):
        (app / name).touch()
    place, other = make_workspace(app, "task", tmp_path / "task"), make_workspace(app, "other", tmp_path / "other")
    (place / "cache").mkdir()
    (place / "cache" / "ignored").touch()
    if not watched:
        monkeypatch.setattr(TreeWatch, "add", _full)
    async with asking(app, state) as ours:
        before = await ours.kept()
        assert bool(ours.statuses.problem) is not watched
        (place / "cache" / "ignored").write_text("nobody looks")
        assert await ours.all() == before
        assert not ours.git.asked
        CHANGES[change](app, place)
        now = await ours.all()
        assert now["task"] != before["task"]
        assert "main" in change or "base" in change or now["other"] == before["other"]
        assert await ours.kept() == now
        # And once more, now that folders may have come.
        for folder in [one for one in (place / "folder", place / "src") if one.is_dir()]:
            (folder / "again").touch()
        assert (await ours.all())["task"].is_dirty
        assert other.is_dir()


def _full(*_: object) -> None:
    raise WatchLimitReached


@requirement("ws.status.more")
@pytest.mark.parametrize("crash", [False, True], ids=["a question is given up", "the watch crashes"])
async def test_the_next_answer_is_right_although(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    cover, is_fresh = FreshnessTracker.cover, FreshnessTracker.is_fresh
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(self: FreshnessTracker, one: WatchedFolders, ignored: Collection[str], since: float) -> None:
        if not one.key.endswith(":refs"):
            await goes_on.wait()
            if crash:
                raise ZeroDivisionError
        await cover(self, one, ignored, since)

    async def noted(self: FreshnessTracker, one: WatchedFolders) -> bool:
        asked.set()
        return await is_fresh(self, one)

    async with asking(app, state) as ours:
        with monkeypatch.context() as patch:
            patch.setattr(FreshnessTracker, "cover", slow)
            assert not (await ours.all())["task"].is_dirty
            patch.setattr(FreshnessTracker, "is_fresh", noted)
            # It waits until all is watched; and then nobody wants to know any more.
            given_up = asyncio.gather(ours.all())
            await asked.wait()
            if not crash:
                given_up.cancel()
            goes_on.set()
            await asyncio.wait([given_up])
        (place / "new").touch()
        assert (await ours.all())["task"].is_dirty
        (place / "new").unlink()
        assert not (await ours.kept())["task"].is_dirty


async def test_what_changes_while_git_looks_is_seen_at_the_next_question(state: Path, tmp_path: Path) -> None:
    """No matter when between two looks a file changes, the answer is right in the end."""
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    pauses = random.Random(1)
    async with asking(app, state) as ours:
        for number in range(20):
            asked = asyncio.gather(ours.all())
            await asyncio.sleep(pauses.random() * 0.03)
            file = place / f"file{number}"
            file.touch()
            await asked
            assert (await ours.all())["task"].is_dirty
            file.unlink()
            assert not (await ours.all())["task"].is_dirty
        assert not (await ours.kept())["task"].is_dirty


@requirement("ws.status.more")
async def test_a_deletion_is_never_decided_by_what_is_kept(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    async with asking(app, state) as ours, start_deletions(state, app) as there:
        assert not (await ours.kept())["task"].is_dirty
        fill(place)
        with pytest.raises(Exception, match="un tracked"):
            await there.removals.delete(await there.find("task"), wait=True)
        assert place.is_dir()


async def test_few_processes_are_needed_for_many(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    for number in range(5):
        commit(make_workspace(app, f"task{number}", tmp_path / f"task{number}"), f"own{number}")
    commit(app, "main")
    async with asking(app, state) as ours:
        await ours.all()
        asked = sorted(ours.git.asked)
        assert asked == [
            "for-each-ref",
            "merge-base",
            "merge-tree",
            "rev-list",
            "rev-parse",
            *["status"] * 6,
            "worktree",
        ]


class HeldGit(CountingGit):
    """Git that cannot read one folder, and answers about the others when it is let go."""

    bad = Path()

    def __init__(self, spawner: Spawner) -> None:
        super().__init__(spawner)
        self.failed, self.let_go = asyncio.Event(), asyncio.Event()

    async def run(self, folder: Path, *args: str, **more: Any) -> CompletedCommand:
        if args[0] == "status" and folder == self.bad:
            self.failed.set()
            raise RookeryError("git-failed", "bad")
        if args[0] == "status":
            await self.let_go.wait()
        return await super().run(folder, *args, **more)


async def test_one_that_cannot_be_read_leaves_no_other_half_way(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    good, bad = (make_workspace(app, name, tmp_path / name) for name in ("good", "bad"))
    project = Project(project_id(app), app.name, str(app))
    spawner = Spawner(new_id())
    held = HeldGit(spawner)
    held.bad = bad
    statuses = StatusCache(held)
    try:
        found = {one.workspace.path: one.workspace for one in await list_workspaces(held, state, project)}
        both = asyncio.gather(statuses.get([found[good], found[bad]], {}), return_exceptions=True)
        await asyncio.wait_for(held.failed.wait(), 20)
        after = asyncio.gather(statuses.get([found[good]], {}))
        # It has to wait for the look that is under way.
        await asyncio.wait({after}, timeout=0.3)
        held.let_go.set()
        (told,) = await asyncio.wait_for(after, 20)
        assert good in told
        (failure,) = await both
        assert isinstance(failure, RookeryError)
    finally:
        await statuses.close()
        await spawner.stop_all()


def test_what_git_prints_is_read_whatever_the_names() -> None:
    zeros = b"0" * 40
    printed = b"".join(
        [
            b"# branch.oid (initial)\0# branch.head (detached)\0",
            b"1 M. N... 100644 100644 100644 %s %s a b\0" % (zeros, zeros),
            b"2 RM N... 100644 100644 100644 %s %s R100 new\nname\0? old\0" % (zeros, zeros),
            b"u UU N... 100644 100644 100644 100644 %s %s %s c\0" % (zeros, zeros, zeros),
            b"? d \xff/\0! e/\0",
        ]
    )
    found = parse_status(printed)
    assert (found.head, found.branch) == (None, None)
    assert (found.staged, found.changed, found.unmerged) == (("a b", "new\nname"), ("new\nname",), ("c",))
    assert (found.untracked, found.ignored) == (("d \udcff/",), ("e/",))
    assert found.format_short() == ["M  a b", "UU c", "?? d \udcff/", "MM new\nname"]
    assert not parse_status(b"! only/\0").is_dirty


async def test_distances_are_those_that_git_counts(state: Path, tmp_path: Path) -> None:
    """A tangled history: every pair at once, against git's own count of each."""
    app = make_repository(tmp_path / "app")
    tangle = random.Random(7)
    tips = [git(app, "rev-parse", "HEAD")]
    tree = git(app, "rev-parse", "HEAD^{tree}")
    for number in range(40):
        parents = tangle.sample(tips[-8:], k=min(len(tips), tangle.choice([1, 1, 2])))
        named = [word for parent in parents for word in ("-p", parent)]
        tips.append(git(app, "commit-tree", tree, *named, "-m", str(number)))
    pairs = [(tangle.choice(tips), tangle.choice(tips)) for _ in range(30)]
    spawner = Spawner(new_id())
    found = await count_distances(Git(spawner), app, pairs)
    for head, base in pairs:
        counted = git(app, "rev-list", "--left-right", "--count", f"{head}...{base}").split()
        assert found[head, base] == (int(counted[0]), int(counted[1]))
    assert count_divergence([], [("a", "b")]) == {("a", "b"): (0, 0)}
    assert state.is_dir()
