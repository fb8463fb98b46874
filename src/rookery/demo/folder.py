"""The temporary folder of a demo, and an environment that keeps everything inside of it."""

import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from rookery.agents.opencode.install import Installation
from rookery.agents.opencode.release import ON_PATH
from rookery.system.confinement.kernel import find_support
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import rename_durably
from rookery.system.fs.lock import FileLock
from rookery.system.fs.paths import log_file
from rookery.system.process.table import MARKER

FOLDER_PREFIX = "rookery-demo-"
_LOCK = "demo.lock"
# Variables that the user has set for their own Rookery, OpenCode and git do not apply to the demo.
_DROPPED_PREFIXES = ("ROOKERY_", "CODEHYDRA_", "OPENCODE_", "GIT_")
_HOMES = frozenset({f"XDG_{kind}_HOME" for kind in ("CONFIG", "DATA", "STATE", "CACHE")})
_FIRST_PORT = 23_000
# OpenCode uses no network: it needs only the scripted model.
_OFFLINE = dict.fromkeys(
    (f"OPENCODE_DISABLE_{what}" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")), "1"
)


def find_sandbox_mode() -> Literal["off", "workspace"]:
    """Return the sandbox of the demo's agents: the kernel confines them where it can."""
    return "workspace" if find_support().abi > 0 else "off"


class DemoFolder:
    """The folder of one demo, locked while the demo runs, so that another demo recognises those that a crash left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.state = folder / "state"
        self.project = folder / "greeter"
        self.pictures = folder / "pictures"
        # OpenCode leaves files in TMPDIR.
        self.temporary = folder / "tmp"
        self.logs = log_file(self.state).parent
        self._lock = FileLock(folder / _LOCK)

    def try_lock(self) -> bool:
        """Lock the folder, and return whether that succeeded."""
        return self._lock.acquire(f"pid {os.getpid()}")

    def environment(self, user: Mapping[str, str], version: str) -> dict[str, str]:
        """Return the user's environment without variables of Rookery, OpenCode and git, with its folders in here."""
        inherited = {
            name: value
            for name, value in user.items()
            if name == MARKER or not (name in _HOMES or name.startswith(_DROPPED_PREFIXES))
        }
        # The script runs python3: add the folder of this interpreter.
        search = os.pathsep.join(filter(None, [inherited.get("PATH", ""), str(Path(sys.executable).parent)]))
        overrides = {
            "HOME": str(self.home),
            "ROOKERY_HOME": str(self.state),
            "TMPDIR": str(self.temporary),
            "PATH": search,
        }
        # A Rookery in the user's own site-packages would otherwise be looked for in the new HOME.
        overrides |= {"PYTHONUSERBASE": site.getuserbase()} | _OFFLINE
        overrides["ROOKERY_AGENTS_SANDBOX"] = find_sandbox_mode()
        # Leave ports that other programs commonly use to them.
        overrides["ROOKERY_ENDPOINTS_FIRST_PORT"] = str(_FIRST_PORT)
        # Keep the paths that are shown short.
        overrides["ROOKERY_WORKTREES_PATH"] = str(self.folder / "workspaces" / "{name}")
        return inherited | overrides | ({"ROOKERY_AGENTS_VERSION": version} if version == ON_PATH else {})

    def link_opencode(self, installed: Installation, version: str) -> None:
        """Link the user's OpenCode into the demo's state folder, so that its agents do not download another one."""
        if version != ON_PATH:
            # <state>/opencode/releases/<release>/node_modules/<package>/bin/opencode
            release = installed.opencode.parents[3]
            link = self.state / "opencode" / "releases" / release.name
            link.parent.mkdir(mode=0o700, parents=True)
            link.symlink_to(release)

    def remove(self, *, keep_logs: bool = False) -> Path | None:
        """Remove the folder. With `keep_logs`, move its logs out of it first, and return where they are."""
        saved_logs = self.folder.with_name(f"{self.folder.name}-logs") if keep_logs and self.logs.is_dir() else None
        if saved_logs is not None:
            rename_durably(self.logs, saved_logs)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()
        return saved_logs

    def keep(self) -> None:
        """Keep the folder for good: without its lock file, no later demo removes it."""
        (self.folder / _LOCK).unlink(missing_ok=True)
        self._lock.release()


def make_folder() -> DemoFolder:
    """Create and lock a folder for a new demo."""
    for _ in range(3):
        demo_folder = DemoFolder(Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)).resolve())
        if demo_folder.try_lock():
            for folder in (
                demo_folder.home,
                demo_folder.state,
                demo_folder.project,
                demo_folder.pictures,
                demo_folder.temporary,
            ):
                folder.mkdir(mode=0o700)
            return demo_folder
    raise RookeryError(
        "state-unusable", f"a folder cannot be created in {tempfile.gettempdir()}", "set TMPDIR to another folder"
    )


def lock_leftovers() -> Iterator[DemoFolder]:
    """Lock and yield the folders of demos that were killed. The caller removes them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        demo_folder = DemoFolder(folder)
        try:
            is_own = folder.lstat().st_uid == os.getuid() and (folder / _LOCK).is_file()
        except OSError:
            continue
        if is_own and demo_folder.try_lock():
            yield demo_folder
