"""The project's own setup command: what a repository names to be run in each new workspace, once that is approved."""

import asyncio
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec

from rookery.system import environment
from rookery.system.errors import RookeryError
from rookery.system.files import read_beneath, remove
from rookery.system.spawn import Spawner
from rookery.workspaces.metadata import house
from rookery.workspaces.record import Workspace

_FILE = PurePath(".rookery/config.toml")
_LARGEST = 256 * 1024
_LONGEST = 16 * 1024


class Asked(msgspec.Struct, frozen=True):
    """Something of a repository that would run. `place` is the main checkout, `folder` where it would run."""

    kind: str
    place: str
    name: str
    content: str
    folder: str
    source: str


# Whether the user has approved this very content.
Approved = Callable[[Asked], Awaitable[bool]]


def setup_command(workspace: Path) -> str:
    """What `[workspace] setup` says in the workspace's own `.rookery/config.toml`; nothing if it says nothing."""
    try:
        found: dict[str, Any] = tomllib.loads(read_beneath(workspace, _FILE, _LARGEST).decode())
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise RookeryError("invalid-input", f"{workspace / _FILE} cannot be read: {error}", "mend it") from error
    section: object = found.get("workspace", {})
    command: object = cast(dict[str, object], section).get("setup", "") if isinstance(section, dict) else ""
    if not isinstance(command, str) or len(command) > _LONGEST or "\0" in command:
        raise RookeryError("invalid-input", f"workspace.setup in {workspace / _FILE} is not a command", "mend it")
    return command.strip()


def setup_of(workspace: Workspace) -> Asked | None:
    """The setup command of a workspace as something to approve; nothing if it has none."""
    command = setup_command(workspace.path)
    if not command:
        return None
    return Asked(
        kind="setup",
        place=workspace.project.path,
        name="setup",
        content=command,
        folder=str(workspace.path),
        source=str(workspace.path / _FILE),
    )


def log_file(own: Path) -> Path:
    """What the setup command printed, last time; it goes and comes back with the workspace."""
    return house(own) / "setup.log"


async def run_setup(
    spawner: Spawner, command: str, workspace: Path, own: Path, env: Mapping[str, str], seconds: float
) -> None:
    """Run the command to its end, with whatever it has started; an error tells why it failed and where its log is."""
    log = log_file(own)
    remove(log)
    child = await spawner.start(
        ["/bin/sh", "-c", command],
        name="setup",
        cwd=workspace,
        env=environment.allowed(env),
        stdout=log,
        stderr=log,
    )
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        raise RookeryError(
            "timeout", f"the setup command did not end within {seconds:g} s", f"see its log: {log}"
        ) from None
    finally:
        await child.stop()
    if code != 0:
        raise RookeryError("setup-failed", f"the setup command ended with {code}", f"see its log: {log}")
