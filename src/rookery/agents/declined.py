"""The workspaces in which no agent is to run until somebody starts one, over restarts of the daemon too."""

from pathlib import Path

from rookery.system.store import Store
from rookery.workspaces.worktrees import made_at


class Declined:
    """Workspaces are known by their own git folder."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def has(self, own: Path) -> bool:
        found: tuple[int] | None = await self._store.read(
            lambda db: db.execute("SELECT made FROM stopped_agents WHERE workspace = ?", (str(own),)).fetchone()
        )
        return found is not None and found[0] == made_at(own)

    async def add(self, own: Path) -> None:
        row = (str(own), made_at(own))
        await self._store.write(lambda db: db.execute("INSERT OR REPLACE INTO stopped_agents VALUES (?, ?)", row))

    async def drop(self, own: Path) -> None:
        await self._store.write(lambda db: db.execute("DELETE FROM stopped_agents WHERE workspace = ?", (str(own),)))
