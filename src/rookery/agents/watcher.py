"""Watch one running agent: read all sessions, then follow its events.

After a stream of events is lost, the state of all sessions is read again, since events may have been missed.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

from rookery.agents.opencode.api import MAX_SESSIONS, AgentClient
from rookery.agents.opencode.errors import session_not_found
from rookery.agents.opencode.events import AgentEvent, AgentSessionEvent, SnapshotLoaded, TurnFailed
from rookery.agents.opencode.records import Ask, Session, SessionStatus
from rookery.agents.opencode.stream import SILENCE_SECONDS, open_event_stream
from rookery.agents.status import (
    CONTINUE_PROMPT,
    NEWEST_MESSAGES,
    SessionsSnapshot,
    SessionState,
    StatusTracker,
    TurnFailure,
    find_failure,
    find_last_reply,
    is_cut_off,
    summarize_status,
)
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import CRASH_LOG, TaskSet
from rookery.wire.timing import compute_backoff
from rookery.workspaces.model import AgentStatus

logger = logging.getLogger("rookery.agents")

# The messages of at most this many sessions are read, the most recently used ones: a turn that was cut off is among
# them, and a folder may have thousands of sessions.
MAX_READ_SESSIONS = 50

# A stream that lasted this long is opened again at once.
_STABLE_STREAM_SECONDS = 10.0
_MAX_PAUSE = 10.0
_STATUS_EVENTS = (*get_args(AgentSessionEvent), TurnFailed, SnapshotLoaded)


class SessionVerdict(NamedTuple):
    """State of a session by its newest messages. `updated` is the session's time of change when they were read."""

    updated: float | None = None
    cut_off: bool = False
    failure: TurnFailure | None = None
    answered: float = 0


_UNREAD = SessionVerdict()


