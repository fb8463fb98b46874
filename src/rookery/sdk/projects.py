"""The git repositories that Rookery knows."""

import asyncio
import os
from pathlib import Path

import msgspec

from rookery.face.line import Line, segment
from rookery.system.errors import RookeryError


class Project(msgspec.Struct, frozen=True):
    """A git repository; `path` is its main checkout."""

    id: str
    name: str
    path: Path


class Projects:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list(self) -> list[Project]:
        return await self._line.ask("GET", "/api/projects", list[Project])

    async def get(self, project: str) -> Project:
        """By its id, or by its name where only one has it."""
        every = await self.list()
        found = [one for one in every if one.id == project] or [one for one in every if one.name == project]
        if not found:
            raise RookeryError("project-not-found", f"there is no project {project}", "add it: projects.add(path)")
        if len(found) > 1:
            ids = ", ".join(one.id for one in found)
            raise RookeryError("invalid-input", f"{project} may be several projects", f"say which: {ids}")
        return found[0]

    async def add(self, path: str | os.PathLike[str]) -> Project:
        """Register the repository that a folder lies in; one that is known already stays as it is."""
        folder = await asyncio.to_thread(Path(path).absolute)
        return await self._line.ask("POST", "/api/projects", Project, {"path": str(folder)})

    async def remove(self, project: Project | str) -> None:
        """Forget it; its workspaces and their files stay on the disk."""
        id_ = project.id if isinstance(project, Project) else (await self.get(project)).id
        await self._line.ask("DELETE", f"/api/projects/{segment(id_)}", msgspec.Raw)
