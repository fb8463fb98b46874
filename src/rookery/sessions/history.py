"""The tools that sessions ran: read from their messages, those that were run by name among them."""

import asyncio
from pathlib import Path

import msgspec

from rookery.agents.records import Session
from rookery.sessions.finding import Finding, Found
from rookery.sessions.hidden import is_hidden
from rookery.sessions.records import ToolRun
from rookery.sessions.room import Room
from rookery.system.errors import RookeryError


class History:
    def __init__(self, finding: Finding) -> None:
        self._finding = finding

    async def of(self, found: Found, limit: int) -> list[ToolRun]:
        """The newest, in the order in which they began."""
        return _newest(await self._runs(found.room, found.session), limit)

    async def all(self, scope: Path | None, limit: int) -> list[ToolRun]:
        """Of all sessions. Those that were not used since the oldest of them began need not be read."""
        sessions = [(room, one) for room in self._finding.rooms(scope) for one in room.roots()]
        sessions.sort(key=lambda pair: -pair[1].time.updated)
        runs: list[ToolRun] = []
        for room, session in sessions:
            if len(runs) >= limit and session.time.updated < (runs[0].start or 0):
                break
            try:
                runs = _newest([*runs, *await self._runs(room, session)], limit)
            except RookeryError as error:
                if error.code != "session-not-found":
                    raise
        return runs

    async def _runs(self, room: Room, session: Session) -> list[ToolRun]:
        async with room.used() as life:
            hidden = [one for one in await life.client.children(session.id) if is_hidden(one)]
        books = await asyncio.gather(*(room.ledger.book(one) for one in (session, *hidden)))
        ids = [session.id, *(one.id for one in hidden)]
        return [
            msgspec.structs.replace(run, session_id=session.id)
            for id_, book in zip(ids, books, strict=True)
            for message in book.messages(running=room.running(id_))
            for run in message.parts
        ]


def _newest(runs: list[ToolRun], limit: int) -> list[ToolRun]:
    runs.sort(key=lambda run: (run.start or float("inf"), run.id))
    return runs[max(len(runs) - limit, 0) :]
