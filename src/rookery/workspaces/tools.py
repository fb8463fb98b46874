"""The one object that every face works with: MCP, REST, the command line and Socket.IO add nothing but shapes."""

import asyncio
from pathlib import Path

import msgspec

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import project_id
from rookery.workspaces.agent import Agents, AgentSession
from rookery.workspaces.bin import Bin
from rookery.workspaces.differences import Difference, difference
from rookery.workspaces.overview import Overview, Shown
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

_SEE = "see what there is: rookery ws list"


class Started(msgspec.Struct, frozen=True):
    """A deletion goes on after its answer; events tell how far it is."""

    started: bool = True


class WorkspaceTools:
    """`agents` tells and does what concerns the agents of workspaces."""

    def __init__(self, workspaces: Workspaces, projects: Projects, git: Git, events: Bus, agents: Agents) -> None:
        self.workspaces, self.projects, self.events, self.agents = workspaces, projects, events, agents
        self.overview = Overview(workspaces, projects, git, agents)
        self.bin = Bin(workspaces, projects)
        self._git = git

    # ---- which one

    async def get(self, project: str, name: str) -> Workspace:
        return await self.workspaces.get(project, name)

    async def at(self, directory: Path) -> Workspace:
        """The workspace at a folder, as it is now; the error tells whether its project is unknown."""
        found = await self.workspaces.finding.find_at(str(directory))
        if found is not None:
            return found.workspace
        await self._must_be_of_a_project(directory)
        raise RookeryError("workspace-not-found", f"{directory} is not a workspace", _SEE)

    async def around(self, folder: Path) -> Workspace:
        """The workspace that a folder lies in, the innermost if there are several."""
        real = await asyncio.to_thread(folder.resolve)
        for above in (real, *real.parents):
            if (found := await self.workspaces.finding.find_at(str(above))) is not None:
                return found.workspace
        await self._must_be_of_a_project(folder)
        raise RookeryError("workspace-not-found", f"{folder} is in no workspace", _SEE)

    async def _must_be_of_a_project(self, folder: Path) -> None:
        try:
            checkout = (await self._git.main_checkout(folder)).resolve()
        except RookeryError:
            return
        if project_id(checkout) not in [one.id for one in await self.projects.all()]:
            raise RookeryError(
                "project-not-found", f"{checkout} is not a project", f"add it: rookery project add {checkout}"
            )

    async def project(self, given: str | None) -> Project:
        """The one that is named, else the only one there is."""
        if given is not None:
            return await self.projects.get(given)
        every = await self.projects.all()
        if len(every) == 1:
            return every[0]
        if not every:
            raise RookeryError("project-not-found", "there is no project", "add one: rookery project add PATH")
        ids = ", ".join(one.id for one in every)
        raise RookeryError("invalid-input", "there are several projects", f"say which: {ids}")

    # ---- doing

    async def create(
        self,
        project: Project,
        name: str,
        *,
        base: str | None = None,
        branch: str | None = None,
        prompt: str | None = None,
        agent: bool = True,
        wait: bool = False,
    ) -> Workspace:
        """Make a workspace and have it prepared; with `wait` answers when that has ended, well or not.

        Then a `prompt` was sent too, or the error tells why it could not be; the workspace is there all the same.
        """
        if prompt is not None and not agent:
            raise RookeryError("invalid-input", "a prompt without an agent has nobody to read it", "leave it out")
        self.agents.check(prompt)
        made = await self.workspaces.create(project.id, name, base=base, branch=branch)
        if agent:
            await self.agents.begin(made, prompt)
        else:
            await self.agents.decline(made)
        if not wait:
            return made
        prepared = await self.workspaces.prepared(made)
        if prompt is not None:
            await self.agents.prompted(prepared)
        return prepared

    async def delete(
        self, workspace: Workspace, *, force: bool = False, keep_branch: bool = False, wait: bool = False
    ) -> Started:
        """Refuse, or begin, or with `wait` do it; what goes goes to the trash."""
        await self.workspaces.delete(workspace, force=force, keep_branch=keep_branch, wait=wait)
        return Started()

    async def prepare(self, workspace: Workspace, *, wait: bool = False) -> Workspace:
        """Prepare it anew; with `wait` answers when that has ended, well or not."""
        await self.workspaces.prepare(workspace)
        if wait:
            return await self.workspaces.prepared(workspace)
        return await self.get(workspace.project.id, workspace.name)

    async def diff(self, workspace: Workspace) -> Difference:
        """What was changed in a workspace since it began, committed or not."""
        base = (await self.workspaces.metadata(workspace))["base"]
        return await difference(self._git, workspace, base)

    async def status(self, workspace: Workspace) -> Shown:
        return await self.overview.status(workspace)

    async def port(self, workspace: Workspace) -> int | None:
        """Where its agent listens."""
        return await self.agents.port(workspace)

    async def session(self, workspace: Workspace) -> AgentSession | None:
        return await self.agents.session(workspace)

    async def restart_agent(self, workspace: Workspace) -> int:
        return await self.agents.restart(workspace)
