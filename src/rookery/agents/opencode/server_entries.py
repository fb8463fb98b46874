"""The file with the MCP servers of a workspace, which Rookery's plugin reads in the workspace's agent.

The inline config of an agent is fixed at its start. The plugin sets what this file contains whenever OpenCode loads its
config, and connects what is new before each turn, so that an agent follows changes without a restart. The file contains
placeholders for the port and the token, no secrets.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rookery.agents.opencode.config import AgentServers, build_server_entries
from rookery.system.fs.atomic import write_secret
from rookery.workspaces.model import Workspace

_FOLDER = "servers"


class _WrittenFile:
    """What a file contains. `usable` counts for each usable server how often it has become so."""

    def __init__(self) -> None:
        self.data = b""
        self.usable: dict[str, int] = {}
        self.counts: Counter[str] = Counter()

    def update(self, servers: AgentServers, entries: Mapping[str, Any]) -> bool:
        """Set the content, and return whether it has changed."""
        # A server that has failed meanwhile is another one to the plugin, which has to connect to it again.
        self.counts.update(servers.usable - self.usable.keys())
        self.usable = {name: self.counts[name] for name in sorted(servers.usable)}
        content = {"mcp": entries, "usable": self.usable, "ready": sorted(servers.ready)}
        if servers.conversations:
            content["off"] = msgspec.to_builtins(servers.conversations)
        data = json.dumps(content, ensure_ascii=False).encode()
        changed, self.data = data != self.data, data
        return changed


class ServerEntryFiles:
    """The files of all workspaces, in the state folder."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "opencode" / _FOLDER
        self._written: dict[Path, _WrittenFile] = {}

    def clear(self) -> None:
        """Remove all files. Call this before any agent starts: each start writes its file again."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._written.clear()

    def path_for(self, workspace: Workspace) -> Path:
        digest = hashlib.sha256(os.fsencode(workspace.path)).hexdigest()[:16]
        return self._folder / f"{digest}.json"

    def write(self, workspace: Workspace, servers: AgentServers) -> None:
        """Write the file of a workspace, unless it has this content already."""
        path = self.path_for(workspace)
        written = self._written.setdefault(path, _WrittenFile())
        if written.update(servers, build_server_entries(workspace.project.id, workspace.name, servers)):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_secret(path, written.data)

    def remove(self, workspace: Workspace) -> None:
        """Remove the file of a workspace."""
        path = self.path_for(workspace)
        self._written.pop(path, None)
        path.unlink(missing_ok=True)
