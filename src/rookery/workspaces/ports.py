"""Ten ports for each workspace, the same ones at every start."""

import socket
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.store import Store

COUNT = 10
# Above what is usually taken, and below what systems give to outgoing connections.
_FIRST, _LAST = 20_000, 32_760


class PortRanges:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, own: Path) -> range:
        """The range of the workspace with this git folder. A new one has only ports that are free now."""
        key = str(own)
        while True:
            rows: list[tuple[str, int]] = await self._store.read(
                lambda db: db.execute("SELECT workspace, first FROM port_ranges").fetchall()
            )
            given = dict(rows)
            if key in given:
                return range(given[key], given[key] + COUNT)
            taken = set(given.values())
            first = next((one for one in range(_FIRST, _LAST, COUNT) if one not in taken and _are_free(one)), None)
            if first is None and await self.forget_gone():
                continue
            if first is None:
                raise RookeryError("internal-error", "no ten ports in a row are free", "delete workspaces")
            # Someone else may have taken it meanwhile; then the loop looks again.
            await self._take(key, first)

    async def _take(self, key: str, first: int) -> None:
        await self._store.write(lambda db: db.execute("INSERT OR IGNORE INTO port_ranges VALUES (?, ?)", (key, first)))

    async def release(self, own: Path) -> None:
        await self._store.write(lambda db: db.execute("DELETE FROM port_ranges WHERE workspace = ?", (str(own),)))

    async def forget_gone(self) -> bool:
        """Give back the ranges of workspaces whose git folder is no more; whether there were any."""
        rows: list[tuple[str]] = await self._store.read(
            lambda db: db.execute("SELECT workspace FROM port_ranges").fetchall()
        )
        gone = [Path(key) for (key,) in rows if not Path(key).is_dir()]
        for own in gone:
            await self.release(own)
        return bool(gone)


def _are_free(first: int) -> bool:
    for port in range(first, first + COUNT):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
