"""A range of ten ports for each workspace, the same one after every start."""

import socket
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.store import Store

PORTS_PER_WORKSPACE = 10
# Above the ports that are usually in use, and below those that systems use for outgoing connections.
_FIRST = 20_000
_LAST = 32_760


class PortRanges:
    """Assigns port ranges to workspaces and stores them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, own: Path) -> range:
        """Return the range of the workspace with this git folder. All ports of a new range are free at this moment."""
        key = str(own)
        while True:
            rows: list[tuple[str, int]] = await self._store.read(
                lambda db: db.execute("SELECT workspace, first FROM port_ranges").fetchall()
            )
            assigned = dict(rows)
            if key in assigned:
                return range(assigned[key], assigned[key] + PORTS_PER_WORKSPACE)
            taken = set(assigned.values())
            first = next(
                (port for port in range(_FIRST, _LAST, PORTS_PER_WORKSPACE) if port not in taken and _are_free(port)),
                None,
            )
            if first is None and await self.release_orphaned():
                continue
            if first is None:
                raise RookeryError("internal-error", "no ten ports in a row are free", "delete workspaces")
            # Another caller may have taken the range meanwhile; then the loop tries again.
            await self._take(key, first)

    async def _take(self, key: str, first: int) -> None:
        await self._store.write(lambda db: db.execute("INSERT OR IGNORE INTO port_ranges VALUES (?, ?)", (key, first)))

    async def release(self, own: Path) -> None:
        await self._store.write(lambda db: db.execute("DELETE FROM port_ranges WHERE workspace = ?", (str(own),)))

    async def release_orphaned(self) -> bool:
        """Release the ranges of workspaces whose git folder is gone, and return whether there were any."""
        rows: list[tuple[str]] = await self._store.read(
            lambda db: db.execute("SELECT workspace FROM port_ranges").fetchall()
        )
        removed = [Path(key) for (key,) in rows if not Path(key).is_dir()]
        for own in removed:
            await self.release(own)
        return bool(removed)


def _are_free(first: int) -> bool:
    for port in range(first, first + PORTS_PER_WORKSPACE):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
