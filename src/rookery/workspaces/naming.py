"""What a workspace may be called, where it goes, and what those are called that others have made."""

import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.workspaces.projects import Project

_NAME = re.compile(r"[a-zA-Z0-9][-_./a-zA-Z0-9]*\Z")
LONGEST = 100
_PLACEHOLDERS = ("project", "id", "name")


def check_name(name: str) -> None:
    """Refuse what cannot be a branch, a folder and a part of a URL alike."""
    if len(name) > LONGEST:
        raise _refused(name, f"is longer than {LONGEST} characters")
    if not _NAME.match(name):
        raise _refused(name, "must be letters, digits and any of - _ . /, and begin with a letter or digit")
    if ".." in name or "//" in name or name.endswith(("/", ".")) or "/." in name or "./" in name:
        raise _refused(name, 'has an empty part, or a "." where git allows none')
    if any(part.endswith(".lock") for part in name.split("/")):
        raise _refused(name, 'ends in ".lock", which git keeps for itself')
    if name == "HEAD" or any(len(part) > 80 for part in name.split("/")):
        raise _refused(name, "is a name that git or the file system does not take")


def _refused(name: str, why: str) -> RookeryError:
    shown = name if len(name) <= LONGEST else name[:LONGEST] + "…"
    return RookeryError("invalid-input", f"{shown!r} cannot be a workspace's name: it {why}", "choose another name")


def folder_name(name: str) -> str:
    """One folder for one name; "%" is in no name."""
    return name.replace("/", "%")


def place_of(template: str, state: Path, project: Project, name: str) -> Path:
    """Where a new workspace goes. A template's relative path counts from the project's main checkout."""
    if not template:
        return project_folder(state, project) / "workspaces" / folder_name(name)
    values = {"project": project.name, "id": project.id, "name": folder_name(name)}
    if "{name}" not in template:
        raise RookeryError("invalid-input", f"worktrees.path has no {{name}}: {template}", "add {name} to it")
    filled = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), template)
    if left := re.search(r"\{\w+\}", filled):
        known = ", ".join(f"{{{word}}}" for word in _PLACEHOLDERS)
        raise RookeryError("invalid-input", f"worktrees.path does not know {left[0]}", f"use {known}")
    return Path(project.path) / Path(filled).expanduser()


def project_folder(state: Path, project: Project) -> Path:
    """Where Rookery keeps what it has of a project."""
    return state / "projects" / project.id


def unique(wishes: Sequence[Sequence[str]], taken: set[str]) -> list[str]:
    """For each list of names, best first, the first that is free; the last one with a number if none is."""
    found: list[str] = []
    for wished in wishes:
        numbered = (f"{wished[-1]}-{number}" for number in count(2))
        name = next(name for name in chain(wished, numbered) if name not in taken)
        taken.add(name)
        found.append(name)
    return found
