"""The paths of Rookery's own files. Only `ensure_private_folder` creates anything."""

import os
import stat
from pathlib import Path

from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import UnreadableFile, read_json, set_aside, set_aside_unusable

# Folders and files that the daemon creates again or can do without. Secrets and the store are not listed: their readers
# refuse unexpected files. A folder is listed before its subfolders.
_FOLDERS = (
    *("logs", "opencode", "plugins", "projects", "sign-in", "trash"),
    *("logs/agents", "logs/agents/*", "opencode/listened", "opencode/releases"),
    *("plugins/*", "projects/*", "projects/*/*"),
)
_FILES = (
    *("daemon.json", "instances.json", "trash-age.json", "logs/daemon.jsonl", "logs/daemon.out"),
    *("logs/agents/*/*.log", "logs/agents/*/*.log.1", "opencode/install.lock", "opencode/listened/*"),
    *("opencode/rookery-mcp*.json", "opencode/versions.json", "plugins/*/*.log", "sign-in/*.json"),
)
# Files whose content only this process uses.
_JSON_FILES = ("daemon.json", "trash-age.json", "opencode/versions.json", "sign-in/*.json")
_ASIDE_SUFFIX = ".set-aside"


def state_folder() -> Path:
    """Return `$ROOKERY_HOME`, else the platform's state folder for `rookery`."""
    home = os.environ.get("ROOKERY_HOME")
    if home:
        return Path(home).expanduser().absolute()
    from platformdirs import user_state_path

    return user_state_path("rookery", appauthor=False)


def config_folder() -> Path:
    """Return `~/.config/rookery` on every platform, so that one path can be documented; honours XDG_CONFIG_HOME."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".config") / "rookery"


def runtime_file(state: Path) -> Path:
    return state / "daemon.json"


def lock_file(state: Path) -> Path:
    return state / "daemon.lock"


def token_file(state: Path) -> Path:
    return state / "token"


def audit_file(state: Path) -> Path:
    return state / "audit.db"


def audit_key_file(state: Path) -> Path:
    return state / "audit.key"


def log_file(state: Path) -> Path:
    return state / "logs" / "daemon.jsonl"


def store_file(state: Path) -> Path:
    return state / "rookery.db"


def set_aside_unusable_files(state: Path) -> list[str]:
    """Set aside unusable files at the paths of Rookery's files and folders, such as pipes and damaged JSON.

    Returns a message for each. The caller must hold the daemon's lock.
    """
    messages: list[str | None] = []
    for pattern in _FOLDERS:
        messages += [set_aside_unusable(path, folder=True) for path in _matches(state, pattern)]
    for pattern in _FILES:
        messages += [set_aside_unusable(path) for path in _matches(state, pattern)]
    for path in (path for pattern in _JSON_FILES for path in _matches(state, pattern)):
        try:
            read_json(path, dict[str, object])
        except FileNotFoundError:
            continue
        except UnreadableFile as error:
            messages.append(set_aside(path, str(error)))
    # A socket is expected here and gets replaced; a folder would stay.
    if (state / "rookery.sock").is_dir():
        messages.append(set_aside_unusable(state / "rookery.sock"))
    return [message for message in messages if message is not None]


def _matches(state: Path, pattern: str) -> list[Path]:
    """Return the paths that match a pattern, broken links included, but not files that were set aside earlier."""
    if "*" not in pattern:
        return [state / pattern]
    return [path for path in sorted(state.glob(pattern)) if _ASIDE_SUFFIX not in path.name]


def ensure_private_folder(path: Path, *, allow_link: bool = True) -> Path:
    """Create `path`, or make it private to this user.

    A folder that is open to others is refused if it holds files that are not Rookery's.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder_stat = path.stat() if allow_link else path.lstat()
        is_ours = not any(path.iterdir()) or lock_file(path).exists() or lock_file(path.parent).exists()
    except OSError as error:
        explained = explain_os_error(error, path)
        raise RookeryError(
            "state-unusable",
            f"cannot use {path} as a folder: {explained.message if explained else error.strerror or error}",
            "set ROOKERY_HOME to a writable folder",
        ) from error
    if folder_stat.st_uid != os.getuid():
        raise RookeryError(
            "state-unusable",
            f"{path} belongs to another user (uid {folder_stat.st_uid})",
            "set ROOKERY_HOME to a folder of your own",
        )
    if not stat.S_ISDIR(folder_stat.st_mode) or (folder_stat.st_mode & 0o077 and not is_ours):
        raise RookeryError(
            "state-unusable",
            f"{path} is accessible to other users and contains files that are not Rookery's",
            "set ROOKERY_HOME to a folder that is used for nothing else",
        )
    if folder_stat.st_mode & 0o077:
        path.chmod(folder_stat.st_mode & 0o700)
    return path
