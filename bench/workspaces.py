"""The duration of status, listing and deletion of workspaces, against git alone."""

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
# All fields of the status of one worktree, with the git commands that a user would run.
_EACH = (
    f'cd "$0" && git --no-optional-locks {" ".join(STATUS_ARGUMENTS)} && '
    "git rev-list --left-right --count HEAD...main -- && git merge-tree --write-tree main HEAD"
)


def run() -> list[Bar]:
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        app = _repository(Path(folder) / "app")
        worktrees = _worktrees(app, Path(folder))
        ratios = _statuses(app, worktrees) | _lists(app, Path(folder)) | _deletions(app, Path(folder))
    return [Bar(f"workspaces.{name}", ratios[name], "<=", wanted) for name, wanted in WANTED.items()]


def _worktrees(app: Path, folder: Path) -> list[Path]:
    worktrees = [folder / "trees" / str(number) for number in range(_WORKTREES)]
    for worktree in worktrees:
        _git(app, "worktree", "add", "-q", "--no-track", "-b", f"task{worktree.name}", str(worktree), "main")
        (worktree / "0" / "0").write_text(worktree.name)
        _git(worktree, "commit", "-q", "-a", "-m", "own")
        _git(worktree, "status")
    # Each worktree has diverged, so that there is something to merge.
    (app / "1" / "0").write_text("main")
    _git(app, "commit", "-q", "-a", "-m", "main")
    return worktrees


def _statuses(app: Path, worktrees: list[Path]) -> dict[str, float]:
    project = Project(project_id(app), app.name, str(app))
    workspaces = [
        Workspace(project, worktree.name, worktree, f"task{worktree.name}", False, "ready") for worktree in worktrees
    ]

    async def ask(git: Git) -> tuple[float, float]:
        """Return the duration of a first status, and of one when nothing has changed."""
        statuses = StatusCache(git)
        bases = {workspace.path: "main" for workspace in workspaces}
        try:
            first, status_by_path = await _timed(lambda: statuses.get(workspaces, bases))
            await statuses.wait_until_watched()
            second, again = await _timed(lambda: statuses.get(workspaces, bases))
            wrong = [
                status
                for status in status_by_path.values()
                if (status.is_dirty, status.ahead, status.behind) != (False, 1, 1)
            ]
            if wrong or len(status_by_path) != _WORKTREES or again != status_by_path:
                raise RuntimeError(f"unexpected status: {wrong[:1]}")
            return first, second
        finally:
            await statuses.close()

    unchanged: list[float] = []

    def ours() -> Sample:
        first, second = _with_git(ask)
        unchanged.append(second)
        return {"seconds": first}

    targets = {"loop": lambda: {"seconds": _fastest(app, worktrees)}, "status": ours}
    results = take_turns(targets, rounds=5, warm_ups=1)
    for turn, second in zip(results, unchanged[-len(results) :], strict=True):
        turn["unchanged"] = {"seconds": second}
    return {f"{name}.seconds": ratio(results, name, "loop", "seconds") for name in ("status", "unchanged")}


def _fastest(app: Path, worktrees: list[Path]) -> float:
    """Return the fastest of several loops, with different numbers of parallel jobs."""
    cores = os.cpu_count() or 1
    each = ["sh", "-c", _EACH]
    only_status = ["git", "--no-optional-locks", "-C", "{}", *STATUS_ARGUMENTS]
    shared = _shared(app, worktrees)
    return min(
        took
        for jobs in (cores, cores * 2)
        for took in (
            _loop(["-n1", "-P", str(jobs), *each], worktrees),
            _loop(["-I{}", "-P", str(jobs), *only_status], worktrees) + shared,
        )
    )


def _shared(app: Path, worktrees: list[Path]) -> float:
    """Return the duration of the queries for all worktrees at once, as Rookery runs them."""
    heads = [f"task{worktree.name}" for worktree in worktrees]
    merges = "".join(f"main {head}\n" for head in heads).encode()
    began = time.perf_counter()
    _git(app, "worktree", "list", "--porcelain", "-z")
    _git(app, "rev-parse", "main^{commit}", "main^{tree}")
    _git(app, "merge-base", "--octopus", "main", *heads)
    _git(app, "rev-list", "--topo-order", "--parents", "main", *heads, "^main~1")
    _git(app, "merge-tree", "--stdin", "--name-only", "--no-messages", stdin=merges)
    return time.perf_counter() - began


def _loop(words: list[str], worktrees: list[Path]) -> float:
    began = time.perf_counter()
    listed = "\0".join(map(str, worktrees)).encode()
    subprocess.run(["xargs", "-0", *words], input=listed, stdout=subprocess.DEVNULL, check=True, timeout=600)
    return time.perf_counter() - began


def _lists(app: Path, folder: Path) -> dict[str, float]:
    """Measure the whole command, with changes, against git's list and a command that does nothing."""
    env = user_environment(folder, ROOKERY_HOME=str(folder / "home"), NO_COLOR="1")

    def seconds(*argv: str) -> float:
        began = time.perf_counter()
        done = subprocess.run(argv, cwd=app, env=env, check=True, capture_output=True, timeout=600)
        took = time.perf_counter() - began
        if argv[1:3] == ("ws", "list") and done.stdout.count(b"+1 -1") != _WORKTREES:
            raise RuntimeError(f"unexpected list: {done.stdout[:500]!r}")
        return took

    daemon = Server([*_DAEMON, "--project", str(app)], "/api/health", app, env)
    with running(daemon):
        targets = {
            "least": lambda: {"seconds": seconds("git", "worktree", "list") + seconds(_ROOKERY, "--version")},
            "list": lambda: {"seconds": seconds(_ROOKERY, "ws", "list", "--no-start")},
        }
        results = take_turns(targets, rounds=15, repeats=3)
    return {"list.seconds": ratio(results, "list", "least", "seconds")}


def _deletions(app: Path, folder: Path) -> dict[str, float]:
    """Delete worktrees: Rookery with many ignored files, git without them. Creating them is not counted."""
    count = iter(range(1000))
    project = Project(project_id(app), app.name, str(app))

    def make(ignored: int) -> Path:
        worktree = folder / "deleted" / str(next(count))
        _git(app, "worktree", "add", "-q", "--no-track", "-b", f"delete{worktree.name}", str(worktree), "main")
        _git(worktree, "status")
        for number in range(ignored):
            file = worktree / "ignored" / str(number // 200) / str(number)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return worktree

    def theirs() -> Sample:
        worktree = make(0)
        began = time.perf_counter()
        _git(app, "worktree", "remove", str(worktree))
        return {"seconds": time.perf_counter() - began}

    async def delete(git: Git, worktree: Path) -> float:
        async def nothing(_: Workspace) -> bool:
            return False

        removals = DeletionService(folder / "state", git, Spawner(new_id()), RepositoryLocks(), Bus("bench"), nothing)
        all_located: list[LocatedWorkspace] = await list_workspaces(git, folder / "state", project)
        located = next(each for each in all_located if each.workspace.path == worktree)
        took, _ = await _timed(lambda: removals.delete(located, wait=True))
        await removals.close()
        return took

    def ours() -> Sample:
        worktree = make(_IGNORED)
        took = _with_git(lambda git: delete(git, worktree))
        if worktree.exists():
            raise RuntimeError(f"{worktree} was not deleted")
        shutil.rmtree(folder / "state")
        return {"seconds": took}

    results = take_turns({"git": theirs, "delete": ours}, rounds=5, warm_ups=1)
    return {"delete.seconds": ratio(results, "delete", "git", "seconds")}


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
