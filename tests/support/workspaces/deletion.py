"""Deleting and restoring on real repositories, and a comparison of every byte that is left."""

import contextlib
import hashlib
import stat
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.git import Git
from rookery.system.ids import new_id, project_id
from rookery.system.process.spawn import Spawner
from rookery.workspaces.delete.run import DeletionService, StopWorkspace
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.lookup import LocatedWorkspace, list_workspaces
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from tests.support.workspaces.service import commit, git, make_repository


async def nothing_to_stop(_: Workspace) -> bool:
    return False


@dataclass
class DeletionParts:
    removals: DeletionService
    git: Git
    events: Bus
    state: Path
    project: Project
    spawner: Spawner

    async def find(self, name: str) -> LocatedWorkspace:
        found = await list_workspaces(self.git, self.state, self.project)
        return next(one for one in found if one.workspace.name == name)

    async def names(self) -> list[str]:
        found = await list_workspaces(self.git, self.state, self.project)
        return [one.workspace.name for one in found if not one.workspace.main]

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        """Return every event so far."""
        reader = self.events.subscribe(0)
        past = [(event.type, event.data) for event in reader._queue]
        reader.end("read")
        return past


@contextlib.asynccontextmanager
async def start_deletions(
    state: Path,
    app: Path,
    *,
    stop: StopWorkspace = nothing_to_stop,
    days: float = 14.0,
    limit: int = 2**40,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncGenerator[DeletionParts]:
    """Run the service once; it first finishes interrupted operations."""
    spawner, events = Spawner(new_id()), Bus("events")
    runner = Git(spawner)
    removals = DeletionService(
        state, runner, spawner, RepositoryLocks(), events, stop, days=days, limit=limit, clock=clock
    )
    try:
        await removals.resume()
        yield DeletionParts(removals, runner, events, state, Project(project_id(app), app.name, str(app)), spawner)
    finally:
        await removals.close()
        await spawner.stop_all()


def make_workspace(app: Path, name: str, place: Path) -> Path:
    """Create a worktree with plain git, on a new branch."""
    git(app, "worktree", "add", "-q", "--no-track", "-b", name, str(place), "main")
    return place


def fill(place: Path) -> str:
    """Add committed, amended, changed, staged, untracked, ignored and nested work. Return the last commit."""
    commit(place, "amended", "before\n")
    git(place, "commit", "-q", "--amend", "-m", "amended")
    head = commit(place, ".gitignore", "cache/\n")
    (place / "README").write_text("changed\n")
    (place / "staged").write_text("staged\n")
    git(place, "add", "staged")
    (place / "staged").write_text("changed after staging\n")
    (place / "un tracked\n").write_text("untracked\n")
    (place / "cache" / "deep").mkdir(parents=True)
    (place / "cache" / "deep" / "ignored").write_text("ignored\n")
    (place / "link").symlink_to("nowhere")
    (place / "locked").mkdir()
    (place / "locked" / "file").write_text("read only\n")
    (place / "locked" / "file").chmod(0o444)
    (place / "empty").mkdir()
    commit(make_repository(place / "nested"), "inner")
    return head


def contents(folder: Path) -> dict[str, object]:
    """Return kind, mode and bytes of each entry in a folder."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            content: object = path.readlink()
        elif stat.S_ISREG(mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = None
        found[str(path.relative_to(folder))] = (stat.filemode(mode), content)
    return found


def index_of(place: Path) -> str:
    """Return what is staged, and git's status of the rest."""
    return git(place, "ls-files", "--stage") + "\n" + git(place, "status", "--porcelain=v2", "--branch", "--ignored")


def make_app(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "app", {"src/one": "1\n", "src/two": "2\n"})
