"""A token for each workspace. It is valid for that workspace only, and as long as the workspace exists."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from rookery.system.ids import is_token, new_token
from rookery.system.log import REDACTOR
from rookery.system.store import Store
from rookery.workspaces.worktrees import read_creation_time

logger = logging.getLogger("rookery.workspaces")

# Called with a token and the git folder of the workspace that the token gives access to.
TokenCallback = Callable[[str, Path], None]


class WorkspaceTokens:
    """Creates, stores and revokes tokens.

    `on_valid` is called with each token that becomes valid, `on_revoked` with each that is revoked.
    """

    def __init__(self, store: Store) -> None:
        self.on_valid: TokenCallback = lambda token, own: None
        self.on_revoked: TokenCallback = lambda token, own: None
        self._store = store
        self._tokens: dict[Path, tuple[int, str]] = {}
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Load the stored tokens, and drop those of workspaces that no longer exist.

        A value without the form and the length of a token was written by another program, and is replaced by a new
        token.
        """
        rows: list[tuple[str, int, str]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, made, token FROM workspace_tokens").fetchall()
        )
        for workspace, created, token in rows:
            if is_token(token):
                self._add(Path(workspace), created, token)
            else:
                await self._delete(Path(workspace))
                problem = f"the store held no valid token for the workspace of {workspace}: a new one will be created"
                logger.error("%s", problem)
                self._store.problems.append(problem)
        for own in [path for path in self._tokens if not self.has_token(path)]:
            await self.revoke(own)

    async def get(self, own: Path) -> str:
        """Return the token of the workspace with this git folder, created when it is first needed."""
        async with self._changing:
            if not self.has_token(own):
                await self._revoke(own)
                created = read_creation_time(own)
                token = new_token()
                row = (str(own), created, token)
                await self._store.write(lambda db: db.execute("INSERT INTO workspace_tokens VALUES (?, ?, ?)", row))
                self._add(own, created, token)
            return self._tokens[own][1]

    def has_token(self, own: Path) -> bool:
        """Return whether a token exists for this workspace, and not only for an earlier one at the same path."""
        entry = self._tokens.get(own)
        return entry is not None and own.is_dir() and read_creation_time(own) == entry[0]

    async def revoke(self, own: Path) -> None:
        """Revoke the token of a workspace."""
        async with self._changing:
            await self._revoke(own)

    async def _revoke(self, own: Path) -> None:
        if (entry := self._tokens.pop(own, None)) is not None:
            self.on_revoked(entry[1], own)
            REDACTOR.remove(entry[1])
            await self._delete(own)

    async def _delete(self, own: Path) -> None:
        await self._store.write(lambda db: db.execute("DELETE FROM workspace_tokens WHERE workspace = ?", (str(own),)))

    def _add(self, own: Path, created: int, token: str) -> None:
        REDACTOR.add(token)
        self._tokens[own] = created, token
        self.on_valid(token, own)
