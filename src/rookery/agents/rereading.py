"""Reads the state of all sessions of an agent at once, for whoever may have missed events."""

import logging
from collections.abc import Collection, Iterable

from rookery.agents.client import SESSIONS, AgentClient
from rookery.agents.interruption import NEWEST, cut_off, last_of_assistant
from rookery.agents.records import Ask, Session
from rookery.agents.status import Snapshot
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.agents")

# Of so many sessions, those that were used last, the messages are read: a turn that was cut off is among them, and a
# folder may have thousands.
RECENT = 50
_UNSEEN: tuple[float | None, bool] = (None, False)


class Reader:
    """Remembers of which sessions it has read messages: one that was not used since need not be read again."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._verdicts: dict[str, tuple[float | None, bool]] = {}

    async def read(self, were_running: Collection[str] = ()) -> Snapshot:
        """Only what is read after a subscription is connected is as new as its events."""
        roots = await self._client.sessions()
        if len(roots) >= SESSIONS:
            logger.warning("%s has more than %d sessions; older ones are left out", self._client.directory, SESSIONS)
        doing = await self._client.statuses()
        asks: list[Ask] = [*await self._client.permissions(), *await self._client.questions()]
        asks = [ask for ask in asks if ask.session in doing and await self._is_open(ask)]
        kin = await self._kin({one.id for one in roots}, [*doing, *(ask.session for ask in asks)])
        # After `doing`: what is not whole and is not being worked on was cut off, or goes on with an event to come.
        idle = [one for one in roots if one.id not in doing]
        for one in idle[:RECENT]:
            await self._look_at(one, one.id in were_running)
        known = {one.id: self._verdicts.get(one.id, _UNSEEN) for one in idle}
        ended = [one.id for one in idle if known[one.id] == (one.time.updated, True)]
        self._verdicts = known
        return Snapshot((*roots, *kin), doing, tuple(asks), frozenset(ended))

    async def _kin(self, known: set[str], ids: Iterable[str]) -> list[Session]:
        """The children among `ids`, and all between them and their roots."""
        found: list[Session] = []
        for id_ in ids:
            at: str | None = id_
            while at is not None and at not in known:
                known.add(at)
                try:
                    session = await self._client.session(at)
                except RookeryError as error:
                    if error.code != "session-not-found":
                        raise
                    break
                found.append(session)
                at = session.parent
        return found

    async def _is_open(self, ask: Ask) -> bool:
        """One of an earlier turn is still listed if that turn was aborted, though nobody waits for its answer."""
        if ask.cause is None:
            return True
        try:
            last = last_of_assistant(await self._client.messages(ask.session, NEWEST))
        except RookeryError as error:
            if error.code != "session-not-found":
                raise
            return False
        return last is not None and last.info.id == ask.cause.message

    async def _look_at(self, session: Session, was_running: bool) -> None:
        if self._verdicts.get(session.id, _UNSEEN)[0] == session.time.updated:
            return
        try:
            messages = await self._client.messages(session.id, 1)
            if messages and messages[0].info.role != "assistant":
                messages = await self._client.messages(session.id, NEWEST)
        except RookeryError as error:
            if error.code != "session-not-found":
                raise
            return
        self._verdicts[session.id] = session.time.updated, cut_off(messages, was_running=was_running)
