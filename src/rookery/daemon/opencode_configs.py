"""What repositories bring along for OpenCode, as something to approve: it runs code when an agent starts."""

import asyncio
import logging
import os
from pathlib import Path

from rookery.agents.project_config import KIND, ProjectConfig, ReadJson, project_config
from rookery.guard.approvals import Approvals
from rookery.guard.subject import Subject
from rookery.system.errors import RookeryError
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")


class OpenCodeConfigs:
    """That of a main checkout is approved by adding its project; every other content is asked about."""

    def __init__(self, approvals: Approvals, projects: Projects, workspaces: Workspaces, read: ReadJson) -> None:
        self._approvals, self._projects, self._workspaces, self._read = approvals, projects, workspaces, read

    async def approve_with(self, project: Project) -> None:
        """Whoever adds a project knows what its main checkout holds."""
        subject = await self._subject(project, Path(project.path))
        if subject is None:
            return
        if subject.problem:
            logger.warning("%s: its OpenCode config has no effect: %s", project.id, subject.problem)
        elif await self._approvals.state(subject) != "approved":
            await self._approvals.approve(subject, subject.digest)

    async def waits(self, workspace: Workspace) -> str:
        """Why the config in a workspace has no effect; nothing if there is none, or it is approved."""
        subject = await self._subject(workspace.project, workspace.path)
        if subject is None or await self._approvals.state(subject) == "approved":
            return ""
        told = f" and cannot be approved: {subject.problem}" if subject.problem else ""
        return f"the repository's own OpenCode config is not approved, and has no effect{told}"

    async def waiting(self) -> list[Subject]:
        """All that there is in the workspaces of all projects; a project that cannot be read hides no other."""
        found: list[Subject | None] = []
        for project in await self._projects.all():
            try:
                every = await self._workspaces.finding.of(project)
            except RookeryError as error:
                logger.info("what %s has for OpenCode cannot be told: %s", project.id, error.message)
                continue
            there = [one.workspace for one in every if one.workspace.state != "missing"]
            # One after the other: many at once would take the threads that others need.
            found += [await self._subject(project, one.path) for one in there]
        return [one for one in found if one is not None]

    async def _subject(self, project: Project, root: Path) -> Subject | None:
        found = await asyncio.to_thread(project_config, root, self._read)
        return _subject(found, project, root) if found is not None else None


def _subject(found: ProjectConfig, project: Project, root: Path) -> Subject:
    place = os.path.realpath(project.path)
    return Subject(KIND, place, KIND, found.content, found.files, str(root), found.problem, str(root))
