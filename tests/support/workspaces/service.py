"""The workspace service as the daemon runs it, without the daemon, and repositories for it."""

import contextlib
import os
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.daemon.services.core import ChildrenService
from rookery.system.bus import Bus
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.workspaces.prepare import ApprovalRequest
from rookery.workspaces.projects import Projects
from rookery.workspaces.service import Workspaces

PERSON = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always", "-c", "commit.gpgSign=false")


@dataclass
class WorkspaceParts:
    workspaces: Workspaces
    projects: Projects
    git: Git
    events: Bus
    store: Store
    # What was asked to be approved.
    asked: list[ApprovalRequest]

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        """Return every event so far."""
        reader = self.events.subscribe(0)
        past = [(event.type, event.data) for event in reader._queue]
        reader.end("read")
        return past

    async def project(self, path: Path) -> str:
        return (await self.projects.add(path)).project.id


@contextlib.asynccontextmanager
async def start_workspaces(
    state: Path,
    *,
    approve: bool | Callable[[ApprovalRequest], Awaitable[bool]] = True,
    place: str = "",
    setup_seconds: float = 60,
    started: bool = True,
) -> AsyncGenerator[WorkspaceParts]:
    """Run the service once; processes of an earlier run are ended first, as in the daemon."""
    asked: list[ApprovalRequest] = []

    async def approved(one: ApprovalRequest) -> bool:
        asked.append(one)
        return approve if isinstance(approve, bool) else await approve(one)

    spawner, store, events = Spawner(new_id()), Store(state / "rookery.db"), Bus("events")
    children = ChildrenService(state, spawner, lambda _: None)
    git = Git(spawner)
    projects = Projects(store, git, events)
    workspaces = Workspaces(
        state,
        store,
        git,
        spawner,
        events,
        projects,
        is_approved=approved,
        path_template=place,
        setup_seconds=setup_seconds,
    )
    await children.start()
    await store.open()
    try:
        if started:
            await workspaces.start()
        yield WorkspaceParts(workspaces, projects, git, events, store, asked)
    finally:
        await workspaces.stop()
        await store.close()
        await children.stop()


def git(folder: Path, *args: str, env: Mapping[str, str] | None = None, check: bool = True) -> str:
    """Run git as a person would, and return its output."""
    done = subprocess.run(
        ["git", *PERSON, "-C", str(folder), *args],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    if check and done.returncode != 0:
        raise AssertionError(f"git {args}: {done.stderr}")
    return done.stdout.rstrip("\n")


def make_repository(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a repository with one commit on `main`."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    for name, text in {"README": "one\n", **(files or {})}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    git(path, "add", "-A", "-f")
    git(path, "commit", "-q", "-m", "one")
    return path.resolve()


def make_clone(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a clone of such a repository, with its remote-tracking branches."""
    origin = make_repository(path.with_name(f"{path.name}-origin"), files)
    git(origin.parent, "clone", "-q", str(origin), str(path))
    return path.resolve()


def commit(folder: Path, name: str, text: str = "text\n") -> str:
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", name)
    return git(folder, "rev-parse", "HEAD")


def branches(folder: Path) -> set[str]:
    return set(git(folder, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines())


def snapshot(checkout: Path) -> str:
    """Return all refs, config and worktrees of a repository, for comparison."""
    config = (checkout / ".git" / "config").read_text()
    return "\n".join([git(checkout, "for-each-ref"), git(checkout, "worktree", "list", "--porcelain"), config])


class Pause:
    """A git filter of the user that pauses a checkout at the file `m.slow` until the test continues it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._reached, self._on = folder / "reached", folder / "on"
        for pipe in (self._reached, self._on):
            os.mkfifo(pipe)
        script = folder / "pause.sh"
        script.write_text(f'#!/bin/sh\ntext=$(cat)\necho > {self._reached}\nread line < {self._on}\necho "$text"\n')
        script.chmod(0o755)
        self._script = script

    def repository(self, path: Path) -> Path:
        """Create a repository whose checkouts pause after `a` and before `z`."""
        made = make_repository(
            path, {"a": "a\n", "m.slow": "slow\n", "z": "z\n", ".gitattributes": "*.slow filter=pause\n"}
        )
        git(made, "config", "--global", "filter.pause.smudge", str(self._script))
        return made

    def wait(self) -> None:
        """Block until git pauses; run it in a thread."""
        self._reached.read_text()

    def go_on(self) -> None:
        self._on.write_text("\n")

    def no_more(self) -> None:
        """Do not pause later checkouts."""
        self._script.write_text("#!/bin/sh\ncat\n")
