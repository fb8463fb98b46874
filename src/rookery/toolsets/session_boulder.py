"""Boulder's state as resources, and word of its changes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rookery.plugins.boulder.service import Boulder
from rookery.toolsets.resources import Resource
from rookery.toolsets.toolset import Toolset
from rookery.wire.provider import Call
from rookery.workspaces.record import as_text

STATE = "boulder://state"
_ONE = f"{STATE}/"
_JSON = "application/json"


class BoulderResources:
    """For clients that see the sessions of `scope` only, or all."""

    def __init__(self, boulder: Boulder, scope: Path | None) -> None:
        self._boulder, self._scope = boulder, scope
        self._stop: Callable[[], None] | None = None

    def resources(self) -> list[Resource]:
        return [
            Resource(STATE, "Boulder State", "Current boulder enforcement state", self._read, _JSON),
            Resource(
                f"{_ONE}{{sessionId}}",
                "Boulder State of a Session",
                "Current boulder enforcement state of one session",
                self._read_one,
                _JSON,
                complete=self._complete,
            ),
        ]

    def watched(self, toolset: Toolset, uris: frozenset[str]) -> None:
        """Listens only while somebody wants to hear of it."""
        ours = any(uri.startswith(STATE) for uri in uris)
        if ours and self._stop is None:
            self._stop = self._boulder.listen(lambda session, path: self._changed(toolset, session, path))
        elif not ours and self._stop is not None:
            self._stop()
            self._stop = None

    def _changed(self, toolset: Toolset, session: str, path: str) -> None:
        if self._scope is not None and as_text(self._scope) != path:
            return
        for uri in toolset.watched & {STATE, f"{_ONE}{session}"}:
            toolset.changes.resource_updated(uri)

    async def _read(self, call: Call, uri: str) -> str:
        return msgspec.json.encode(await self._boulder.state(self._scope)).decode()

    async def _read_one(self, call: Call, uri: str) -> str:
        return msgspec.json.encode(await self._boulder.of(uri.removeprefix(_ONE), self._scope)).decode()

    async def _complete(self, call: Call, begun: str) -> Sequence[str]:
        state = await self._boulder.state(self._scope)
        return [one for one in state["sessions"] if one.startswith(begun)]
