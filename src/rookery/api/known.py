"""What a request chose before, so that the next one of its kind need not choose again."""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.types import Scope

from rookery.api.choosing import HEADER
from rookery.system.clock import SYSTEM_CLOCK
from rookery.wire.endpoint import Endpoint
from rookery.wire.head import Head
from rookery.wire.lane import Lane
from rookery.workspaces.worktrees import named_git_folder

# How long a choice is taken for what it was without a look at the folder.
LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Known:
    """It holds while the folder is the same worktree, by its link to the repository.

    Where it was chosen by a name, which may be that of a branch, `head` tells when that is to be looked up again.
    """

    endpoint: Endpoint
    path: bytes
    link: Path | None
    mark: tuple[int, ...] | None
    head: Path | None = None
    branch: tuple[int, ...] | None = None
    looked: float = 0.0

    def holds(self) -> bool:
        """Looked at now and then only: a worktree that goes by our hands is forgotten at once."""
        if self.link is None or (now := SYSTEM_CLOCK.monotonic()) < self.looked + LOOK_SECONDS:
            return True
        if self.gone or (self.head is not None and mark_of(self.head) != self.branch):
            # Whoever asks next is to hear the same.
            return False
        self.looked = now
        return True

    @property
    def gone(self) -> bool:
        """Whether the worktree is, or another one has come to its place."""
        return self.link is not None and mark_of(self.link) != self.mark

    def keep(self) -> "Known":
        """Nobody else has its name: it is meant still."""
        self.branch = mark_of(self.head) if self.head is not None else None
        return self


def head_of(directory: Path | None) -> Path | None:
    """The file that git writes anew when another branch is checked out there."""
    own = named_git_folder(directory) if directory is not None else None
    return own / "HEAD" if own is not None else None


def chosen_by(scope: Scope) -> tuple[object, ...]:
    """All that chooses: path, query, token, port and header."""
    state = scope["state"]
    headers = Head.of(scope["headers"]).all(HEADER)
    return scope["raw_path"], scope["query_string"], state["principal"].workspace, state.get("place"), *headers


def lane_to(chosen: Mapping[tuple[object, ...], Known], scope: Scope) -> Lane | None:
    """For more requests like this one, as long as what they choose is the same."""
    key = chosen_by(scope)
    known = chosen.get(key)
    if known is None:
        return None
    return known.endpoint.lane(scope, known.path, lambda: chosen.get(key) is known and known.holds())


def mark_of(link: Path) -> tuple[int, ...] | None:
    """What tells one `.git` from another; a main checkout's is a folder, in which things come and go."""
    try:
        found = link.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_mtime_ns
