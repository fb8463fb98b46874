"""Who wants to hear of which resources of one server."""

from collections.abc import Callable

from rookery.system.errors import RookeryError
from rookery.wire.client import Client
from rookery.wire.jsonrpc import WireError


class Watchers:
    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._by_watcher: dict[int, frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_watcher)

    def set(self, watcher: object, uris: frozenset[str]) -> bool:
        """Whether anything is another one now."""
        if not uris:
            return self._by_watcher.pop(id(watcher), None) is not None
        self._by_watcher[id(watcher)] = uris
        return True

    async def tell(self, client: Client) -> None:
        try:
            await client.watch(frozenset[str]().union(*self._by_watcher.values()))
        except (WireError, RookeryError) as error:
            self._warn(f"changes are not heard of: {error}")
