"""Where Rookery keeps its files. Nothing here creates anything except `ensure_private_folder`."""

import os
import stat
from pathlib import Path

from rookery.system.errors import RookeryError


def state_folder() -> Path:
    """`$ROOKERY_HOME`, else the platform's state folder for `rookery`."""
    home = os.environ.get("ROOKERY_HOME")
    if home:
        return Path(home).expanduser().absolute()
    from platformdirs import user_state_path

    return user_state_path("rookery", appauthor=False)


def config_folder() -> Path:
    """`~/.config/rookery` on every platform, so that one path can be documented."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".config") / "rookery"


def runtime_file(state: Path) -> Path:
    return state / "daemon.json"


def lock_file(state: Path) -> Path:
    return state / "daemon.lock"


def token_file(state: Path) -> Path:
    return state / "token"


def log_file(state: Path) -> Path:
    return state / "logs" / "daemon.jsonl"


def store_file(state: Path) -> Path:
    return state / "rookery.db"


def ensure_private_folder(path: Path, *, may_be_link: bool = True) -> Path:
    """Make `path` a folder of this user's alone. One that holds something else already is not closed to others."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat() if may_be_link else path.lstat()
        ours = not any(path.iterdir()) or lock_file(path).exists() or lock_file(path.parent).exists()
    except (FileExistsError, NotADirectoryError, PermissionError, OSError) as error:
        raise RookeryError(
            "state-unusable",
            f"cannot use {path} as a folder: {error.strerror or error}",
            "set ROOKERY_HOME to a folder that you may write to",
        ) from error
    if found.st_uid != os.getuid():
        raise RookeryError(
            "state-unusable",
            f"{path} belongs to another user (uid {found.st_uid})",
            "set ROOKERY_HOME to a folder of your own",
        )
    if not stat.S_ISDIR(found.st_mode) or (found.st_mode & 0o077 and not ours):
        raise RookeryError(
            "state-unusable",
            f"{path} is open to others and holds other things",
            "set ROOKERY_HOME to a folder of its own",
        )
    if found.st_mode & 0o077:
        path.chmod(found.st_mode & 0o700)
    return path
