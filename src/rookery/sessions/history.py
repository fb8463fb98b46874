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
        """Of all sessions. Those that were not used since the oldest of them began need not be read.

        Agents that do not work hide nothing of the others.
        """
        rooms = self._finding.rooms(scope)
        await self._finding.known(rooms)
        sessions = [(used[one.id], room, one) for room in rooms for used in [room.last_used()] for one in room.roots()]
        sessions.sort(key=lambda each: -each[0])
        runs: list[ToolRun] = []
        failed: RookeryError | None = None
        for used, room, session in sessions:
            if len(runs) >= limit and used < (runs[0].start or 0):
                break
            try:
                runs = _newest([*runs, *await self._runs(room, session)], limit)
            except RookeryError as error:
                failed = error if error.code != "session-not-found" else failed
        if failed is not None and not runs:
            raise failed
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
