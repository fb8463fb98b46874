"""Where a demo lives: a folder that is made for it and goes with it, and an environment that leads nowhere else."""

import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rookery.agents.install import Installed
from rookery.agents.release import ON_PATH
from rookery.system.errors import RookeryError
from rookery.system.files import move_aside
from rookery.system.lock import FileLock
from rookery.system.places import log_file
from rookery.system.processes import MARKER

PREFIX = "rookery-demo-"
_LOCK = "demo.lock"
# What the user has set for their own Rookery, OpenCode and git is not meant for this one.
_NOT_TAKEN = ("ROOKERY_", "CODEHYDRA_", "OPENCODE_", "GIT_")
_HOMES = frozenset({f"XDG_{kind}_HOME" for kind in ("CONFIG", "DATA", "STATE", "CACHE")})
_FIRST_PORT = 23_000
# Nothing is asked of the network: the scripted model is all there is.
_OFFLINE = dict.fromkeys(
    (f"OPENCODE_DISABLE_{what}" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")), "1"
)


class Place:
    """Held by a lock as long as its demo lives, so that another demo finds out which ones were left by a crash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.state = folder / "state"
        self.project = folder / "greeter"
        self.pictures = folder / "pictures"
        # OpenCode leaves things where temporary files go.
        self.temporary = folder / "tmp"
        self.logs = log_file(self.state).parent
        self._lock = FileLock(folder / _LOCK)

    def take(self) -> bool:
        return self._lock.acquire(f"pid {os.getpid()}")

    def environment(self, user: Mapping[str, str], version: str) -> dict[str, str]:
        """The user's without what is about Rookery and OpenCode, with a HOME and a state folder in here."""
        found = {
            name: value
            for name, value in user.items()
            if name == MARKER or not (name in _HOMES or name.startswith(_NOT_TAKEN))
        }
        # So that the script can run python3, whichever one runs us.
        search = os.pathsep.join(filter(None, [found.get("PATH", ""), str(Path(sys.executable).parent)]))
        ours = {"HOME": str(self.home), "ROOKERY_HOME": str(self.state), "TMPDIR": str(self.temporary), "PATH": search}
        # A Rookery that was installed for its user alone is found by HOME otherwise.
        ours |= {"PYTHONUSERBASE": site.getuserbase()} | _OFFLINE
        # Those that others like to have are left to them.
        ours["ROOKERY_ENDPOINTS_FIRST_PORT"] = str(_FIRST_PORT)
        # Paths that are shown are short.
        ours["ROOKERY_WORKTREES_PATH"] = str(self.folder / "workspaces" / "{name}")
        return found | ours | ({"ROOKERY_AGENTS_VERSION": version} if version == ON_PATH else {})

    def lend(self, installed: Installed, version: str) -> None:
        """Let the demo's agents run the OpenCode that the user has, without fetching another."""
        if version != ON_PATH:
            # <state>/opencode/releases/<release>/node_modules/<package>/bin/opencode
            release = installed.opencode.parents[3]
            link = self.state / "opencode" / "releases" / release.name
            link.parent.mkdir(mode=0o700, parents=True)
            link.symlink_to(release)

    def remove(self, *, keep_logs: bool = False) -> Path | None:
        """Remove all of it; its logs are moved out of it first if they are to be kept, and answered where to."""
        kept = self.folder.with_name(f"{self.folder.name}-logs") if keep_logs and self.logs.is_dir() else None
        if kept is not None:
            move_aside(self.logs, kept)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()
        return kept

    def keep(self) -> None:
        """Leave it as it is, for good: no later demo removes it."""
        (self.folder / _LOCK).unlink(missing_ok=True)
        self._lock.release()


def make_place() -> Place:
    for _ in range(3):
        place = Place(Path(tempfile.mkdtemp(prefix=PREFIX)).resolve())
        if place.take():
            for folder in (place.home, place.state, place.project, place.pictures, place.temporary):
                folder.mkdir(mode=0o700)
            return place
    raise RookeryError("state-unusable", f"no folder could be made in {tempfile.gettempdir()}", "set TMPDIR to another")


def left_over() -> Iterator[Place]:
    """Places of demos that were killed, taken: they are the caller's to remove."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        place = Place(folder)
        try:
            mine = folder.lstat().st_uid == os.getuid() and (folder / _LOCK).is_file()
        except OSError:
            continue
        if mine and place.take():
            yield place
