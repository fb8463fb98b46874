"""Reads the state of all sessions of an agent at once, for whoever may have missed events."""

import logging
from collections.abc import Collection, Iterable

from rookery.agents.client import SESSIONS, AgentClient
from rookery.agents.interruption import NEWEST, cut_off, last_of_assistant
from rookery.agents.records import Ask, Session
from rookery.agents.status import Snapshot
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.agents")


class Reader:
    """Remembers of which sessions it has read the messages: one that was not used since need not be read again."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._verdicts: dict[str, tuple[float, bool]] = {}

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
        ended = [one.id for one in idle if await self._was_cut_off(one, one.id in were_running)]
        self._verdicts = {one.id: self._verdicts[one.id] for one in idle if one.id in self._verdicts}
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

    async def _was_cut_off(self, session: Session, was_running: bool) -> bool:
        updated, verdict = self._verdicts.get(session.id, (None, False))
        if updated == session.time.updated:
            return verdict
        try:
            verdict = cut_off(await self._client.messages(session.id, NEWEST), was_running=was_running)
        except RookeryError as error:
            if error.code != "session-not-found":
                raise
            return False
        self._verdicts[session.id] = session.time.updated, verdict
        return verdict
