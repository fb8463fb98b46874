"""Tells that something has changed: once for all that changes in one turn of the loop."""

import asyncio
from collections.abc import Callable

from rookery.sessions.records import Change

Told = Callable[[frozenset[Change]], None]


class Changes:
    """For use in the loop's thread."""

    def __init__(self) -> None:
        self._listeners: dict[object, Told] = {}
        self._marked: set[Change] = set()

    def listen(self, told: Told) -> Callable[[], None]:
        """Answers how to end that."""
        key = object()
        self._listeners[key] = told
        return lambda: self._listeners.pop(key, None) and None

    def mark(self, change: Change) -> None:
        if not self._marked:
            asyncio.get_running_loop().call_soon(self._tell)
        self._marked.add(change)

    def _tell(self) -> None:
        marked, self._marked = frozenset(self._marked), set()
        for told in list(self._listeners.values()):
            told(marked)
