"""The sources that every workspace has; whoever knows of agents, containers or failures adds to them."""

from functools import partial
from pathlib import Path

from rookery.files.context.gathering import Gatherer
from rookery.files.context.git import git_sections
from rookery.files.context.matters import ReadFile, file_sections
from rookery.files.context.tasks import task_sections
from rookery.files.context.tree import tree_sections
from rookery.files.just import Just
from rookery.system.git import Git


def gatherers_of(root: Path, git: Git, just: Just, read: ReadFile, *, seconds: float = 5.0) -> list[Gatherer]:
    return [
        Gatherer("git", partial(git_sections, git, root), seconds),
        Gatherer("files", partial(file_sections, git, root, read), seconds),
        Gatherer("tree", partial(tree_sections, git, root), seconds),
        Gatherer("tasks", partial(task_sections, just, root), seconds),
    ]
