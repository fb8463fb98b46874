"""What repositories bring along that has to be approved: looked for in all workspaces, and approved with a project."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from rookery.guard.approvals import Approvals
from rookery.guard.subject import Subject
from rookery.system.errors import RookeryError
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

# What there is in a folder of a project.
Look = Callable[[Project, Path], Awaitable[Subject | None]]


async def approve_with(project: Project, brought: Iterable[Subject | None], approvals: Approvals) -> None:
    """Whoever adds a project knows what its main checkout holds."""
    for subject in brought:
        if subject is None:
            continue
        if subject.problem:
            logger.warning("%s: its %s is not approved: %s", project.id, subject.name, subject.problem)
        elif await approvals.state(subject) != "approved":
            await approvals.approve(subject, subject.digest)


async def in_all_workspaces(kind: str, look: Look, projects: Projects, workspaces: Workspaces) -> list[Subject]:
    """What is found in all workspaces of all projects; a project that cannot be read hides no other."""
    found: list[Subject | None] = []
    for project in await projects.all():
        try:
            every = await workspaces.finding.of(project)
        except RookeryError as error:
            logger.info("what %s has of %s cannot be told: %s", project.id, kind, error.message)
            continue
        there = [one.workspace for one in every if one.workspace.state != "missing"]
        # One after the other: many at once would take the threads and processes that others need.
        found += [await look(project, one.path) for one in there]
    return [one for one in found if one is not None]