class SnapshotReader:
    """Reads snapshots of all sessions. Messages of a session that has not changed are not read again."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._verdicts: dict[str, SessionVerdict] = {}

    async def read(self, were_running: Collection[str] = ()) -> SessionsSnapshot:
        """Read a snapshot. Only a snapshot that is read after a subscription is connected is as new as its events."""
        roots = await self._client.sessions()
        if len(roots) >= MAX_SESSIONS:
            logger.warning("%s has more than %d sessions; older ones are ignored", self._client.directory, MAX_SESSIONS)
        statuses = await self._client.statuses()
        asks: list[Ask] = [*await self._client.permissions(), *await self._client.questions()]
        asks = [ask for ask in asks if ask.session in statuses and await self._is_open(ask)]
        children = await self._read_children({root.id for root in roots}, [*statuses, *(ask.session for ask in asks)])
        # Read after `statuses`: an incomplete turn of an idle session was cut off, or an event to come continues it.
        idle = [session for session in roots if session.id not in statuses]
        changed = [
            session
            for session in idle[:MAX_READ_SESSIONS]
            if await self._update_verdict(session, session.id in were_running)
        ]
        statuses |= await self._recheck_cut_off(changed, were_running)
        idle = [session for session in idle if session.id not in statuses]
        verdicts = {session.id: self._verdicts.get(session.id, _UNREAD) for session in idle}
        self._verdicts = verdicts
        current = {
            session.id: verdicts[session.id] for session in idle if verdicts[session.id].updated == session.time.updated
        }
        return SessionsSnapshot(
            (*roots, *children),
            statuses,
            tuple(asks),
            cut_off=frozenset(id_ for id_, verdict in current.items() if verdict.cut_off),
            failed={id_: verdict.failure for id_, verdict in current.items() if verdict.failure is not None},
            answered={id_: verdict.answered for id_, verdict in current.items() if verdict.failure is None},
        )

    async def _read_children(self, known_ids: set[str], ids: Iterable[str]) -> list[Session]:
        """Return the child sessions among `ids`, and all sessions between them and their roots."""
        sessions: list[Session] = []
        for id_ in ids:
            current: str | None = id_
            while current is not None and current not in known_ids:
                known_ids.add(current)
                try:
                    session = await self._client.session(current)
                except RookeryError as error:
                    if error.code != "session-not-found":
                        raise
                    break
                sessions.append(session)
                current = session.parent
        return sessions

    async def _is_open(self, ask: Ask) -> bool:
        """Return whether a turn waits for the answer: OpenCode still lists the asks of aborted turns."""
        if ask.cause is None:
            return True
        try:
            last = find_last_reply(await self._client.messages(ask.session, NEWEST_MESSAGES))
        except RookeryError as error:
            if error.code != "session-not-found":
                raise
            return False
        return last is not None and last.info.id == ask.cause.message

    async def _recheck_cut_off(
        self, sessions: Sequence[Session], were_running: Collection[str]
    ) -> dict[str, SessionStatus]:
        """Check that turns which were just judged to be cut off do not run; return the statuses of those that do.

        A turn that began after the statuses were read, but before its messages were, looks as if it had been cut off.
        """
        suspects = [(session, self._verdicts[session.id]) for session in sessions if self._verdicts[session.id].cut_off]
        if not suspects:
            return {}
        statuses = await self._client.statuses()
        for session, first in suspects:
            del self._verdicts[session.id]
            if session.id in statuses:
                continue
            await self._update_verdict(session, session.id in were_running)
            if self._verdicts.get(session.id, _UNREAD).answered != first.answered:
                # Another turn has begun meanwhile. Its end changes the session, so that it is read again.
                self._verdicts.pop(session.id, None)
        return {session.id: statuses[session.id] for session, _ in suspects if session.id in statuses}

    async def _update_verdict(self, session: Session, was_running: bool) -> bool:
        """Read the newest messages of a session that has changed, and keep the verdict. Return whether it did."""
        if self._verdicts.get(session.id, _UNREAD).updated == session.time.updated:
            return False
        try:
            messages = await self._client.messages(session.id, 1)
            if messages and messages[0].info.role != "assistant":
                messages = await self._client.messages(session.id, NEWEST_MESSAGES)
        except RookeryError as error:
            if error.code != "session-not-found":
                raise
            return False
        last = find_last_reply(messages)
        self._verdicts[session.id] = SessionVerdict(
            session.time.updated,
            is_cut_off(messages, was_running=was_running),
            find_failure(messages),
            last.info.time.created if last is not None else 0,
        )
        return True


def _ignore_event(event: AgentEvent) -> None:
    """Ignore an event."""


class AgentWatcher:
    """Watches one run of an agent's process. `on_change` is called after every change of the public attributes.

    `were_running` are the sessions that ran when the previous process ended, as in `running` of its watcher.
    `failed` are the sessions whose last turn had failed then.
    `on_event` receives every event, after the public attributes contain its changes.
    """

    def __init__(
        self,
        client: AgentClient,
        on_change: Callable[[], None],
        *,
        on_event: Callable[[AgentEvent], None] = _ignore_event,
        were_running: Collection[str] = (),
        failed: Mapping[str, TurnFailure] | None = None,
        silence: float = SILENCE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.status = AgentStatus()
        self.sessions: tuple[SessionState, ...] = ()
        # Why no events are received from the agent at present; the other attributes may be outdated then.
        self.error: RookeryError | None = None
        self._client = client
        self._on_change = on_change
        self._on_event = on_event
        self._were_running = were_running
        self._silence = silence
        self._clock = clock
        self._tracker = StatusTracker(client.directory, failed)
        self._reader = SnapshotReader(client)
        self._snapshot_read = asyncio.Event()
        self._tasks = TaskSet(f"agent at {client.connection.url}")

    @property
    def running(self) -> frozenset[str]:
        """The sessions with a running turn, those that wait for an answer included."""
        return frozenset(session.id for session in self.sessions if session.state in ("busy", "retry", "asking"))

    def session(self, id_: str) -> Session | None:
        """Return a known session, be it a root or a child."""
        return self._tracker.session(id_)

    @property
    def children(self) -> tuple[Session, ...]:
        """The known sessions that work for another session."""
        return self._tracker.children()

    def state(self, id_: str) -> SessionState | None:
        """Return the state of a known session, be it a root or a child."""
        return self._tracker.state(id_)

    @property
    def last_used(self) -> dict[str, float]:
        """The time of the last use of each root or of one of its children."""
        return self._tracker.last_used()

    def apply_early(self, event: AgentSessionEvent) -> None:
        """Apply a change before the event arrives that is certain to report it."""
        if self._snapshot_read.is_set():
            self._on_events([event])

    def start(self) -> None:
        """Start watching. Call this once the agent says that it listens: earlier requests are never answered."""
        self._tasks.start(self._watch(), "watch")

    async def wait_for_snapshot(self) -> None:
        """Wait until the states of all sessions have been read for the first time."""
        await self._snapshot_read.wait()

    async def close(self) -> None:
        await self._tasks.close()

    async def resume(self, session: str) -> None:
        """Resume a turn that was cut off."""
        state = next((state for state in self.sessions if state.id == session), None)
        if state is None:
            raise session_not_found(session)
        if state.state != "interrupted":
            raise RookeryError("invalid-input", f"the session {session} was not interrupted: it is {state.state}")
        await self._client.prompt(session, CONTINUE_PROMPT)

    async def _watch(self) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            try:
                await self._follow()
            except RookeryError as error:
                logger.info("lost the event stream of the agent in %s: %s", self._client.directory, error.message)
                self._on_stream_lost(error)
            except Exception as error:
                CRASH_LOG.record(f"watch {self._client.directory}", error, restarted=True)
                self._on_stream_lost(RookeryError("internal-error", f"{type(error).__name__}: {error}"))
            failures = 0 if self._clock.monotonic() - started >= _STABLE_STREAM_SECONDS else failures + 1
            await asyncio.sleep(min(compute_backoff(failures), _MAX_PAUSE))

    async def _follow(self) -> None:
        async with open_event_stream(self._client.connection, self._silence) as stream:
            self._tracker.load_snapshot(await self._reader.read(self._were_running))
            self._were_running = ()
            # Delivered with the events that arrived meanwhile: they contain changes that the snapshot may lack.
            await stream.listen(self._on_events, SnapshotLoaded())

    def _on_stream_lost(self, error: RookeryError) -> None:
        self.error = error
        self._on_change()

    def _on_events(self, events: Sequence[AgentEvent]) -> None:
        # Events about messages, which are most of all events, do not change the sessions.
        if any(isinstance(event, _STATUS_EVENTS) for event in events):
            self._update_sessions(events)
        for event in events:
            self._on_event(event)

    def _update_sessions(self, events: Sequence[AgentEvent]) -> None:
        for event in events:
            self._tracker.apply(event)
        previous = self.sessions, self.error, self._snapshot_read.is_set()
        self.sessions = self._tracker.sessions()
        self.error = None
        self.status = summarize_status(self.sessions)
        self._snapshot_read.set()
        if previous != (self.sessions, None, True):
            self._on_change()
