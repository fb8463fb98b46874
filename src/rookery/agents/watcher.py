"""Watches one running agent: what its sessions do, kept right whatever happens to the stream of its events."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import get_args

from rookery.agents.client import AgentClient
from rookery.agents.events import Event, OfSessions, Renewed
from rookery.agents.interruption import CONTINUE
from rookery.agents.records import Session
from rookery.agents.refusals import no_session
from rookery.agents.rereading import Reader
from rookery.agents.status import SessionState, StatusBook, aggregate
from rookery.agents.stream import SILENCE_SECONDS, subscription
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.pauses import pause
from rookery.workspaces.agent import AgentStatus

logger = logging.getLogger("rookery.agents")

# A stream that lasted so long is subscribed to again at once.
_LIVED_SECONDS = 10.0
_LONGEST_PAUSE = 10.0
_TELLING = (*get_args(OfSessions), Renewed)


def _ignore(event: Event) -> None:
    """Nobody here wants to know."""


class Watcher:
    """For one life of an agent's process. `changed` is called after every change of what can be read here.

    `were_running` are the sessions that ran when the process before this one ended, as its watcher's `running` tells.
    `heard` gets every event, after what it changes can be read here.
    """

    def __init__(
        self,
        client: AgentClient,
        changed: Callable[[], None],
        *,
        heard: Callable[[Event], None] = _ignore,
        were_running: Collection[str] = (),
        silence: float = SILENCE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.status = AgentStatus()
        self.sessions: tuple[SessionState, ...] = ()
        # Why nothing is heard from the agent at present; what is known of it may be old then.
        self.trouble: RookeryError | None = None
        self._client = client
        self._changed = changed
        self._heard = heard
        self._were_running = were_running
        self._silence = silence
        self._clock = clock
        self._book = StatusBook(client.directory)
        self._reader = Reader(client)
        self._known = asyncio.Event()
        self._tasks = TaskSet(f"agent at {client.link.url}")

    @property
    def running(self) -> frozenset[str]:
        """The sessions that are in the middle of a turn, those that wait for an answer included."""
        return frozenset(one.id for one in self.sessions if one.state in ("busy", "retry", "asking"))

    def session(self, id_: str) -> Session | None:
        """One that is known, be it a root or a child."""
        return self._book.session(id_)

    def state(self, id_: str) -> SessionState | None:
        return self._book.state(id_)

    @property
    def last_used(self) -> dict[str, float]:
        """When each root, or a child of it, was used last."""
        return self._book.last_used()

    def learn(self, event: OfSessions) -> None:
        """Take in what is sure to be told by an event that is still on its way."""
        if self._known.is_set():
            self._take([event])

    def start(self) -> None:
        """Once the agent says that it listens: what is asked earlier is never answered."""
        self._tasks.start(self._watch(), "watch")

    async def known(self) -> None:
        """Returns when the state of all sessions has been read for the first time."""
        await self._known.wait()

    async def close(self) -> None:
        await self._tasks.close()

    async def resume(self, session: str) -> None:
        """Take up a turn that was cut off."""
        found = next((one for one in self.sessions if one.id == session), None)
        if found is None:
            raise no_session(session)
        if found.state != "interrupted":
            raise RookeryError("invalid-input", f"the session {session} was not interrupted: it is {found.state}")
        await self._client.prompt(session, CONTINUE)

    async def _watch(self) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await self._follow()
            except RookeryError as error:
                logger.info("lost the events of the agent in %s: %s", self._client.directory, error.message)
                self._lost(error)
            except Exception as error:
                logger.exception("watching the agent in %s failed in a way that it should not", self._client.directory)
                self._lost(RookeryError("internal-error", f"{type(error).__name__}: {error}"))
            failures = 0 if self._clock.monotonic() - began >= _LIVED_SECONDS else failures + 1
            await asyncio.sleep(min(pause(failures), _LONGEST_PAUSE))

    async def _follow(self) -> None:
        async with subscription(self._client.link, self._silence) as stream:
            self._book.renew(await self._reader.read(self._were_running))
            self._were_running = ()
            # At once with those that came meanwhile: they tell what the snapshot may not show yet.
            await stream.listen(self._take, Renewed())

    def _lost(self, error: RookeryError) -> None:
        self.trouble = error
        self._changed()

    def _take(self, events: Sequence[Event]) -> None:
        # What is said of messages, which is most of it, leaves the sessions as they are.
        if any(isinstance(event, _TELLING) for event in events):
            self._tell_of_sessions(events)
        for event in events:
            self._heard(event)

    def _tell_of_sessions(self, events: Sequence[Event]) -> None:
        for event in events:
            self._book.hear(event)
        before = self.sessions, self.trouble, self._known.is_set()
        self.sessions, self.trouble = self._book.sessions(), None
        self.status = aggregate(self.sessions)
        self._known.set()
        if before != (self.sessions, None, True):
            self._changed()
