"""What repositories would run, for the user to approve: setup commands, and programs that git's config names."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.listing import Found
from rookery.workspaces.projects import Project
from rookery.workspaces.setup import Asked, setup_of

logger = logging.getLogger("rookery.workspaces")


async def git_config_of(git: Git, project: Project) -> Asked | None:
    """The programs that a repository's own config names, such as filters; nothing if it names none."""
    checkout = Path(project.path)
    named = await git.own_programs(checkout)
    if not named:
        return None
    return Asked("git-config", project.path, "git-config", named, project.path, str(checkout / ".git" / "config"))


async def asked_by(
    git: Git, projects: Sequence[Project], workspaces: Callable[[Project], Awaitable[list[Found]]]
) -> list[Asked]:
    """All that there is in these projects; one that cannot be read hides no other."""
    found: list[Asked | None] = []
    for project in projects:
        try:
            found.append(await git_config_of(git, project))
            found += [_setup(one) for one in await workspaces(project) if one.workspace.state != "missing"]
        except RookeryError as error:
            logger.info("what %s would run cannot be told: %s", project.id, error.message)
    return [one for one in found if one is not None]


def _setup(found: Found) -> Asked | None:
    try:
        return setup_of(found.workspace)
    except RookeryError:
        return None  # its preparation tells, and runs nothing
