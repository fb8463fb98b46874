"""The port of each workspace's agent, the same one at every start."""

import os
import socket
from itertools import chain
from pathlib import Path
from zlib import crc32

from rookery.system.errors import RookeryError
from rookery.system.store import Store

# Below what systems give to outgoing connections, and away from the ports that workspaces get for their own programs.
_FIRST, _LAST = 14_001, 19_999


class AgentPorts:
    """Workspaces are known by their own git folder.

    Each store looks from another port on. Otherwise every Rookery of this machine would give out the same ones, and
    take one that another's agent is about to come back to.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begin = _FIRST + crc32(os.fsencode(store.path)) % (_LAST - _FIRST + 1)

    async def of(self, own: Path) -> int:
        """The port that the workspace had last, or else one that is free now and no other workspace's."""
        given = await self._given()
        return given[str(own)] if str(own) in given else await self._new(own)

    async def keep(self, own: Path, port: int) -> None:
        """Remember what the agent listens on now. If that was another workspace's, that one gets a new one later."""
        await self._store.write(
            lambda db: db.execute("INSERT OR REPLACE INTO agent_ports VALUES (?, ?)", (str(own), port))
        )

    async def release(self, own: Path) -> None:
        await self._store.write(lambda db: db.execute("DELETE FROM agent_ports WHERE workspace = ?", (str(own),)))

    async def others(self, count: int = 3) -> list[int]:
        """Ports to fall back on, free now and nobody's."""
        taken = set((await self._given()).values())
        found: list[int] = []
        for port in chain(range(self._begin, _LAST + 1), range(_FIRST, self._begin)):
            if len(found) == count:
                break
            if port not in taken and not is_taken(port):
                found.append(port)
        return found

    async def forget_gone(self) -> bool:
        """Give back the ports of workspaces whose git folder is no more; whether there were any."""
        gone = [Path(key) for key in await self._given() if not Path(key).is_dir()]
        for own in gone:
            await self.release(own)
        return bool(gone)

    async def _given(self) -> dict[str, int]:
        rows: list[tuple[str, int]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, port FROM agent_ports").fetchall()
        )
        return dict(rows)

    async def _new(self, own: Path) -> int:
        while True:
            found = await self.others(1)
            if not found and await self.forget_gone():
                continue
            if not found:
                raise RookeryError("agent-unavailable", f"no port from {_FIRST} to {_LAST} is free", "close workspaces")
            (port,) = found
            # Another workspace may have taken it meanwhile; then the loop looks again.
            await self._store.write(
                lambda db, port=port: db.execute("INSERT OR IGNORE INTO agent_ports VALUES (?, ?)", (str(own), port))
            )
            if (await self._given()).get(str(own)) == port:
                return port


def is_taken(port: int) -> bool:
    """Whether something listens there. A port whose last connections are only waiting to be forgotten is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
