"""The projects of the daemon: git repositories that Rookery knows."""

import asyncio
import os
from pathlib import Path

import msgspec

from rookery.sdk.operations import Operations
from rookery.system.errors import RookeryError


class Project(msgspec.Struct, frozen=True):
    """A git repository; `path` is its main checkout."""

    id: str
    name: str
    path: Path


class Projects:
    """Lists, adds and removes projects."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations.project

    async def list(self) -> list[Project]:
        return [Project(record.id, record.name, Path(record.path)) for record in await self._operations.list()]

    async def get(self, project: str) -> Project:
        """Return a project by its id, or by its name if only one project has it."""
        projects = await self.list()
        matches = [project_record for project_record in projects if project_record.id == project] or [
            project_record for project_record in projects if project_record.name == project
        ]
        if not matches:
            raise RookeryError("project-not-found", f"there is no project {project}", "add it: projects.add(path)")
        if len(matches) > 1:
            ids = ", ".join(match.id for match in matches)
            raise RookeryError("invalid-input", f"several projects have the name {project}", f"use an id: {ids}")
        return matches[0]

    async def add(self, path: str | os.PathLike[str]) -> Project:
        """Register the repository that contains a folder. A known one stays as it is."""
        folder = await asyncio.to_thread(Path(path).absolute)
        record = await self._operations.add(str(folder))
        return Project(record.id, record.name, Path(record.path))

    async def remove(self, project: Project | str) -> None:
        """Forget a project; its workspaces and their files stay on the disk."""
        await self._operations.remove(project.id if isinstance(project, Project) else (await self.get(project)).id)
