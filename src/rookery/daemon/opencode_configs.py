"""What repositories bring along for OpenCode, as something to approve: it runs code when an agent starts."""

import asyncio
import os
from pathlib import Path

from rookery.agents.project_config import KIND, ProjectConfig, ReadJson, project_config
from rookery.daemon import brought
from rookery.guard.approvals import Approvals
from rookery.guard.subject import Subject
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces


class OpenCodeConfigs:
    """That of a main checkout is approved by adding its project; every other content is asked about."""

    def __init__(self, approvals: Approvals, projects: Projects, workspaces: Workspaces, read: ReadJson) -> None:
        self._approvals, self._projects, self._workspaces, self._read = approvals, projects, workspaces, read

    async def approve_with(self, project: Project) -> None:
        await brought.approve_with(project, [await self._subject(project, Path(project.path))], self._approvals)

    async def waits(self, workspace: Workspace) -> str:
        """Why the config in a workspace has no effect; nothing if there is none, or it is approved."""
        subject = await self._subject(workspace.project, workspace.path)
        if subject is None or await self._approvals.state(subject) == "approved":
            return ""
        told = f" and cannot be approved: {subject.problem}" if subject.problem else ""
        return f"the repository's own OpenCode config is not approved, and has no effect{told}"

    async def waiting(self) -> list[Subject]:
        return await brought.in_all_workspaces(KIND, self._subject, self._projects, self._workspaces)

    async def _subject(self, project: Project, root: Path) -> Subject | None:
        found = await asyncio.to_thread(project_config, root, self._read)
        return _subject(found, project, root) if found is not None else None


def _subject(found: ProjectConfig, project: Project, root: Path) -> Subject:
    place = os.path.realpath(project.path)
    return Subject(KIND, place, KIND, found.content, found.files, str(root), found.problem, str(root))
