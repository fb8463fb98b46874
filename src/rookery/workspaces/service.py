"""The one service behind every face: MCP, REST, command line and Socket.IO see and change workspaces through it."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.workspaces import metadata
from rookery.workspaces.base import default_name
from rookery.workspaces.creations import Creations
from rookery.workspaces.deletion import Stop
from rookery.workspaces.listing import INITIALIZING, Found, find_workspaces
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.naming import check_name
from rookery.workspaces.ports import PortRanges
from rookery.workspaces.preparation import Preparations
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import MAIN, Workspace
from rookery.workspaces.recovery import recover
from rookery.workspaces.removal import Removals
from rookery.workspaces.setup import Approved
from rookery.workspaces.status import Status, Statuses

logger = logging.getLogger("rookery.workspaces")


async def _nothing_to_stop(_: Workspace) -> bool:
    return False


class Workspaces:
    """`place` is the template of `worktrees.path`; `approved` judges what a repository wants to run.

    `stop` ends what is ours in a workspace that is to be deleted.
    """

    def __init__(
        self,
        state: Path,
        store: Store,
        git: Git,
        spawner: Spawner,
        events: Bus,
        projects: Projects,
        *,
        approved: Approved,
        place: str = "",
        setup_seconds: float = 1800.0,
        stop: Stop = _nothing_to_stop,
    ) -> None:
        self._state, self._git, self._events, self._projects = state, git, events, projects
        self.locks = RepositoryLocks()
        self.ports = PortRanges(store)
        self.preparations = Preparations(git, spawner, events, self.ports, approved, setup_seconds)
        self._creations = Creations(
            state, git, events, projects, self.locks, self.preparations, approved=approved, place=place
        )

        self.removals = Removals(state, git, self.locks, events, stop)
        self.statuses = Statuses(git)

    async def start(self) -> None:
        """Derive everything anew, and finish what an earlier daemon was at. A bad project does not stop the others."""
        await self.removals.resume()
        for project in await self._projects.all():
            try:
                await self.repair(project)
            except RookeryError as error:
                logger.error("the workspaces of %s cannot be told: %s", project.id, error.message)
        await self.ports.forget_gone()

    async def stop(self) -> None:
        await self._creations.close()
        await self.removals.close()
        await self.preparations.close()
        await self.statuses.close()

    async def repair(self, project: Project) -> None:
        """Bring a project's worktrees in order: the half-made, the moved, and those whose preparation was cut off."""
        for found in await recover(self._git, self._state, project, self.locks):
            if found.workspace.state == "preparing":
                self.preparations.begin(found.workspace, found.own)

    async def list(self, project: str | None = None) -> "list[Workspace]":
        """Those of one project, or of all; then one that cannot be told stands there as missing, with the reason."""
        if project is not None:
            found = await find_workspaces(self._git, self._state, await self._projects.get(project))
            return [one.workspace for one in found]
        lists = await asyncio.gather(*map(self._shown, await self._projects.all()))
        return [workspace for one in lists for workspace in one]

    async def _shown(self, project: Project) -> "list[Workspace]":
        try:
            return [one.workspace for one in await find_workspaces(self._git, self._state, project)]
        except RookeryError as error:
            return [Workspace(project, MAIN, Path(project.path), None, True, "missing", error.message)]

    async def get(self, project: str, name: str) -> Workspace:
        return (await self.find(project, name)).workspace

    async def find(self, project: str, name: str) -> Found:
        """A workspace with what git says of it and its own git folder."""
        for found in await find_workspaces(self._git, self._state, await self._projects.get(project)):
            if found.workspace.name == name:
                return found
        raise RookeryError(
            "workspace-not-found", f"there is no workspace {name} in {project}", "see what there is: rookery ws list"
        )

    async def at(self, path: Path) -> Workspace:
        """The workspace at exactly this path."""
        for one in await self.list():
            if path in (one.path, one.path.resolve()):
                return one
        raise RookeryError("workspace-not-found", f"{path} is not a workspace", "see what there is: rookery ws list")

    async def create(self, project: str, name: str, *, base: str | None = None, branch: str | None = None) -> Workspace:
        """Make a workspace; its preparation begins, and `prepared` waits for its end."""
        check_name(name)
        return await self._creations.create(await self._projects.get(project), name, base=base, branch=branch)

    async def prepared(self, workspace: Workspace) -> Workspace:
        """Wait until a workspace is made and prepared, or that has failed; answers how it is then."""
        found = await self.find(workspace.project.id, workspace.name)
        if found.workspace.state == "preparing" and not self.preparations.runs(found.own):
            # It is still being made, which takes its turn among the repository's writers.
            async with self.locks.writing(found.workspace.project.path):
                pass
        await self.preparations.ended(found.own)
        return await self.get(workspace.project.id, workspace.name)

    async def prepare(self, workspace: Workspace) -> None:
        """Begin a preparation anew, after what made it fail was mended."""
        found = await self.find(workspace.project.id, workspace.name)
        half_made = found.worktree.locked == INITIALIZING
        if found.workspace.main or half_made or found.workspace.state not in ("failed", "ready"):
            raise RookeryError("invalid-input", f"{workspace.name} cannot be prepared: it is {found.workspace.state}")
        metadata.write_preparing(found.own, metadata.Preparing("begun"))
        self.preparations.begin(found.workspace, found.own)

    async def status(self, project: str) -> dict[str, Status]:
        """Of every workspace of a project that has a folder, by name."""
        found = await find_workspaces(self._git, self._state, known := await self._projects.get(project))
        usual = await default_name(self._git, Path(known.path))
        bases = {one.workspace.path: metadata.read_kept(one.own).metadata.get(metadata.BASE) or usual for one in found}
        told = await self.statuses.of([one.workspace for one in found], bases)
        return {one.workspace.name: told[one.workspace.path] for one in found if one.workspace.path in told}

    async def delete(
        self, workspace: Workspace, *, force: bool = False, keep_branch: bool = False, wait: bool = False
    ) -> None:
        """Refuse, or begin to move it to the trash; with `wait` until it is there."""
        found = await self.find(workspace.project.id, workspace.name)
        await self.removals.delete(found, force=force, keep_branch=keep_branch, wait=wait)
        self.statuses.forget(workspace.path)

    async def restore(self, wanted: str, project: str | None = None, to: Path | None = None) -> Workspace:
        """Bring back from the trash what has this id, or the newest of that name."""
        restored = (await self.removals.restore(wanted, project, to)).trashed
        return await self.get(restored.project.id, restored.name)

    async def metadata(self, workspace: Workspace) -> dict[str, str]:
        """All of it; `base` is always there."""
        found = await self._there(workspace)
        kept = metadata.read_kept(found.own).metadata
        if metadata.BASE in kept:
            return kept
        return {metadata.BASE: await default_name(self._git, Path(workspace.project.path)), **kept}

    async def set_metadata(self, workspace: Workspace, key: str, value: str | None) -> None:
        """Set a key, or remove it with None."""
        found = await self._there(workspace)
        metadata.change(found.own, key, value)
        self._events.publish("workspace.changed", **found.workspace.as_dict(), metadata=await self.metadata(workspace))

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """What programs in a workspace are given, its ports among it."""
        found = await self._there(workspace)
        return await self.preparations.environment(found.workspace, found.own)

    async def _there(self, workspace: Workspace) -> Found:
        found = await self.find(workspace.project.id, workspace.name)
        if found.workspace.state == "missing":
            raise RookeryError(
                "workspace-not-found",
                f"{workspace.name} is missing: {found.workspace.error}",
                "bring its folder back, or remove it: rookery ws rm",
            )
        return found
