"""Finds sessions: of those workspaces that the caller may see, and whose agent has run."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.agents.events import SessionSeen
from rookery.agents.life import Life
from rookery.agents.records import Session
from rookery.agents.service import AgentService
from rookery.agents.tenant import Tenant
from rookery.sessions.changes import Changes
from rookery.sessions.hidden import is_hidden
from rookery.sessions.records import SessionInfo, not_found
from rookery.sessions.room import Room
from rookery.sessions.shelf import Shelf
from rookery.sessions.tally import Tally
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

# How long whoever asks for all sessions waits for an agent to tell of its own.
_KNOWN_SECONDS = 10.0
# So many sessions are counted at a time.
_AT_ONCE = 8


@dataclass(frozen=True)
class Found:
    """A session, and where it is."""

    room: Room
    id: str

    @property
    def session(self) -> Session:
        """As it is now; raises where it is no longer open."""
        found = self.room.session(self.id)
        if found is None:
            raise not_found(self.id)
        return found

    @property
    def running(self) -> bool:
        return self.room.running(self.id)

    async def info(self, notes: tuple[str, ...] = ()) -> SessionInfo:
        return await self.room.info(self.session, notes)


class Finding:
    """One room for each workspace that has an agent."""

    def __init__(self, agents: AgentService, changes: Changes, shelf: Shelf, clock: Clock) -> None:
        self._agents, self._changes, self._shelf, self._clock = agents, changes, shelf, clock
        self._rooms: dict[Path, Room] = {}
        agents.listeners.append(self._began)

    def _began(self, tenant: Tenant, life: Life) -> None:
        path = tenant.workspace.path
        if path not in self._rooms:
            self._rooms[path] = Room(tenant, self._shelf, self._changes, self._clock, self._lives_here)
        self._rooms[path].began(tenant, life)

    def _lives_here(self, tenant: Tenant) -> bool:
        return self._agents.tenants.get(tenant.workspace.path) is tenant

    def room(self, tenant: Tenant) -> Room:
        """That of a workspace whose agent has run."""
        return self._rooms[tenant.workspace.path]

    def rooms(self, scope: Path | None) -> list[Room]:
        """Those that the caller may see. Those of workspaces that were closed are no more."""
        for path in self._rooms.keys() - self._agents.tenants.keys():
            self._rooms.pop(path).ledger.clear()
        return [room for path, room in self._rooms.items() if scope in (None, path)]

    async def find(self, id_: str, scope: Path | None) -> Found:
        rooms = self.rooms(scope)
        await self.known(rooms)
        for room in rooms:
            if (session := room.session(id_)) is not None:
                if is_hidden(session):
                    break
                return Found(room, id_)
        asked = await asyncio.gather(*(self._asked_for(room, id_) for room in rooms))
        for room, there in zip(rooms, asked, strict=True):
            if there:
                return Found(room, id_)
        raise self._missing(id_, scope)

    async def last(self, scope: Path | None) -> Found:
        """The root session that was active last."""
        rooms = self.rooms(scope)
        await self.known(rooms)
        used = [(used, room, id_) for room in rooms for id_, used in room.last_used().items() if room.session(id_)]
        if not used:
            raise RookeryError("session-not-found", "there is no open session", "begin one: create_session")
        _, room, id_ = max(used, key=lambda one: one[0])
        return Found(room, id_)

    async def open(self, scope: Path | None) -> list[SessionInfo]:
        """All root sessions, the one that was used last first."""
        rooms = self.rooms(scope)
        await self.known(rooms)
        turn = asyncio.Semaphore(_AT_ONCE)

        async def told(room: Room, session: Session) -> SessionInfo | None:
            async with turn:
                try:
                    return await room.info(session)
                except RookeryError as error:
                    # One agent that does not work hides no session of the others, nor its own.
                    return room.told(session, Tally(), (error.message,)) if error.code != "session-not-found" else None

        found = await asyncio.gather(*(told(room, one) for room in rooms for one in room.roots()))
        return sorted(filter(None, found), key=lambda one: (-one.last_activity, one.id))

    @asynccontextmanager
    async def used(self, found: Found) -> AsyncGenerator[Life]:
        """Its agent, kept awake until the end of the block."""
        async with found.room.used() as life:
            yield life

    async def known(self, rooms: Iterable[Room]) -> None:
        """Wait a while for agents that run and have not yet told of their sessions."""
        lives = [room.life for room in rooms if room.life is room.tenant.agent.life]
        waiting = [life.watcher.known() for life in lives if life is not None and life.sessions is None]
        if waiting:
            try:
                async with asyncio.timeout(_KNOWN_SECONDS):
                    await asyncio.gather(*waiting)
            except TimeoutError:
                pass  # the others are known all the same

    async def _asked_for(self, room: Room, id_: str) -> bool:
        """A child that nobody has told of yet."""
        life = room.tenant.agent.life
        if life is None or life.sessions is None:
            return False
        try:
            session = await life.client.session(id_)
        except RookeryError:
            return False
        life.watcher.learn(SessionSeen(session))
        return room.session(id_) is not None and not is_hidden(session)

    def _missing(self, id_: str, scope: Path | None) -> RookeryError:
        error = not_found(id_)
        tenants = [one for path, one in self._agents.tenants.items() if scope in (None, path)]
        late = [one.workspace.name for one in tenants if one.agent.state in ("starting", "restarting")]
        if late:
            error.remedy = f"the agent of {', '.join(late)} is still starting: try again in a moment"
        return error
