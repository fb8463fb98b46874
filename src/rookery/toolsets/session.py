"""`session`: tools, resources and prompts to control and read the sessions of agents.

The prompts describe how to test boulder with the tools.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from rookery.operations.operation import BoundOperation
from rookery.plugins.boulder.messages import MARK
from rookery.plugins.boulder.service import Boulder
from rookery.sessions.records import SessionChange
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError
from rookery.toolsets.operations import operation_tools
from rookery.toolsets.resources import AnnotatedText, Completer, Prompt, PromptArgument, Resource, read_number
from rookery.toolsets.toolset import Toolset
from rookery.wire.protocol.provider import Call
from rookery.workspaces.model import format_path

_JSON = "application/json"

STATE_URI = "boulder://state"
_SESSION_PREFIX = f"{STATE_URI}/"
_SCHEMES = ("session://", "messages://")

_IDLE_SECONDS = 35.0

_IDLE = f"""\
Test that boulder notices that the session {{session}} is idle and prompts it to continue. Do these steps in order, \
report what each of them showed, and stop at the first that fails.

1. `get_session` with sessionId "{{session}}": it exists. Note the time in milliseconds as `begun`.
2. Read the resource `boulder://state/{{session}}`. If its status is OFF, switch it on with `trigger_plugin_action`: \
pluginName "boulder", action "on", args {{{{"sessionId": "{{session}}"}}}} (only the owner may). Note `iteration`, and \
look at `gates`: "idle" and "cooldown" end by themselves, any other one has to be dealt with first.
3. `send_message` with sessionId "{{session}}" and content "Starting boulder test". The answer must not say that \
everything is done, or boulder has nothing to enforce.
4. Do nothing in the session. `wait_for_toast` with sessionId "{{session}}", pattern "{MARK}" and timeout \
{{milliseconds}} (that is {{seconds}} seconds): `found` has to be true.
5. `get_messages` with sessionId "{{session}}" and since `begun`: one message has to contain "{MARK}".
6. Read `boulder://state/{{session}}` again: `iteration` has to be higher than before, and `lastEnforcement` later \
than `begun`.
7. Put back what you have changed: if you switched it on, `trigger_plugin_action` with action "off" and the same args.

State at the end whether the test has passed. If no toast came, report the `gates` of step 6: they say \
what prevented it."""

_COMPLETION = f"""\
Test that boulder notices when the work of the session {{session}} is complete, and then leaves it alone. Do these \
steps in order, report what each of them showed, and stop at the first that fails.

1. `get_session` with sessionId "{{session}}": it exists.
2. Read the resource `boulder://state/{{session}}`. If its status is OFF, switch it on with `trigger_plugin_action`: \
pluginName "boulder", action "on", args {{{{"sessionId": "{{session}}"}}}} (only the owner may). Note `iteration`, and \
`checks`: they say how completion is decided.
3. `send_message` with sessionId "{{session}}" and content "Finish what is left. If nothing is left, mark every todo \
as completed, and answer with exactly: All tasks are complete."
4. If `checks` names a plan or a just task, see to it that the boxes of the plan are checked (`execute_tool` with tool \
"read") and that the task ends with 0 (`run_just_task`).
5. `wait_for_toast` with sessionId "{{session}}", pattern "{MARK}" and timeout 70000: `found` has to be false.
6. Read `boulder://state/{{session}}` again: `status` has to be COMPLETE, `complete` says why, the gate "complete" is \
among `gates`, and `iteration` is what it was.
7. `send_message` with content "There is one more thing to do." and read the resource once more: `complete` has to be \
null, because somebody has spoken.
8. Put back what you have changed: if you switched it on, `trigger_plugin_action` with action "off" and the same args.

State at the end whether the test has passed, and how completion was decided."""


def session_toolset(
    operations: Sequence[BoundOperation[Any]], sessions: Sessions, scope: Path | None, boulder: Boulder
) -> Toolset:
    """Return the toolset for clients that may only access the sessions of `scope`, or all."""
    reader = SessionReader(sessions, scope)
    boulder_resources = BoulderResources(boulder, scope)
    toolset = Toolset(
        "session",
        operation_tools(operations, "session", scope),
        [*session_resources(reader), *boulder_resources.resources()],
        session_prompts(reader.complete_id),
    )
    changes = SessionChanges(sessions, toolset, scope)

    def on_watched(uris: frozenset[str]) -> None:
        changes.set_watched(uris)
        boulder_resources.set_watched(toolset, uris)

    toolset.on_watched = on_watched
    return toolset


class SessionReader:
    """Reads sessions and their messages for resources. `scope` is the only accessible workspace, None for the owner."""

    def __init__(self, sessions: Sessions, scope: Path | None) -> None:
        self._sessions = sessions
        self._scope = scope

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
        self._boulder = boulder
        self._scope = scope
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
        self._sessions = sessions
        self._toolset = toolset
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


def session_prompts(complete_session: Completer) -> list[Prompt]:
    """Return the prompts. `complete_session` returns the session ids that start with a text."""
    session = PromptArgument("sessionId", "Session to test", required=True, complete=complete_session)
    return [
        Prompt(
            "test_boulder_idle_detection",
            "Test boulder idle detection",
            _fill_idle,
            [session, PromptArgument("idleTime", "Seconds to wait for idle; 35 if it is left out")],
        ),
        Prompt("test_boulder_completion", "Test boulder completion detection", _fill_completion, [session]),
    ]


def _fill_idle(arguments: Mapping[str, str]) -> str:
    seconds = read_number(arguments, "idleTime", _IDLE_SECONDS)
    return _IDLE.format(session=arguments["sessionId"], seconds=f"{seconds:g}", milliseconds=round(seconds * 1000))


def _fill_completion(arguments: Mapping[str, str]) -> str:
    return _COMPLETION.format(session=arguments["sessionId"])
