"""Assign each workspace a port for its agent, the same one at every start."""

import os
import socket
from itertools import chain
from pathlib import Path
from zlib import crc32

from rookery.system.errors import RookeryError
from rookery.system.store import Store

# Below the ports that systems use for outgoing connections, and apart from the ports that workspaces get for their own
# programs.
_FIRST_PORT = 14_001
_LAST_PORT = 19_999


class AgentPorts:
    """The ports of agents, by the git folder of the workspace.

    Each store searches from another port on. Otherwise every Rookery on this machine would assign the same ports, and
    take a port to which an agent of another Rookery is about to return.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._first_port = _FIRST_PORT + crc32(os.fsencode(store.path)) % (_LAST_PORT - _FIRST_PORT + 1)

    async def get_or_assign(self, git_folder: Path) -> int:
        """Return the last port of the workspace, or else assign one that is free and belongs to no other workspace."""
        ports = await self._assigned_ports()
        return ports[str(git_folder)] if str(git_folder) in ports else await self._assign_new(git_folder)

    async def assign(self, git_folder: Path, port: int) -> None:
        """Store the port on which the agent listens. A workspace that had this port before gets a new one later."""
        await self._store.write(
            lambda db: db.execute("INSERT OR REPLACE INTO agent_ports VALUES (?, ?)", (str(git_folder), port))
        )

    async def release(self, git_folder: Path) -> None:
        await self._store.write(
            lambda db: db.execute("DELETE FROM agent_ports WHERE workspace = ?", (str(git_folder),))
        )

    async def find_free(self, count: int = 3) -> list[int]:
        """Return ports to fall back on, which are free and belong to no workspace."""
        assigned = set((await self._assigned_ports()).values())
        ports: list[int] = []
        for port in chain(range(self._first_port, _LAST_PORT + 1), range(_FIRST_PORT, self._first_port)):
            if len(ports) == count:
                break
            if port not in assigned and not is_port_taken(port):
                ports.append(port)
        return ports

    async def release_deleted(self) -> bool:
        """Release the ports of workspaces whose git folder no longer exists; return whether there were any."""
        removed = [Path(key) for key in await self._assigned_ports() if not Path(key).is_dir()]
        for own in removed:
            await self.release(own)
        return bool(removed)

    async def _assigned_ports(self) -> dict[str, int]:
        rows: list[tuple[str, int]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, port FROM agent_ports").fetchall()
        )
        return dict(rows)

    async def _assign_new(self, git_folder: Path) -> int:
        while True:
            ports = await self.find_free(1)
            if not ports and await self.release_deleted():
                continue
            if not ports:
                raise RookeryError(
                    "agent-unavailable", f"no port from {_FIRST_PORT} to {_LAST_PORT} is free", "close workspaces"
                )
            (port,) = ports
            # Another workspace may have taken it meanwhile; then search again.
            await self._store.write(
                lambda db, port=port: db.execute(
                    "INSERT OR IGNORE INTO agent_ports VALUES (?, ?)", (str(git_folder), port)
                )
            )
            if (await self._assigned_ports()).get(str(git_folder)) == port:
                return port


def is_port_taken(port: int) -> bool:
    """Return whether a process listens on the port. A port with connections only in TIME_WAIT is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
