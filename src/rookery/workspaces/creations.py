"""New workspaces: each planned and made in its turn, whether or not the caller stays to see it."""

import asyncio
from pathlib import Path

import msgspec

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.tasks import TaskSet
from rookery.workspaces.asking import git_config_of
from rookery.workspaces.creation import make
from rookery.workspaces.listing import find_workspaces
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.naming import place_of
from rookery.workspaces.opening import Opening
from rookery.workspaces.planning import plan_creation
from rookery.workspaces.preparation import Preparations
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.setup import Approved


class Creations:
    def __init__(
        self,
        state: Path,
        git: Git,
        events: Bus,
        projects: Projects,
        locks: RepositoryLocks,
        preparations: Preparations,
        *,
        approved: Approved,
        opening: Opening,
        place: str,
    ) -> None:
        self._state, self._git, self._events, self._projects = state, git, events, projects
        self._locks, self._preparations = locks, preparations
        self._approved, self._opening, self._place = approved, opening, place
        self._tasks = TaskSet("creations")

    async def create(self, project: Project, name: str, *, base: str | None, branch: str | None) -> Workspace:
        """A caller that goes away does not leave it half-made."""
        made = await asyncio.shield(self._tasks.start(self._outcome(project, name, base, branch), name))
        if isinstance(made, RookeryError):
            raise made
        return made

    async def close(self) -> None:
        """What is cut off here is written down, and taken up at the next start."""
        await self._tasks.close()

    async def _outcome(
        self, project: Project, name: str, base: str | None, branch: str | None
    ) -> Workspace | RookeryError:
        """What comes of it; an error that is somebody's to mend is no crash of a task."""
        try:
            return await self._create(project, name, base, branch)
        except RookeryError as error:
            return error

    async def _create(self, project: Project, name: str, base: str | None, branch: str | None) -> Workspace:
        async with self._locks.writing(project.path):
            creation = await plan_creation(
                self._git,
                project,
                name,
                place=place_of(self._place, self._state, project, name),
                base=base,
                branch=branch,
                found=await find_workspaces(self._git, self._state, project),
                roots=[Path(one.path) for one in await self._projects.all() if one.id != project.id],
            )
            creation = msgspec.structs.replace(creation, trusted=await self._trusts(project))
            own = await make(self._git, self._state, project, creation)
            made = Workspace(project, name, Path(creation.path), creation.branch, False, "preparing", open=True)
            self._events.publish("workspace.created", **made.as_dict())
            await self._opening.mark(made, own)
            self._preparations.begin(made, own)
        await self._opening.bring(made, own)
        return made

    async def _trusts(self, project: Project) -> bool:
        """Whether programs that the repository's config names, such as filters, may run for it."""
        asked = await git_config_of(self._git, project)
        return asked is not None and await self._approved(asked)
