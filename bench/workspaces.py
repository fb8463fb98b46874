"""How long status, listing and deletion of workspaces take, against git doing the same without us."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from rookery.system.bus import Bus
from rookery.system.git import Git
from rookery.system.ids import new_id, project_id
from rookery.system.process.spawn import Spawner
from rookery.workspaces.delete.run import DeletionService
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.lookup import LocatedWorkspace, list_workspaces
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from rookery.workspaces.status.cache import StatusCache
from rookery.workspaces.status.changes import STATUS_ARGUMENTS

from .harness import Bar, Sample, ratio, take_turns, user_environment
from .servers import Server, running

T = TypeVar("T")

WANTED = {"status.seconds": 1.3, "unchanged.seconds": 0.05, "list.seconds": 2.0, "delete.seconds": 1.5}

_ROOKERY = str(Path(sys.executable).with_name("rookery"))
_DAEMON = [sys.executable, "-P", "-m", "rookery.daemon", "serve", "--set", "http.port={port}"]
_WORKTREES, _FOLDERS, _FILES, _IGNORED = 100, 50, 20, 20_000
_PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0", "-c", "commit.gpgSign=false")
# All fields of a status of one worktree, as one would ask git for them.
_EACH = (
    f'cd "$0" && git --no-optional-locks {" ".join(STATUS_ARGUMENTS)} && '
    "git rev-list --left-right --count HEAD...main -- && git merge-tree --write-tree main HEAD"
)


def run() -> list[Bar]:
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        app = _repository(Path(folder) / "app")
        places = _worktrees(app, Path(folder))
        ratios = _statuses(app, places) | _lists(app, Path(folder)) | _deletions(app, Path(folder))
    return [Bar(f"workspaces.{name}", ratios[name], "<=", wanted) for name, wanted in WANTED.items()]


def _worktrees(app: Path, folder: Path) -> list[Path]:
    places = [folder / "trees" / str(number) for number in range(_WORKTREES)]
    for place in places:
        _git(app, "worktree", "add", "-q", "--no-track", "-b", f"task{place.name}", str(place), "main")
        (place / "0" / "0").write_text(place.name)
        _git(place, "commit", "-q", "-a", "-m", "own")
        _git(place, "status")
    # So that each has diverged, and there is something to merge.
    (app / "1" / "0").write_text("main")
    _git(app, "commit", "-q", "-a", "-m", "main")
    return places


def _statuses(app: Path, places: list[Path]) -> dict[str, float]:
    project = Project(project_id(app), app.name, str(app))
    workspaces = [Workspace(project, place.name, place, f"task{place.name}", False, "ready") for place in places]

    async def ask(git: Git) -> tuple[float, float]:
        """How long a first answer takes, and one when nothing has changed."""
        statuses = StatusCache(git)
        bases = {one.path: "main" for one in workspaces}
        try:
            first, told = await _timed(lambda: statuses.get(workspaces, bases))
            await statuses.wait_until_watched()
            second, again = await _timed(lambda: statuses.get(workspaces, bases))
            wrong = [one for one in told.values() if (one.is_dirty, one.ahead, one.behind) != (False, 1, 1)]
            if wrong or len(told) != _WORKTREES or again != told:
                raise RuntimeError(f"that is not their status: {wrong[:1]}")
            return first, second
        finally:
            await statuses.close()

    unchanged: list[float] = []

    def ours() -> Sample:
        first, second = _with_git(ask)
        unchanged.append(second)
        return {"seconds": first}

    targets = {"loop": lambda: {"seconds": _fastest(app, places)}, "status": ours}
    taken = take_turns(targets, rounds=5, warm_ups=1)
    for turn, second in zip(taken, unchanged[-len(taken) :], strict=True):
        turn["unchanged"] = {"seconds": second}
    return {f"{name}.seconds": ratio(taken, name, "loop", "seconds") for name in ("status", "unchanged")}


def _fastest(app: Path, places: list[Path]) -> float:
    """The fastest of several loops, each with as many jobs at a time as may be best."""
    cores = os.cpu_count() or 1
    each = ["sh", "-c", _EACH]
    only_status = ["git", "--no-optional-locks", "-C", "{}", *STATUS_ARGUMENTS]
    shared = _shared(app, places)
    return min(
        took
        for jobs in (cores, cores * 2)
        for took in (
            _loop(["-n1", "-P", str(jobs), *each], places),
            _loop(["-I{}", "-P", str(jobs), *only_status], places) + shared,
        )
    )


def _shared(app: Path, places: list[Path]) -> float:
    """What can be asked once for all worktrees, asked just as we do: so that the bar is no easier than it looks."""
    heads = [f"task{place.name}" for place in places]
    merges = "".join(f"main {head}\n" for head in heads).encode()
    began = time.perf_counter()
    _git(app, "worktree", "list", "--porcelain", "-z")
    _git(app, "rev-parse", "main^{commit}", "main^{tree}")
    _git(app, "merge-base", "--octopus", "main", *heads)
    _git(app, "rev-list", "--topo-order", "--parents", "main", *heads, "^main~1")
    _git(app, "merge-tree", "--stdin", "--name-only", "--no-messages", stdin=merges)
    return time.perf_counter() - began


def _loop(words: list[str], places: list[Path]) -> float:
    began = time.perf_counter()
    listed = "\0".join(map(str, places)).encode()
    subprocess.run(["xargs", "-0", *words], input=listed, stdout=subprocess.DEVNULL, check=True, timeout=600)
    return time.perf_counter() - began


def _lists(app: Path, folder: Path) -> dict[str, float]:
    """The whole command, with the changes in each, against git's own list and a command that does nothing."""
    env = user_environment(folder, ROOKERY_HOME=str(folder / "home"), NO_COLOR="1")

    def seconds(*argv: str) -> float:
        began = time.perf_counter()
        done = subprocess.run(argv, cwd=app, env=env, check=True, capture_output=True, timeout=600)
        took = time.perf_counter() - began
        if argv[1:3] == ("ws", "list") and done.stdout.count(b"+1 -1") != _WORKTREES:
            raise RuntimeError(f"that is not the list: {done.stdout[:500]!r}")
        return took

    daemon = Server([*_DAEMON, "--project", str(app)], "/api/health", app, env)
    with running(daemon):
        targets = {
            "least": lambda: {"seconds": seconds("git", "worktree", "list") + seconds(_ROOKERY, "--version")},
            "list": lambda: {"seconds": seconds(_ROOKERY, "ws", "list", "--no-start")},
        }
        taken = take_turns(targets, rounds=15, repeats=3)
    return {"list.seconds": ratio(taken, "list", "least", "seconds")}


