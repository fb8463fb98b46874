"""All running servers: one per definition, directory and session that it is shared in, whoever asks for it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rookery.system.tasks import TaskSet
from rookery.upstreams.connector import Connector
from rookery.upstreams.definition import Definition
from rookery.upstreams.server import Server
from rookery.upstreams.signin.grants import Subject

logger = logging.getLogger("rookery.upstreams")

# What tells two servers apart: what runs with which credentials, in which directory, for which session.
Key = tuple[str, str, Path, str | None]


@dataclass
class _Held:
    server: Server
    users: int = 0


@dataclass
class Pool:
    connector: Connector
    told: Callable[[Server], None]
    _held: dict[Key, _Held] = field(default_factory=dict[Key, _Held])

    def __post_init__(self) -> None:
        self._tasks = TaskSet("pool")
        self.connector.signins.changed = self._signed

    def __len__(self) -> int:
        return len(self._held)

    def take(self, definition: Definition, directory: Path, session: str | None, checkout: Path | None) -> Server:
        """The one server for these; whoever takes it gives it back. `checkout` is where it was defined."""
        key = _key(definition, directory, session)
        if key not in self._held:
            self._held[key] = _Held(Server(definition, directory, self.connector, self.told, checkout))
        held = self._held[key]
        held.users += 1
        return held.server

    def find(self, definition: Definition, directory: Path, session: str | None) -> Server | None:
        """For whoever only looks: nothing is made or taken."""
        held = self._held.get(_key(definition, directory, session))
        return held.server if held is not None else None

    def give_back(self, server: Server) -> asyncio.Task[None] | None:
        """What nobody uses any more is stopped, which the task tells the end of."""
        key = next(key for key, held in self._held.items() if held.server is server)
        self._held[key].users -= 1
        if not self._held[key].users:
            del self._held[key]
            return self._tasks.start(self._close(server), f"close {server.name}")
        return None

    async def close(self) -> None:
        """Close all, side by side; what fails to close is told and keeps no other from being closed."""
        for held in self._held.values():
            self._tasks.start(self._close(held.server), f"close {held.server.name}")
        self._held.clear()
        await self._tasks.finish()
        await self.connector.signins.close()

    def _signed(self, subject: Subject, stays: bool) -> None:
        for held in self._held.values():
            one = held.server.definition
            if (one.name, one.url) == subject:
                self._tasks.start(held.server.signed(stays), f"signed {one.name}")

    async def _close(self, server: Server) -> None:
        try:
            await server.close()
        except Exception:
            logger.exception("%s was not closed properly", server.name)


def _key(definition: Definition, directory: Path, session: str | None) -> Key:
    return definition.name, definition.digest, directory, session
