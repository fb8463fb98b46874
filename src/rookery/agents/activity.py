"""Record of the last activity of a workspace's sessions, and of what the user has seen.

The record is a file in the workspace's git folder, so it is available without a running agent and after a crash of the
daemon.
"""

import contextlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rookery.agents.status import SessionState, TurnFailure, TurnState, list_needs
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.fs.atomic import read_plain, write_atomic
from rookery.workspaces.metadata import rookery_folder
from rookery.workspaces.model import AgentActivity, Need

logger = logging.getLogger("rookery.agents")

_MAX_FILE_BYTES = 2**20
# Records are kept for this many sessions, the most recently used ones.
_MAX_SESSIONS = 200
_RUNNING: tuple[TurnState, ...] = ("busy", "retry", "asking")


class SessionActivity(msgspec.Struct, frozen=True):
    """Activity of one session. Times are in milliseconds since the epoch, 0 for never.

    `ended` is when the last turn ended, `seen` when the user looked at the session, and `dismissed` when the user
    dismissed its failure.
    """

    title: str = ""
    state: TurnState = "idle"
    failure: TurnFailure | None = None
    updated: float = 0
    ended: float = 0
    seen: float = 0
    dismissed: float = 0


class _ActivityFile(msgspec.Struct, frozen=True):
    sessions: dict[str, SessionActivity] = {}


class ActivityStore:
    """The activity of the root sessions of one workspace. `git_folder` is the workspace's git folder."""

    def __init__(self, git_folder: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = rookery_folder(git_folder) / "activity.json"
        self._clock = clock
        self._records = _read_file(self._path)

    def find_ids(self, prefix: str) -> list[str]:
        """Return the ids of the sessions that begin with `prefix`; none for an empty prefix."""
        return [id_ for id_ in self._records if prefix and id_.startswith(prefix)]

    def sessions(self) -> tuple[SessionState, ...]:
        """Return the sessions as they were when they were last observed."""
        return tuple(
            SessionState(id_, record.title, record.state, updated=record.updated, failure=record.failure)
            for id_, record in self._records.items()
        )

    def observe(self, sessions: Sequence[SessionState]) -> None:
        """Record the current states of the sessions, which are sorted by last use, the newest first."""
        records = {session.id: self._updated_record(session) for session in sessions[:_MAX_SESSIONS]}
        if {id_: _without_update_time(record) for id_, record in records.items()} != {
            id_: _without_update_time(record) for id_, record in self._records.items()
        }:
            self._write(records)

    def mark_seen(self, session: str | None = None) -> None:
        """Record that the user looks at one session, or at all sessions."""
        self._change(session, seen=self._now())

    def dismiss(self, session: str | None = None) -> list[str]:
        """Dismiss the failure of one session, or of all sessions, and return the ids of the sessions that had one."""
        failed = [
            state.id
            for state in self._without_dismissed(self.sessions())
            if state.failure and session in (None, state.id)
        ]
        for id_ in failed:
            self._change(id_, dismissed=self._now(), seen=self._now())
        return failed

    def needs(self, sessions: Sequence[SessionState]) -> list[Need]:
        """Return what these sessions need the user for."""
        return list(list_needs(self._without_dismissed(sessions)))

    def summary(self, sessions: Sequence[SessionState], *, queued: bool = False) -> AgentActivity:
        """Return one word for the activity of all sessions. `queued` says that a first prompt waits to be sent."""
        visible = self._without_dismissed(sessions)
        states = {session.state for session in visible}
        if states & {"asking", "interrupted"}:
            return "waiting"
        if any(session.failure is not None and session.state == "idle" for session in visible):
            return "failed"
        if states & {"busy", "retry"}:
            return "working"
        if queued:
            return "queued"
        records = [self._records.get(session.id, SessionActivity()) for session in visible]
        if any(record.ended > record.seen for record in records):
            return "finished"
        return "idle" if visible else "new"

    def _without_dismissed(self, sessions: Iterable[SessionState]) -> list[SessionState]:
        """Return the sessions without the failures that the user has dismissed."""
        return [
            msgspec.structs.replace(session, failure=None)
            if session.failure is not None
            and session.failure.at <= self._records.get(session.id, SessionActivity()).dismissed
            else session
            for session in sessions
        ]

    def _updated_record(self, session: SessionState) -> SessionActivity:
        previous = self._records.get(session.id, SessionActivity())
        ended = previous.ended
        if previous.state in _RUNNING and session.state not in _RUNNING:
            ended = self._now()
        elif session.failure is not None and session.failure != previous.failure:
            ended = session.failure.at
        return msgspec.structs.replace(
            previous,
            title=session.title,
            state=session.state,
            failure=session.failure,
            updated=session.updated,
            ended=ended,
        )

    def _change(self, session: str | None, **changes: float) -> None:
        chosen = self._records if session is None else {session} & self._records.keys()
        if chosen:
            changed = {id_: msgspec.structs.replace(self._records[id_], **changes) for id_ in chosen}
            self._write(self._records | changed)

    def _write(self, records: dict[str, SessionActivity]) -> None:
        self._records = records
        # A deleted workspace must not come back as a folder: `mkdir` creates no parents, and the record is dropped.
        try:
            with contextlib.suppress(FileExistsError):
                self._path.parent.mkdir()
            write_atomic(self._path, msgspec.json.encode(_ActivityFile(records)), mode=0o600)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error.strerror)

    def _now(self) -> float:
        return self._clock.wall() * 1000


def _read_file(path: Path) -> dict[str, SessionActivity]:
    try:
        return msgspec.json.decode(read_plain(path, _MAX_FILE_BYTES), type=_ActivityFile).sessions
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("%s cannot be read and is treated as empty: %s", path, error)
        return {}


def _without_update_time(record: SessionActivity) -> SessionActivity:
    """Return the record without the time that changes with every message."""
    return msgspec.structs.replace(record, updated=0)
