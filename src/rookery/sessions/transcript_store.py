"""The transcripts of one agent's sessions: read once, then kept current by events.

The transcripts of all agents share one cache with a limit in bytes; the least recently used goes first. Of sessions
whose messages are not in the cache a summary is kept: the number of messages, how the last turn ended and when a person
last wrote something.
"""

import asyncio
import logging
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from rookery.agents.opencode.api import AgentClient
from rookery.agents.opencode.events import AgentMessageEvent, MessageRemoved, MessageUpdated, TurnFailed
from rookery.agents.opencode.records import Message, MessageInfo, Session
from rookery.agents.run import AgentRun
from rookery.sessions.conversion import EXECUTE_TOOL_ORIGIN, describe_failure, is_hidden, summarize_message
from rookery.sessions.records import SessionMessage
from rookery.sessions.transcript import Transcript
from rookery.system.errors import RookeryError

CACHE_BYTES = 64 * 2**20
# The limit for one session, so that it does not displace all others.
TRANSCRIPT_BYTES = 16 * 2**20

logger = logging.getLogger("rookery.sessions")

# Limits to try in this order if all messages are too large to be read at once: only the newest are read then.
_FALLBACK_LIMITS = (500, 50, 5)
# How many messages a page has if the caller does not say.
_DEFAULT_PAGE_SIZE = 50
T = TypeVar("T")


class TranscriptCache:
    """An LRU cache of transcripts. A transcript that a caller holds stays, whatever its size."""

    def __init__(self, limit: int = CACHE_BYTES, transcript_limit: int = TRANSCRIPT_BYTES) -> None:
        self.limit = limit
        self.transcript_limit = transcript_limit
        self.size = 0
        self._transcripts: dict[str, Transcript] = {}

    def peek(self, session: str) -> Transcript | None:
        """Return a transcript without marking it as used."""
        return self._transcripts.get(session)

    def get(self, session: str) -> Transcript | None:
        """Return a transcript and mark it as the most recently used."""
        if (transcript := self._transcripts.pop(session, None)) is not None:
            self._transcripts[session] = transcript
        return transcript

    def put(self, transcript: Transcript) -> None:
        """Add or replace a transcript, and drop others if the cache is full."""
        self.drop(transcript.session)
        self._transcripts[transcript.session] = transcript
        self.account_growth(transcript, 0)

    def drop(self, session: str) -> None:
        """Remove the transcript of a session."""
        if (transcript := self._transcripts.pop(session, None)) is not None:
            self.size -= transcript.size

    def account_growth(self, transcript: Transcript, before: int) -> None:
        """Account for the growth of a transcript from the size `before`, and drop others if the cache is too large.

        Transcripts that a caller holds are not dropped.
        """
        self.size += transcript.size - before
        if self.size <= self.limit:
            return
        for other in list(self._transcripts.values()):
            if other is not transcript and not other.pins:
                self.drop(other.session)
            if self.size <= self.limit:
                return


@dataclass
class TranscriptSummary:
    """What is known of a session's messages.

    `updated` is the last change of the session in OpenCode as far as known.
    """

    updated: float = 0
    count: int = 0
    error: str | None = None
    # Whether a turn has failed or was stopped since the newest message of a person.
    failed: bool = False
    # The id of the newest message; ids are in the order of time.
    newest: str = ""
    # When the newest message of a person was created; 0 if there is none.
    prompted_at: float = 0

    @staticmethod
    def from_infos(infos: Iterable[MessageInfo], updated: float) -> "TranscriptSummary":
        """Summarize messages."""
        summary = TranscriptSummary(updated)
        for info in infos:
            summary._add(info)
        return summary

    def apply(self, event: MessageUpdated | MessageRemoved | TurnFailed) -> None:
        """Apply an event."""
        match event:
            case MessageUpdated(_, info):
                self._add(info)
            case MessageRemoved(_, _):
                self.count = max(self.count - 1, 0)
            case TurnFailed(_, fault):
                self.failed = True
                self.error = describe_failure(fault) or self.error

    def _add(self, info: MessageInfo) -> None:
        if info.id > self.newest:
            self.newest = info.id
            self.count += 1
            if info.role == "user":
                self.error = None
                self.failed = False
        if info.role == "user":
            self.prompted_at = max(self.prompted_at, info.time.created)
        if info.role == "assistant" and info.id == self.newest:
            self.error = describe_failure(info.error)


