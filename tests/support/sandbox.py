"""A workspace full of traps, and the files around it."""

import asyncio
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from rookery.files.list import Listing, list_folder
from rookery.files.read import FileContent, read_content
from rookery.files.sandbox import SandboxRoot
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.process.spawn import Spawner

SECRET = b"from outside"
SECRET_NAME = "outside-name"


@dataclass(frozen=True)
class Tree:
    """`root` is a checkout, `outside` a folder beside it to which no tool has access."""

    root: Path
    outside: Path

    def write(self, name: str, data: bytes = b"inside\n") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def link(self, name: str, target: str | Path) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).symlink_to(target)


def make_tree(folder: Path) -> Tree:
    root, outside = folder / "proj", folder / "proj-evil"
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=30)
    (outside / SECRET_NAME).mkdir(parents=True)
    (outside / "secret").write_bytes(SECRET)
    return Tree(root, outside)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


SECONDS = 30


def look(root: SandboxRoot, path: str) -> FileContent:
    """Return the result of `read_file`."""
    return asyncio.run(asyncio.wait_for(read_content(root, path), SECONDS))


def entries_of(root: SandboxRoot, path: str = ".", **options: int | bool | str | None) -> Listing:
    """Return the result of `list_directory`."""
    return asyncio.run(_listed(root, path, options))


async def _listed(root: SandboxRoot, path: str, options: dict[str, int | bool | str | None]) -> Listing:
    git = Git(Spawner(uuid.uuid4().hex))
    return await asyncio.wait_for(list_folder(root, git, path, **options), SECONDS)  # pyright: ignore[reportArgumentType]


def paths(listing: Listing) -> list[str]:
    return [entry.path for entry in listing.entries]


def refused(root: SandboxRoot, path: str) -> tuple[RookeryError, RookeryError]:
    """Return the errors of both tools."""
    with pytest.raises(RookeryError) as reading:
        look(root, path)
    with pytest.raises(RookeryError) as listing:
        entries_of(root, path)
    return reading.value, listing.value


def refusal(root: SandboxRoot, path: str) -> set[str]:
    """Return the codes with which both tools refuse a path."""
    return {error.code for error in refused(root, path)}
