"""Plugins that a project brings along in `.rookery/plugins`, as something to approve: each runs inside the daemon."""

import asyncio
import errno
import logging
import os
from pathlib import Path, PurePath

from rookery.daemon import brought
from rookery.guard.approvals import Approvals
from rookery.guard.subject import Subject
from rookery.system.files import read_beneath
from rookery.workspaces.projects import Project, Projects

logger = logging.getLogger("rookery.daemon")

KIND = "plugin"
FOLDER = PurePath(".rookery", "plugins")
LARGEST = 1_000_000
MOST = 100


class PluginFiles:
    """Only those of the main checkout count, and those that it had when the project was added are approved by that.

    What agents write in their workspaces is not even looked at.
    """

    def __init__(self, approvals: Approvals, projects: Projects) -> None:
        self._approvals, self._projects = approvals, projects

    async def of(self, project: Project) -> list[Subject]:
        """As they are now: the text of each is what is approved, and what is run."""
        try:
            return await asyncio.to_thread(_look, Path(project.path))
        except OSError as error:
            logger.info("the plugins of %s cannot be told: %s", project.id, error)
            return []

    async def approved(self, subject: Subject) -> bool:
        return await self._approvals.state(subject) == "approved"

    async def approve_with(self, project: Project) -> None:
        await brought.approve_with(project, await self.of(project), self._approvals)

    async def waiting(self) -> list[Subject]:
        return [subject for project in await self._projects.all() for subject in await self.of(project)]


def _look(root: Path) -> list[Subject]:
    try:
        names = sorted(one.name for one in (root / FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    wanted = [name for name in names if name.endswith(".py") and not name.startswith((".", "_"))]
    if len(wanted) > MOST:
        logger.warning("%s holds %d plugins, of which only the first %d count", root / FOLDER, len(wanted), MOST)
    return [_subject(root, name) for name in wanted[:MOST] if name.isprintable()]


def _subject(root: Path, name: str) -> Subject:
    content, problem = "", ""
    try:
        content = read_beneath(root, FOLDER / name, LARGEST).decode()
    except UnicodeDecodeError:
        problem = "it is not in UTF-8"
    except OSError as error:
        link = error.errno == errno.ELOOP
        problem = "it lies behind a symbolic link" if link else f"it cannot be read: {error.strerror}"
    return Subject(KIND, os.path.realpath(root), name, content, source=str(root / FOLDER / name), problem=problem)
