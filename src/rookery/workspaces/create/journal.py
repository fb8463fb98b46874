"""The journal of creations that are in progress.

An entry is written before anything is created, so that a later process knows which leftovers to finish or to undo.
"""

import logging
from pathlib import Path

import msgspec

from rookery.system.fs.atomic import UnreadableFile, read_json, remove_file, write_atomic
from rookery.workspaces.metadata import StartPoint
from rookery.workspaces.model import encode_folder_name, project_state_folder
from rookery.workspaces.projects import Project

logger = logging.getLogger("rookery.workspaces")


class CreationPlan(msgspec.Struct, frozen=True):
    """A workspace to create. `commit` is the start of a new branch, or the tip of an existing one.

    `trusted` says that programs of the repository's config, such as filters, may run for it.
    """

    name: str
    branch: str
    path: str
    base: str
    commit: str
    new_branch: bool
    trusted: bool = False
    family: str | None = None
    start: StartPoint | None = None


def write_creation(state: Path, project: Project, creation: CreationPlan) -> None:
    path = _journal_file(state, project, creation.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, msgspec.json.encode(creation))


def remove_creation(state: Path, project: Project, creation: CreationPlan) -> None:
    remove_file(_journal_file(state, project, creation.name))


def list_unfinished(state: Path, project: Project) -> list[CreationPlan]:
    """Return the plans of the creations that have not finished."""
    plans: list[CreationPlan] = []
    for path in sorted(_journal_file(state, project, "x").parent.glob("*.json")):
        try:
            plans.append(read_json(path, CreationPlan))
        except FileNotFoundError:
            continue
        except UnreadableFile as error:
            logger.error("%s cannot be read and is skipped: %s", path, error)
    return plans


def is_in_progress(state: Path, project: Project, name: str) -> bool:
    """Return whether a workspace of this name is being created or deleted."""
    folder = project_state_folder(state, project)
    file = f"{encode_folder_name(name)}.json"
    return any((folder / kind / file).exists() for kind in ("creating", "deleting"))


def list_deleting(state: Path, project: Project) -> set[str]:
    """Return the folder names of the workspaces whose deletion has started."""
    return {path.stem for path in (project_state_folder(state, project) / "deleting").glob("*.json")}


def _journal_file(state: Path, project: Project, name: str) -> Path:
    return project_state_folder(state, project) / "creating" / f"{encode_folder_name(name)}.json"
