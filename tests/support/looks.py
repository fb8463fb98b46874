"""Both ways to look at a path in a workspace, as one, so that a test can ask for the same verdict of both."""

import asyncio
import uuid

import pytest

from rookery.files.list import Listing, list_folder
from rookery.files.read import FileContent, read_content
from rookery.files.sandbox import SandboxRoot
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.process.spawn import Spawner

SECONDS = 30


def look(root: SandboxRoot, path: str) -> FileContent:
    """What `read_file` gives."""
    return asyncio.run(asyncio.wait_for(read_content(root, path), SECONDS))


def entries_of(root: SandboxRoot, path: str = ".", **options: int | bool | str | None) -> Listing:
    """What `list_directory` gives."""
    return asyncio.run(_listed(root, path, options))


async def _listed(root: SandboxRoot, path: str, options: dict[str, int | bool | str | None]) -> Listing:
    git = Git(Spawner(uuid.uuid4().hex))
    return await asyncio.wait_for(list_folder(root, git, path, **options), SECONDS)  # pyright: ignore[reportArgumentType]


def paths(listing: Listing) -> list[str]:
    return [entry.path for entry in listing.entries]


def refused(root: SandboxRoot, path: str) -> tuple[RookeryError, RookeryError]:
    """The errors of both tools."""
    with pytest.raises(RookeryError) as reading:
        look(root, path)
    with pytest.raises(RookeryError) as listing:
        entries_of(root, path)
    return reading.value, listing.value


def refusal(root: SandboxRoot, path: str) -> set[str]:
    """The codes with which both tools refuse a path."""
    return {error.code for error in refused(root, path)}
