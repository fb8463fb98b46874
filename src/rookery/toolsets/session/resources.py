"""Sessions, their messages and boulder's state as resources, with change notifications."""

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from rookery.plugins.boulder.service import Boulder
from rookery.sessions.records import SessionChange
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError
from rookery.toolsets.resources import AnnotatedText, Resource
from rookery.toolsets.toolset import Toolset
from rookery.wire.protocol.provider import Call
from rookery.workspaces.model import format_path

_JSON = "application/json"

STATE_URI = "boulder://state"
_SESSION_PREFIX = f"{STATE_URI}/"
_SCHEMES = ("session://", "messages://")


class SessionReader:
    """Reads sessions and their messages for resources. `scope` is the only accessible workspace, None for the owner."""

    def __init__(self, sessions: Sessions, scope: Path | None) -> None:
        self._sessions, self._scope = sessions, scope

    async def read_session(self, call: Call, uri: str) -> str:
        return _json(await self._sessions.get(_read_id(uri), self._scope))

    async def read_messages(self, call: Call, uri: str) -> str | AnnotatedText:
        """Return all messages that are kept in memory, or with `?before=` a page of older ones."""
        query = parse_qs(urlsplit(uri).query)
        before, limit = (query.get(name, [None])[-1] for name in ("before", "limit"))
        if limit is not None and not (limit.isascii() and limit.isdecimal() and len(limit) < 10):
            raise RookeryError(
                "invalid-input", f"limit={limit[:40]!r} is not a number", "set limit to the number of messages to read"
            )
        count = int(limit) if limit is not None else None
        page = await self._sessions.messages(_read_id(uri), count, None, self._scope, before=before)
        if page.before is None:
            return _json(page.messages)
        more = f"messages://{_read_id(uri)}?before={page.before}" + (f"&limit={limit}" if limit is not None else "")
        return AnnotatedText(_json(page.messages), f"[older messages are left out; read {more}]")

    async def complete_id(self, call: Call, prefix: str) -> Sequence[str]:
        """Return the ids of sessions that start with a text."""
        return [session.id for session in await self._sessions.list(self._scope) if session.id.startswith(prefix)]


def _read_id(uri: str) -> str:
    return uri.partition("://")[2].partition("?")[0]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def session_resources(reader: SessionReader) -> list[Resource]:
    return [
        Resource(
            "session://{sessionId}",
            "Session State",
            "Current state of an OpenCode session",
            reader.read_session,
            _JSON,
            complete=reader.complete_id,
        ),
        Resource(
            "messages://{sessionId}",
            "Session Messages",
            "All messages in a session; a note after them says when older ones are left out",
            reader.read_messages,
            _JSON,
            complete=reader.complete_id,
        ),
        Resource(
            "messages://{sessionId}{?before,limit}",
            "Older Session Messages",
            "The messages of a session that were made before the one with the id `before`: 50, or `limit`",
            reader.read_messages,
            _JSON,
            complete=reader.complete_id,
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
