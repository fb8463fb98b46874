"""The one service behind every face: MCP, REST, command line and Socket.IO see and change workspaces through it."""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.workspaces import metadata
from rookery.workspaces.asking import asked_by
from rookery.workspaces.base import default_name
from rookery.workspaces.creations import Creations
from rookery.workspaces.finding import Finding
from rookery.workspaces.listing import INITIALIZING
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.naming import check_name
from rookery.workspaces.opening import Opening
from rookery.workspaces.openness import Openness
from rookery.workspaces.ports import PortRanges
from rookery.workspaces.preparation import Preparations
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.recovery import recover
from rookery.workspaces.removal import Removals
from rookery.workspaces.setup import Approved, Asked, setup_of
from rookery.workspaces.status import Status, Statuses
from rookery.workspaces.tokens import WorkspaceTokens

logger = logging.getLogger("rookery.workspaces")


class Workspaces:
    """`place` is the template of `worktrees.path`; `approved` judges what a repository wants to run.

    `days` and `limit` (in bytes) say when the trash is emptied.
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
        days: float = 14.0,
        limit: int = 20 * 2**30,
    ) -> None:
        self._state, self._git, self._events, self._projects = state, git, events, projects
        self._approved = approved
        self.locks = RepositoryLocks()
        self.ports = PortRanges(store)
        self.tokens = WorkspaceTokens(store)
        self.openness = Openness(store, events)
        self.finding = Finding(git, state, projects, self.openness)
        self.preparations = Preparations(git, spawner, events, self.ports, approved, setup_seconds)
        self._opening = Opening(projects, self.finding, self.openness, self.tokens, self.preparations)
        self._creations = Creations(
            state,
            git,
            events,
            projects,
            self.locks,
            self.preparations,
            approved=approved,
            opening=self._opening,
            place=place,
        )
        self.removals = Removals(
            state, git, self.locks, events, self._opening.let_go, days=days, limit=limit, roots=self.finding.roots
        )
        self.statuses = Statuses(git)
        self._opening.forget = self.statuses.forget
        # Which one, and what belongs to it: there others do the work.
        self.list, self.get = self.finding.list, self.finding.get
        self.find, self.at = self.finding.find, self.finding.at
        self.open, self.close, self.token = self._opening.open, self._opening.close, self._opening.token
        self.bring_back = self._opening.bring_back

    async def start(self) -> None:
        """Derive everything anew, and finish what an earlier daemon was at. A bad project does not stop the others."""
        await self.removals.resume()
        await self.tokens.load()
        await self.openness.load()
        for project in await self._projects.all():
            try:
                await self.repair(project)
            except RookeryError as error:
                logger.error("the workspaces of %s cannot be told: %s", project.id, error.message)
        await self.ports.forget_gone()

    async def stop(self) -> None:
        await self.openness.vanishing.close()
        await self._creations.close()
        await self.removals.close()
        await self.preparations.close()
        await self.statuses.close()

    async def repair(self, project: Project) -> None:
        """Bring a project's worktrees in order: the half-made, the moved, and those whose preparation was cut off."""
        for found in await recover(self._git, self._state, project, self.locks):
            if found.workspace.state == "preparing":
                # Its maker may have been killed before it came to that.
                await self._opening.mark(found.workspace, found.own)
                self.preparations.begin(msgspec.structs.replace(found.workspace, open=True), found.own)

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

    # ---- what it may run

    async def asked(self) -> "list[Asked]":
        """All that the repositories would run."""
        return await asked_by(self._git, await self._projects.all(), self.finding.of)

    async def approved_now(self, place: str) -> None:
        """Prepare again what has failed only for want of an approval, in the project at `place`, if it is there now."""
        for project in await self._projects.all():
            for found in await self.finding.of(project) if project.path == place else []:
                asked = setup_of(found.workspace) if found.workspace.code == "needs-approval" else None
                if asked is not None and await self._approved(asked):
                    await self.prepare(found.workspace)

    # ---- what is told and kept of it

    async def status(self, project: str) -> dict[str, Status]:
        """Of every workspace of a project that has a folder, by name."""
        found = await self.finding.of(known := await self._projects.get(project))
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
        one = self.removals.trash.get(wanted, project)
        if one.project not in await self._projects.all():
            remedy = f"add it again first: rookery project add {one.project.path}"
            raise RookeryError("project-not-found", f"{one.project.path} is no project any more", remedy)
        restored = (await self.removals.restore(one.id, one.project.id, to)).trashed
        return await self.get(restored.project.id, restored.name)

    async def metadata(self, workspace: Workspace) -> dict[str, str]:
        """All of it; `base` is always there."""
        found = await self.finding.there(workspace)
        kept = metadata.read_kept(found.own).metadata
        if metadata.BASE in kept:
            return kept
        return {metadata.BASE: await default_name(self._git, Path(workspace.project.path)), **kept}

    async def set_metadata(self, workspace: Workspace, key: str, value: str | None) -> None:
        """Set a key, or remove it with None."""
        found = await self.finding.there(workspace)
        metadata.change(found.own, key, value)
        self._events.publish("workspace.changed", **found.workspace.as_dict(), metadata=await self.metadata(workspace))

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """What programs in a workspace are given, its ports among it."""
        found = await self.finding.there(workspace)
        return await self.preparations.environment(found.workspace, found.own)
