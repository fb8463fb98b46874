"""A token for each workspace, which opens that workspace and no other. It goes with the workspace."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rookery.system.ids import new_token
from rookery.system.log import REDACTOR
from rookery.system.store import Store
from rookery.workspaces.worktrees import made_at

# Told of a token, and of the git folder of the workspace that it opens.
Told = Callable[[str, Path], None]


class WorkspaceTokens:
    """`valid` hears of each token that counts from now on, `void` of each that no longer does."""

    def __init__(self, store: Store) -> None:
        self.valid: Told = lambda token, own: None
        self.void: Told = lambda token, own: None
        self._store = store
        self._known: dict[Path, tuple[int, str]] = {}
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Take up what earlier daemons gave out; of workspaces that are gone, nothing is kept."""
        rows: list[tuple[str, int, str]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, made, token FROM workspace_tokens").fetchall()
        )
        for workspace, made, token in rows:
            self._take(Path(workspace), made, token)
        for own in [one for one in self._known if not self.counts(one)]:
            await self.forget(own)

    async def of(self, own: Path) -> str:
        """The token of the workspace with this git folder, made when it is first needed."""
        async with self._changing:
            if not self.counts(own):
                await self._forget(own)
                made, token = made_at(own), new_token()
                row = (str(own), made, token)
                await self._store.write(lambda db: db.execute("INSERT INTO workspace_tokens VALUES (?, ?, ?)", row))
                self._take(own, made, token)
            return self._known[own][1]

    def counts(self, own: Path) -> bool:
        """Whether there is a token of this workspace, and not only of an earlier one in its place."""
        known = self._known.get(own)
        return known is not None and own.is_dir() and made_at(own) == known[0]

    async def forget(self, own: Path) -> None:
        """Whoever still has the token of this workspace can do nothing with it any more."""
        async with self._changing:
            await self._forget(own)

    async def _forget(self, own: Path) -> None:
        if (known := self._known.pop(own, None)) is not None:
            self.void(known[1], own)
            REDACTOR.forget(known[1])
            await self._store.write(
                lambda db: db.execute("DELETE FROM workspace_tokens WHERE workspace = ?", (str(own),))
            )

    def _take(self, own: Path, made: int, token: str) -> None:
        REDACTOR.add(token)
        self._known[own] = made, token
        self.valid(token, own)
