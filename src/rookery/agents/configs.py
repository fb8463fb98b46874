"""The config files that agents are started with, and the user's own configs that are merged in."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.agents.injection import config_file
from rookery.agents.project_config import ReadJson
from rookery.system.errors import RookeryError
from rookery.system.files import read_plain, write_secret

logger = logging.getLogger("rookery.agents")
_LARGEST = 1_000_000


class UserConfig(msgspec.Struct, frozen=True):
    """What the user gives OpenCode by variables; `file` is where `of_file` stands."""

    content: Mapping[str, Any] = {}
    file: Path | None = None
    of_file: Mapping[str, Any] = {}


def user_config(user: Mapping[str, str], read: ReadJson) -> UserConfig:
    """Read the user's own OPENCODE_CONFIG and OPENCODE_CONFIG_CONTENT; an error says what is wrong with one."""
    content = _object(user.get("OPENCODE_CONFIG_CONTENT") or "{}", "OPENCODE_CONFIG_CONTENT", read)
    named = user.get("OPENCODE_CONFIG")
    if not named:
        return UserConfig(content)
    file = Path(named)
    if not file.is_absolute():
        # From an agent's folder it would name something of the repository's, which nobody has approved.
        logger.warning("OPENCODE_CONFIG is %r, which is not a whole path: it is left out", named)
        return UserConfig(content)
    try:
        text = read_plain(file, _LARGEST).decode()
    except FileNotFoundError:
        return UserConfig(content)  # as OpenCode takes it
    except (OSError, ValueError) as error:
        raise RookeryError("agent-unavailable", f"OPENCODE_CONFIG cannot be read: {error}", f"mend {file}") from error
    return UserConfig(content, file, _object(text, str(file), read))


def write_config(state: Path) -> Path:
    """Write the generated file anew; at every start of the gateway, before any agent."""
    path = _folder(state) / "rookery-mcp.json"
    write_secret(path, config_file())
    return path


def config_for(state: Path, user: UserConfig) -> Path:
    """The file for OPENCODE_CONFIG. With one of the user's own it is another one, which holds that as well as ours."""
    if user.file is None:
        return _folder(state) / "rookery-mcp.json"
    name = hashlib.sha256(str(user.file).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    path = _folder(state) / f"rookery-mcp-with-{name}.json"
    write_secret(path, config_file(user.of_file, user.file.parent))
    return path


def _folder(state: Path) -> Path:
    folder = state / "opencode"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _object(text: str, where: str, read: ReadJson) -> Mapping[str, Any]:
    try:
        found: Any = read(text)
    except ValueError as error:
        raise RookeryError("agent-unavailable", f"{where} is not JSON: {error}", "mend it, or unset it") from error
    if not isinstance(found, dict):
        raise RookeryError("agent-unavailable", f"{where} is not a JSON object", "mend it, or unset it")
    return cast("dict[str, Any]", found)
