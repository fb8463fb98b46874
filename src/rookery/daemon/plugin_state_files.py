"""Files in which OpenCode's plugins keep their state, read through the sandbox of their workspace."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rookery.daemon.files import FilesService
from rookery.files.reading import DATA_BYTES, read
from rookery.plugins.records import StateShown
from rookery.system.errors import RookeryError
from rookery.workspaces.record import Workspace, as_text
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

# No plugin can have this name.
TABLE = "state_files"
KNOWN = {
    "oh-my-opencode": ".omo/boulder.json",
    "sisyphus": ".sisyphus/boulder.json",
    "nexus": ".nexus/boulder/state.json",
}


class StateFiles:
    def __init__(self, files: FilesService, workspaces: Workspaces, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._files, self._workspaces = files, workspaces
        self._paths = dict(KNOWN)
        for name, path in settings.get(TABLE, {}).items():
            if isinstance(path, str):
                self._paths[name] = path
            else:
                logger.warning("plugins.%s.%s is no path, and is ignored", TABLE, name)

    async def all(self, scope: Path | None) -> list[StateShown]:
        """Those that are there, one for each file; of one that cannot be read why not."""
        found: list[StateShown] = []
        for workspace in await self._workspaces.finding.list():
            if scope in (None, workspace.path) and workspace.state not in ("missing", "deleting"):
                every = [await self._of(workspace, name, path) for name, path in self._paths.items()]
                found += [one for one in every if one is not None]
        return found

    async def _of(self, workspace: Workspace, name: str, path: str) -> StateShown | None:
        place = {"plugin": name, "workspace": as_text(workspace.path), "project": workspace.project.id}
        try:
            content = await read((await self._files.ground(workspace.path)).root, path, max_bytes=DATA_BYTES)
        except RookeryError as error:
            return None if error.code == "file-not-found" else StateShown(**place, error=error.message)
        if content.cut:
            return StateShown(**place, error=f"{path}: {content.cut}")
        try:
            return StateShown(**place, state=msgspec.json.decode(content.text))
        except (msgspec.DecodeError, RecursionError) as error:
            return StateShown(**place, error=f"{path} is no JSON: {error}")
