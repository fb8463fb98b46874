"""Git's list of worktrees, also while git creates one."""

from pathlib import Path
from typing import Any, cast

import pytest

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.worktrees import list_worktrees

pytestmark = pytest.mark.anyio

HALF_MADE = "git worktree failed in /app: failed to read .git/worktrees/green/commondir: Success"
LISTED = b"worktree /app\0HEAD 1234\0branch refs/heads/main\0\0"


class Saying:
    """A git that says these things, one after the other: it takes luck to meet a real one at such a moment."""

    def __init__(self, *says: bytes | str) -> None:
        self._says = iter(says)

    async def output(self, folder: Path, *args: str) -> bytes:
        said = next(self._says)
        if isinstance(said, str):
            raise RookeryError("git-failed", said)
        return said

    def as_git(self) -> Git:
        return cast(Git, cast(Any, self))


async def test_a_worktree_that_is_just_being_made_hides_none_of_the_others() -> None:
    (found,) = await list_worktrees(Saying(HALF_MADE, HALF_MADE, LISTED).as_git(), Path("/app"))
    assert (found.path, found.branch, found.main) == (Path("/app"), "main", True)


async def test_what_stays_broken_and_what_fails_otherwise_is_told() -> None:
    with pytest.raises(RookeryError, match="commondir"):
        await list_worktrees(Saying(*[HALF_MADE] * 10).as_git(), Path("/app"))
    with pytest.raises(RookeryError, match="not a git repository"):
        await list_worktrees(Saying("not a git repository", LISTED).as_git(), Path("/app"))
