"""What is being made is written down first: whoever finds it later knows what is ours to finish or to take back."""

import logging
from pathlib import Path

import msgspec

from rookery.system.files import read_plain, remove, write_atomic
from rookery.workspaces.naming import folder_name, project_folder
from rookery.workspaces.projects import Project

logger = logging.getLogger("rookery.workspaces")

_LARGEST = 2**20


class Creation(msgspec.Struct, frozen=True):
    """A workspace to be made. `commit` is where its branch starts if it is a new one, or was if it is not.

    `trusted` tells that programs of the repository's config, such as filters, may run for it.
    """

    name: str
    branch: str
    path: str
    base: str
    commit: str
    new_branch: bool
    trusted: bool = False


def begin(state: Path, project: Project, creation: Creation) -> None:
    place = _place(state, project, creation.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place, msgspec.json.encode(creation))


def end(state: Path, project: Project, creation: Creation) -> None:
    remove(_place(state, project, creation.name))


def unfinished(state: Path, project: Project) -> list[Creation]:
    found: list[Creation] = []
    for place in sorted(_place(state, project, "x").parent.glob("*.json")):
        try:
            found.append(msgspec.json.decode(read_plain(place, _LARGEST), type=Creation))
        except (OSError, msgspec.MsgspecError) as error:
            logger.error("%s cannot be read, and is left alone: %s", place, error)
    return found


def being_deleted(state: Path, project: Project) -> set[str]:
    """The folder names of the workspaces whose deletion has begun."""
    return {place.stem for place in (project_folder(state, project) / "deleting").glob("*.json")}


def _place(state: Path, project: Project, name: str) -> Path:
    return project_folder(state, project) / "creating" / f"{folder_name(name)}.json"
