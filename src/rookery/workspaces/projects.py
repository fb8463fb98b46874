"""The registered git repositories. Registering one opens nothing and runs nothing of it."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import match_prefix, project_id
from rookery.system.store import Store
from rookery.workspaces.metadata import has_rookery_data


class Project(msgspec.Struct, frozen=True):
    """A registered git repository. `path` is its main checkout."""

    id: str
    name: str
    path: str


class ApprovedContent(msgspec.Struct, frozen=True):
    """Something in a repository that was approved by adding the project; identified by its digest."""

    kind: str
    name: str
    digest: str


class Registration(msgspec.Struct, frozen=True):
    """A registered project. `added` says whether it is new, `approved` what was approved with it.

    `note` says why something in the main checkout was not approved and waits for the user.
    """

    project: Project
    added: bool
    approved: Sequence[ApprovedContent] = ()
    note: str = ""


class RegistrationHooks(Protocol):
    """Decides what registering and removing a project means for the approvals of the user."""

    async def on_registering(self, project: Project, *, named: Path, used: bool, by_user: bool | None) -> str:
        """Record the registration before it is stored, and return why nothing is approved, or an empty text.

        `named` is the folder that the user named, in which git found the repository or a worktree of it. `used` says
        that Rookery has worked in the repository before. If `by_user` is None, the implementation finds out who the
        caller is.
        """
        ...

    async def on_registered(self, project: Project, refusal: str) -> tuple[Sequence[ApprovedContent], str]:
        """Approve what the main checkout contains unless there is a `refusal`.

        Return what was approved, and a note on the rest.
        """
        ...

    async def on_removing(self, project: Project) -> None:
        """Revoke the approvals of a project. Called before the project is removed."""
        ...


class Projects:
    """The registered projects, kept in the store."""

    def __init__(self, store: Store, git: Git, events: Bus, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._git = git
        self._events = events
        self._clock = clock
        self._changing = asyncio.Lock()
        self.hooks: RegistrationHooks | None = None

    async def add(self, folder: Path, *, by_user: bool | None = None) -> Registration:
        """Register the repository that contains `folder`. If `by_user` is None, the caller is determined."""
        path = (await self._git.main_checkout(folder)).resolve()
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise RookeryError("invalid-input", f"{path!r} is not valid UTF-8", "rename the folder") from None
        # A project that contains the home folder, or is it, would give an agent access to all of it.
        if Path.home().resolve().is_relative_to(path):
            raise RookeryError(
                "invalid-input",
                f"{path} is or contains the home folder, and cannot be a project",
                "move the repository into a folder of its own",
            )
        project = Project(project_id(path), path.name, str(path))
        async with self._changing:
            if any(other.id == project.id for other in await self.all()):
                return Registration(project, added=False)
            return await self._add(project, folder, by_user)

    async def _add(self, project: Project, named: Path, by_user: bool | None) -> Registration:
        refusal = ""
        if self.hooks is not None:
            # Recorded first: whatever happens in between, the next registration does not count as the first one.
            common = await self._git.output(
                Path(project.path), "rev-parse", "--path-format=absolute", "--git-common-dir"
            )
            used = await asyncio.to_thread(has_rookery_data, Path(os.fsdecode(common.removesuffix(b"\n"))))
            refusal = await self.hooks.on_registering(project, named=named, used=used, by_user=by_user)
        row = (project.id, project.path, project.name, self._clock.wall())
        await self._store.write(
            lambda db: db.execute("INSERT INTO projects (id, path, name, added) VALUES (?, ?, ?, ?)", row)
        )
        registration = Registration(project, added=True)
        if self.hooks is not None:
            approved, note = await self.hooks.on_registered(project, refusal)
            registration = Registration(project, added=True, approved=approved, note=note)
        self._events.publish("project.added", project=msgspec.to_builtins(project))
        return registration

    async def all(self) -> list[Project]:
        rows: list[tuple[str, str, str]] = await self._store.read(
            lambda db: db.execute("SELECT id, name, path FROM projects ORDER BY name, id").fetchall()
        )
        return [Project(*row) for row in rows]

    async def get(self, project: str) -> Project:
        """Return a project by its id or a unique prefix of it, or by its name if only one project has it."""
        projects = {entry.id: entry for entry in await self.all()}
        matches = [entry for entry in projects.values() if entry.name == project]
        if project not in projects and matches:
            if len(matches) > 1:
                ids = ", ".join(entry.id for entry in matches)
                raise RookeryError(
                    "invalid-input", f"several projects are called {project}", f"use the id of one of them: {ids}"
                )
            return matches[0]
        if (id_ := match_prefix(project, projects, "projects")) is not None:
            return projects[id_]
        raise RookeryError(
            "project-not-found", f"there is no project {project}", "list the projects: rookery project list"
        )

    async def remove(self, project: str) -> Project:
        """Remove a project and its approvals. Its repository, worktrees and branches stay as they are."""
        async with self._changing:
            removed = await self.get(project)
            if self.hooks is not None:
                await self.hooks.on_removing(removed)
            await self._store.write(lambda db: db.execute("DELETE FROM projects WHERE id = ?", (removed.id,)))
        self._events.publish("project.removed", project=msgspec.to_builtins(removed))
        return removed
