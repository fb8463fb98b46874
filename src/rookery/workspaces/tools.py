"""The one object that every face works with: MCP, REST, the command line and Socket.IO add nothing but shapes."""

import asyncio
from pathlib import Path

import msgspec

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import project_id
from rookery.workspaces.agent import Agents, AgentSession, NoAgents
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

    def __init__(
        self,
        state: Path,
        workspaces: Workspaces,
        projects: Projects,
        git: Git,
        events: Bus,
        agents: Agents | None = None,
    ) -> None:
        self.workspaces, self.projects, self.events = workspaces, projects, events
        self.agents: Agents = agents or NoAgents()
        self.overview = Overview(state, workspaces, projects, git, self.agents)
        self._git = git
        # The project of a folder that was asked about, to look there first.
        self._project_of: dict[Path, str] = {}

    # ---- which one

    async def get(self, project: str, name: str) -> Workspace:
        return await self.workspaces.get(project, name)

    async def at(self, directory: Path) -> Workspace:
        """The workspace at a folder, as it is now; the error tells whether its project is unknown."""
        if (known := self._project_of.get(directory)) is not None:
            try:
                if found := _at(directory, await self.workspaces.list(known)):
                    return found
            except RookeryError:
                del self._project_of[directory]
        if found := _at(directory, await self.workspaces.list()):
            self._project_of[directory] = found.project.id
            return found
        await self._must_be_of_a_project(directory)
        raise RookeryError("workspace-not-found", f"{directory} is not a workspace", _SEE)

    async def around(self, folder: Path) -> Workspace:
        """The workspace that a folder lies in, the innermost if there are several."""
        real = await asyncio.to_thread(folder.resolve)
        every = await self.workspaces.list()
        found = [one for one in every if real.is_relative_to(one.path) or real.is_relative_to(one.path.resolve())]
        if found:
            return max(found, key=lambda one: len(one.path.parts))
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
        """Make a workspace and have it prepared; with `wait` answers when that has ended, well or not."""
        if prompt is not None and not agent:
            raise RookeryError("invalid-input", "a prompt without an agent has nobody to read it", "leave it out")
        self.agents.check(prompt)
        made = await self.workspaces.create(project.id, name, base=base, branch=branch)
        if agent:
            await self.agents.begin(made, prompt)
        return await self.workspaces.prepared(made) if wait else made

    async def delete(
        self, workspace: Workspace, *, force: bool = False, keep_branch: bool = False, wait: bool = False
    ) -> Started:
        """Refuse, or begin, or with `wait` do it; what goes goes to the trash."""
        await self.workspaces.delete(workspace, force=force, keep_branch=keep_branch, wait=wait)
        return Started()

    async def diff(self, workspace: Workspace) -> Difference:
        """What was changed in a workspace since it began, committed or not."""
        base = (await self.workspaces.metadata(workspace))["base"]
        return await difference(self._git, workspace, base)

    async def status(self, workspace: Workspace) -> Shown:
        return await self.overview.status(workspace)

    async def port(self, workspace: Workspace) -> int | None:
        """Where its agent listens."""
        return (await self.agents.process(workspace)).port

    async def session(self, workspace: Workspace) -> AgentSession | None:
        return await self.agents.session(workspace)

    async def restart_agent(self, workspace: Workspace) -> int:
        return await self.agents.restart(workspace)


def _at(directory: Path, workspaces: list[Workspace]) -> Workspace | None:
    return next((one for one in workspaces if directory in (one.path, one.path.resolve())), None)