@dataclass
class PromptTimes:
    """When the newest message of a person was created in each session, according to the events."""

    _times: dict[str, float] = field(default_factory=dict[str, float])
    # When each session was last changed; None before the sessions are first known.
    _updated: dict[str, float] | None = None
    _unknown: set[str] = field(default_factory=set[str])

    def get(self, session: str) -> float | None:
        """Return the time, 0 if it was before the first event, None if the event may have been missed."""
        return None if session in self._unknown else self._times.get(session, 0)

    def apply(self, event: MessageUpdated) -> None:
        """Record the time of a message of a person."""
        if event.info.role == "user":
            self._times[event.session] = max(self._times.get(event.session, 0), event.info.time.created)
            self._unknown.discard(event.session)

    def record_update(self, session: Session) -> None:
        """Record when a session was last changed."""
        if self._updated is not None:
            self._updated[session.id] = session.time.updated

    def resync(self, sessions: Iterable[Session]) -> None:
        """Mark sessions that changed without an event as unknown: a new message changes its session.

        The first call only records the sessions.
        """
        updated = {session.id: session.time.updated for session in sessions}
        if self._updated is not None:
            self._unknown.update(id_ for id_, moment in updated.items() if self._updated.get(id_) != moment)
        self._updated = updated

    def drop(self, session: str) -> None:
        self._times.pop(session, None)
        self._unknown.discard(session)


class _MessageHead(msgspec.Struct, frozen=True):
    """A message without its parts."""

    info: MessageInfo


