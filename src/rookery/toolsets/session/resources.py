"""Sessions, their messages and boulder's state as resources, with change notifications."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rookery.plugins.boulder.service import Boulder
from rookery.sessions.records import SessionChange
from rookery.sessions.service import Sessions
from rookery.toolsets.resources import Resource
from rookery.toolsets.session.calls import SessionCalls
from rookery.toolsets.toolset import Toolset
from rookery.wire.protocol.provider import Call
from rookery.workspaces.model import format_path

_JSON = "application/json"

STATE_URI = "boulder://state"
_SESSION_PREFIX = f"{STATE_URI}/"
_SCHEMES = ("session://", "messages://")


def session_resources(calls: SessionCalls) -> list[Resource]:
    return [
        Resource(
            "session://{sessionId}",
            "Session State",
            "Current state of an OpenCode session",
            calls.read_session,
            _JSON,
            complete=calls.complete_id,
        ),
        Resource(
            "messages://{sessionId}",
            "Session Messages",
            "All messages in a session; a note after them says when older ones are left out",
            calls.read_messages,
            _JSON,
            complete=calls.complete_id,
        ),
        Resource(
            "messages://{sessionId}{?before,limit}",
            "Older Session Messages",
            "The messages of a session that were made before the one with the id `before`: 50, or `limit`",
            calls.read_messages,
            _JSON,
            complete=calls.complete_id,
        ),
    ]


class BoulderResources:
    """Boulder's state as resources, for clients that may only access the sessions of `scope`, or all."""

    def __init__(self, boulder: Boulder, scope: Path | None) -> None:
        self._boulder, self._scope = boulder, scope
        self._stop: Callable[[], None] | None = None

    def resources(self) -> list[Resource]:
        return [
            Resource(STATE_URI, "Boulder State", "Current boulder enforcement state", self._read, _JSON),
            Resource(
                f"{_SESSION_PREFIX}{{sessionId}}",
                "Boulder State of a Session",
                "Current boulder enforcement state of one session",
                self._read_one,
                _JSON,
                complete=self._complete,
            ),
        ]

    def set_watched(self, toolset: Toolset, uris: frozenset[str]) -> None:
        """Listen to boulder only while a client watches its state."""
        is_watched = any(uri.startswith(STATE_URI) for uri in uris)
        if is_watched and self._stop is None:
            self._stop = self._boulder.listen(lambda session, path: self._on_changed(toolset, session, path))
        elif not is_watched and self._stop is not None:
            self._stop()
            self._stop = None

    def _on_changed(self, toolset: Toolset, session: str, path: str) -> None:
        if self._scope is not None and format_path(self._scope) != path:
            return
        for uri in toolset.watched & {STATE_URI, f"{_SESSION_PREFIX}{session}"}:
            toolset.changes.resource_updated(uri)

    async def _read(self, call: Call, uri: str) -> str:
        return msgspec.json.encode(await self._boulder.state(self._scope)).decode()

    async def _read_one(self, call: Call, uri: str) -> str:
        return msgspec.json.encode(
            await self._boulder.session_state(uri.removeprefix(_SESSION_PREFIX), self._scope)
        ).decode()

    async def _complete(self, call: Call, prefix: str) -> Sequence[str]:
        state = await self._boulder.state(self._scope)
        return [session for session in state["sessions"] if session.startswith(prefix)]


class SessionChanges:
    """Notifies clients of changes of the resources that they watch; listens only while there are any."""

    def __init__(self, sessions: Sessions, toolset: Toolset, scope: Path | None) -> None:
        self._sessions, self._toolset = sessions, toolset
        self._scope = format_path(scope) if scope is not None else None
        self._stop: Callable[[], None] | None = None

    def set_watched(self, uris: frozenset[str]) -> None:
        is_watched = any(uri.startswith(_SCHEMES) for uri in uris)
        if is_watched and self._stop is None:
            self._stop = self._sessions.listen(self._on_changed)
        elif not is_watched and self._stop is not None:
            self._stop()
            self._stop = None

    def _on_changed(self, changes: frozenset[SessionChange]) -> None:
        # Clients may know ids of sessions that they may not access, and are not notified of those.
        visible = [change for change in changes if self._scope in (None, change.workspace)]
        # A new message also changes the session's message count and last activity.
        updated = {
            (kind, change.session) for change in visible for kind in (change.what, "session") if change.what != "toasts"
        }
        for uri in self._toolset.watched:
            kind, _, session = uri.partition("?")[0].partition("://")
            # A change without a session may concern all of them.
            if (kind, session) in updated or (kind, None) in updated:
                self._toolset.changes.resource_updated(uri)
