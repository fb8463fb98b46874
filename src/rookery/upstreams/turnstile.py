"""How many calls one server works on at a time, and how many may wait for their turn."""

import asyncio
from collections import Counter, deque

from rookery.system.errors import RookeryError


class Turnstile:
    """Lets `most` calls in at a time and `queue` wait; with `exclusive`, all that are in come from one caller."""

    def __init__(self, name: str, most: int, queue: int, *, exclusive: bool = False) -> None:
        self.name = name
        self.running = 0
        self._most = most
        self._queue = queue
        self.exclusive = exclusive
        self._inside: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enters(self, caller: str) -> bool:
        """Whether it is in without waiting; whoever is in must `leave`."""
        if self._waiting or self.running >= self._most or (self.exclusive and not self._fits(caller)):
            return False
        self.running += 1
        if self.exclusive:
            self._inside[caller] += 1
        return True

    async def enter(self, caller: str) -> None:
        """It is in when this returns."""
        if self.enters(caller):
            return
        if len(self._waiting) >= self._queue:
            raise RookeryError(
                "server-busy",
                f'MCP server "{self.name}" works on {self.running} calls and {len(self._waiting)} are waiting',
                "try again later, or raise `calls` or `queue` in its definition",
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((caller, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(caller)
            elif (caller, turn) in self._waiting:  # or somebody left meanwhile, and it was passed over
                self._waiting.remove((caller, turn))
                self._admit()
            raise

    def leave(self, caller: str) -> None:
        self.running -= 1
        if self.exclusive:
            self._inside[caller] -= 1
            if not self._inside[caller]:
                del self._inside[caller]
        if self._waiting:
            self._admit()

    def _fits(self, caller: str) -> bool:
        return self.running < self._most and (not self.exclusive or not self._inside or caller in self._inside)

    def _take(self, caller: str) -> None:
        self.running += 1
        if self.exclusive:
            self._inside[caller] += 1

    def _admit(self) -> None:
        """In the order they came; one that must wait keeps those behind it waiting."""
        while self._waiting and self._fits(self._waiting[0][0]):
            caller, turn = self._waiting.popleft()
            if not turn.done():
                self._take(caller)
                turn.set_result(None)