def _deletions(app: Path, folder: Path) -> dict[str, float]:
    """Ours with many ignored files, git's own without them; making them is not counted."""
    count = iter(range(1000))
    project = Project(project_id(app), app.name, str(app))

    def make(ignored: int) -> Path:
        place = folder / "deleted" / str(next(count))
        _git(app, "worktree", "add", "-q", "--no-track", "-b", f"delete{place.name}", str(place), "main")
        _git(place, "status")
        for number in range(ignored):
            file = place / "ignored" / str(number // 200) / str(number)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return place

    def theirs() -> Sample:
        place = make(0)
        began = time.perf_counter()
        _git(app, "worktree", "remove", str(place))
        return {"seconds": time.perf_counter() - began}

    async def delete(git: Git, place: Path) -> float:
        async def nothing(_: Workspace) -> bool:
            return False

        removals = DeletionService(folder / "state", git, Spawner(new_id()), RepositoryLocks(), Bus("bench"), nothing)
        found: list[LocatedWorkspace] = await list_workspaces(git, folder / "state", project)
        one = next(one for one in found if one.workspace.path == place)
        took, _ = await _timed(lambda: removals.delete(one, wait=True))
        await removals.close()
        return took

    def ours() -> Sample:
        place = make(_IGNORED)
        took = _with_git(lambda git: delete(git, place))
        if place.exists():
            raise RuntimeError(f"{place} was not deleted")
        shutil.rmtree(folder / "state")
        return {"seconds": took}

    taken = take_turns({"git": theirs, "delete": ours}, rounds=5, warm_ups=1)
    return {"delete.seconds": ratio(taken, "delete", "git", "seconds")}


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    began = time.perf_counter()
    done = await work()
    return time.perf_counter() - began, done


def _with_git(work: Callable[[Git], Awaitable[T]]) -> T:
    async def main() -> T:
        spawner = Spawner(new_id())
        try:
            return await work(Git(spawner))
        finally:
            await spawner.stop_all()

    return asyncio.run(main())


def _repository(path: Path) -> Path:
    for number in range(_FOLDERS):
        (path / str(number)).mkdir(parents=True)
        for file in range(_FILES):
            (path / str(number) / str(file)).write_text(f"{number} {file}\n")
    (path / ".gitignore").write_text("ignored/\n")
    _git(path, "init", "-q", "-b", "main")
    _git(path, "add", ".")
    _git(path, "commit", "-q", "-m", "one")
    return path.resolve()


def _git(folder: Path, *args: str, stdin: bytes = b"") -> None:
    subprocess.run(
        ["git", *_PERSON, *args], cwd=folder, input=stdin, check=True, stdout=subprocess.DEVNULL, timeout=600
    )