class TranscriptStore:
    """The transcripts of one agent's sessions.

    `use_agent` is a context manager that returns the agent, awake and with its sessions known.
    """

    def __init__(self, cache: TranscriptCache, use_agent: Callable[[], AbstractAsyncContextManager[AgentRun]]) -> None:
        self._cache = cache
        self._use_agent = use_agent
        self._summaries: dict[str, TranscriptSummary] = {}
        self._prompts = PromptTimes()
        # Events of a session that arrive while its messages are being read.
        self._pending_events: dict[str, list[AgentMessageEvent | TurnFailed]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Incremented when events may have been missed.
        self._epoch = 0

    # Events

    def apply(self, event: AgentMessageEvent | TurnFailed) -> None:
        """Apply an event to the summary and the transcript of its session, or keep it until a read has finished."""
        id_ = event.session
        if isinstance(event, MessageUpdated):
            self._prompts.apply(event)
        if (summary := self._summaries.get(id_)) is not None and isinstance(
            event, MessageUpdated | MessageRemoved | TurnFailed
        ):
            summary.apply(event)
        if (meanwhile := self._pending_events.get(id_)) is not None:
            meanwhile.append(event)
        elif not isinstance(event, TurnFailed) and (transcript := self._cache.peek(id_)) is not None:
            self._apply(transcript, event)

    def record_update(self, session: Session) -> None:
        """Record when a session was last changed."""
        self._prompts.record_update(session)
        if (summary := self._summaries.get(session.id)) is not None:
            summary.updated = session.time.updated

    def resync(self, sessions: Iterable[Session], unchanged: Callable[[str, float], bool]) -> None:
        """Drop what may be out of date after events were missed: all but the sessions that `unchanged` confirms."""
        self._epoch += 1
        self._prompts.resync(sessions)
        for id_, summary in list(self._summaries.items()):
            if not unchanged(id_, summary.updated):
                self._evict(id_)

    def drop(self, session: str) -> None:
        """Forget a session that no longer exists."""
        self._prompts.drop(session)
        self._evict(session)

    def _evict(self, session: str) -> None:
        self._summaries.pop(session, None)
        self._cache.drop(session)
        if session in self._locks and not self._locks[session].locked():
            del self._locks[session]

    def clear(self) -> None:
        """Forget all sessions."""
        for session in list(self._summaries):
            self.drop(session)

    def describe_last_message(self, session: str) -> str | None:
        """Return one line about the last message, if the messages of the session are held."""
        transcript = self._cache.peek(session)
        newest = transcript.messages(running=True, limit=2) if transcript is not None else ()
        # A message that was just started has no text yet.
        candidates = [message for message in newest if message.content or message.parts or message.error] or newest
        return summarize_message(candidates[-1]) if candidates else None

    def cached_summary(self, session: str) -> TranscriptSummary | None:
        """Return the summary of a session if there is one, without reading its messages."""
        return self._summaries.get(session)

    # Reading

    async def prompted_at(self, session: Session) -> float:
        """Return when the newest message of a person was created, 0 if that was before the first event.

        The messages are read only if the event of such a message may have been missed.
        """
        moment = self._prompts.get(session.id)
        return moment if moment is not None else (await self.summary(session)).prompted_at

    async def summary(self, session: Session) -> TranscriptSummary:
        """Return the summary of a session; read its messages if there is none."""
        if (summary := self._summaries.get(session.id)) is not None:
            return summary
        async with self._locks[session.id]:
            if (summary := self._summaries.get(session.id)) is not None:
                return summary
            heads, meanwhile, _ = await self._read_consistently(session, _MessageHead)
            return self._summarize(session, [head.info for head in heads], meanwhile)

    async def transcript(self, session: Session) -> Transcript:
        """Return the transcript of a session; read its messages only if they are not in the cache."""
        if (transcript := self._cache.get(session.id)) is not None:
            return transcript
        async with self._locks[session.id]:
            if (transcript := self._cache.get(session.id)) is not None:
                return transcript
            messages, meanwhile, complete = await self._read_consistently(session, Message)
            self._summarize(session, [message.info for message in messages], meanwhile)
            transcript = _new_transcript(session, self._cache.transcript_limit)
            transcript.fill(messages)
            transcript.is_complete = complete
            self._cache.put(transcript)
            for event in meanwhile:
                if not isinstance(event, TurnFailed):
                    self._apply(transcript, event)
            return transcript

    async def page(
        self, session: Session, *, running: bool, limit: int | None, since: float | None, before: str | None
    ) -> tuple[tuple[SessionMessage, ...], bool]:
        """Return the newest messages, or the newest before another one, and whether older ones are left out.

        Messages that are not in the cache are read from OpenCode, one page at a time, and not kept.
        """
        transcript = await self.transcript(session) if before is None else self._cache.get(session.id)
        if transcript is not None and (before is None or before in transcript):
            messages = transcript.messages(running=running, since=since, before=before)
            newest = messages if limit is None else messages[max(len(messages) - limit, 0) :]
            complete = transcript.has_all_since(since)
            if complete or before is None or (limit is not None and len(messages) > limit):
                return newest, len(newest) < len(messages) or not complete
        assert before is not None
        async with self._use_agent() as agent_run:
            info = transcript.info(before) if transcript is not None else None
            info = info or (await agent_run.client.message_at(session.id, before, _MessageHead)).info
            page_messages, has_older = await _read_page_before(
                agent_run.client, session.id, info, limit or _DEFAULT_PAGE_SIZE
            )
        page = _new_transcript(session, sys.maxsize)
        page.fill(page_messages)
        newest = page.messages(running=running, since=since)
        return newest, has_older and len(newest) == len(page_messages)

    @asynccontextmanager
    async def pinned(self, session: Session) -> AsyncGenerator[None]:
        """Keep the messages of a session in the cache until the end of the block, as long as no event was missed."""
        transcript = await self.transcript(session)
        transcript.pins += 1
        try:
            yield
        finally:
            transcript.pins -= 1

    async def _read_consistently(
        self, session: Session, kind: type[T]
    ) -> tuple[list[T], list[AgentMessageEvent | TurnFailed], bool]:
        """Return all messages, the events that arrived meanwhile, and whether all were read.

        Repeat if events were missed.
        """
        while True:
            async with self._use_agent() as agent_run:
                epoch = self._epoch
                meanwhile = list[AgentMessageEvent | TurnFailed]()
                self._pending_events[session.id] = meanwhile
                try:
                    messages, complete = await _read_all(agent_run.client, session.id, kind)
                finally:
                    self._pending_events.pop(session.id, None)
                if epoch == self._epoch:
                    return messages, meanwhile, complete

    def _summarize(
        self, session: Session, infos: list[MessageInfo], events: list[AgentMessageEvent | TurnFailed]
    ) -> TranscriptSummary:
        """Create the summary of a session from its messages and the events that arrived meanwhile."""
        summary = self._summaries[session.id] = TranscriptSummary.from_infos(infos, session.time.updated)
        for event in events:
            if isinstance(event, MessageUpdated | TurnFailed):
                summary.apply(event)
        return summary

    def _apply(self, transcript: Transcript, event: AgentMessageEvent) -> None:
        """Apply an event to a transcript in the cache, and drop the transcript if the event is invalid."""
        before = transcript.size
        try:
            transcript.apply(event)
        except ValueError as error:
            # The messages are read again when they are needed.
            logger.warning("OpenCode reported a message in an unexpected form: %s", error)
            self._cache.drop(transcript.session)
            return
        if self._cache.peek(transcript.session) is transcript:
            self._cache.account_growth(transcript, before)


def _new_transcript(session: Session, limit: int) -> Transcript:
    """Return an empty transcript. Tool runs of a hidden child are attributed to its parent."""
    hidden = is_hidden(session)
    return Transcript(
        session.id, limit, owner=session.parent if hidden else None, origin=EXECUTE_TOOL_ORIGIN if hidden else None
    )


async def _read_page_before(
    client: AgentClient, session: str, info: MessageInfo, limit: int
) -> tuple[list[Message], bool]:
    """Return up to `limit` messages before a message, and whether there are older ones."""
    # One more message than the limit shows whether there are older ones. If they are too large to be read at once,
    # fewer are read.
    for newest in (limit + 1, *(size + 1 for size in _FALLBACK_LIMITS if size < limit), 1):
        try:
            messages = await client.read_messages_as(session, Message, newest, before=(info.id, info.time.created))
        except RookeryError as error:
            if "larger than" not in error.message or newest == 1:
                raise
            continue
        return messages[max(len(messages) - max(newest - 1, 1), 0) :], len(messages) == newest
    raise AssertionError("the last attempt returns or raises")


async def _read_all(client: AgentClient, session: str, kind: type[T]) -> tuple[list[T], bool]:
    """Return all messages, or fewer if they are too large to be read at once, and whether these are all."""
    for newest in (None, *_FALLBACK_LIMITS):
        try:
            return await client.read_messages_as(session, kind, newest), newest is None
        except RookeryError as error:
            if "larger than" not in error.message or newest == _FALLBACK_LIMITS[-1]:
                raise
    raise AssertionError("the last attempt returns or raises")
