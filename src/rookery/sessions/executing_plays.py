"""Tool calls that are to be played in children of a session, until the model's side has played them."""

import asyncio
import hmac
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from rookery.system.errors import RookeryError
from rookery.system.ids import new_id


class Play:
    """One call of `tool`, by whose `id` OpenCode writes it down; without a tool only the offered ones are told.

    `offered` gets the tools that the agent offers, when it asks what to do; `ran` is done when it tells the result.
    """

    def __init__(self, tool: str | None, arguments: Mapping[str, Any]) -> None:
        self.id = f"call_{new_id()}"
        self.tool, self.arguments = tool, arguments
        loop = asyncio.get_running_loop()
        self.offered: asyncio.Future[frozenset[str]] = loop.create_future()
        self.ran: asyncio.Future[None] = loop.create_future()

    def begin(self, offered: Iterable[str]) -> bool:
        """The agent asks what to do, perhaps once more; whether the tool is to be called."""
        names = frozenset(offered)
        if not self.offered.done():
            self.offered.set_result(names)
        return self.tool in names

    def end(self) -> None:
        if not self.ran.done():
            self.ran.set_result(None)


class Plays:
    """At most one in each child; a child without one has nothing to play, whatever it asks."""

    def __init__(self) -> None:
        self._by_child: dict[str, tuple[Play, bytes]] = {}

    def of(self, child: str | None, key: str | None) -> Play | None:
        """That of a child, for the agent that has the child: whoever else knows its id is told nothing."""
        found = self._by_child.get(child) if child is not None else None
        if found is None or not key or not hmac.compare_digest(key.encode(), found[1]):
            return None
        return found[0]

    @contextmanager
    def playing(self, child: str, play: Play, key: str) -> Generator[None]:
        """To be played until the end of the block, by the agent that carries this key."""
        if child in self._by_child:
            raise RookeryError("internal-error", f"{child} plays something else already")
        self._by_child[child] = play, key.encode()
        try:
            yield
        finally:
            del self._by_child[child]
