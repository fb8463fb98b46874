"""The servers of one directory: what its files, its user and its sessions define, and what came of each."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rookery.gateway.switches import Subjects, Switches
from rookery.system.errors import RookeryError
from rookery.upstreams.connector import Approved
from rookery.upstreams.definition import Definition
from rookery.upstreams.pool import Pool
from rookery.upstreams.server import Server
from rookery.upstreams.slots import NO_SESSION, Added, Record, Slot, record_of, shadowed
from rookery.upstreams.sources import Found
from rookery.upstreams.waiting import needs_approval


class Fleet:
    """`directory` is None for what is app-wide; `project` is the main checkout of the project that it belongs to.

    `load` reads the files, `approved` asks what the user has said.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        project: Path | None = None,
        pool: Pool,
        switches: Switches,
        added: Sequence[Added],
        load: Callable[[], Found],
        approved: Approved,
    ) -> None:
        self.directory = directory
        self._project = project or directory
        self.found = Found()
        self._pool = pool
        self.switches = switches
        self._added = added
        self._load = load
        self._approved = approved
        # Its own; others, which hold everywhere, come after.
        self.added = added[0]
        self._slots: dict[str | None, dict[str, Slot]] = {}
        self._scoped = False
        self._listeners: dict[Callable[[], None], Callable[[str], None]] = {}
        self._refreshing = asyncio.Lock()

    @property
    def workspace(self) -> str | None:
        return str(self.directory) if self.directory is not None else None

    def subjects(self, session: str | None) -> Subjects:
        """Whom switches are about, for a caller of this fleet."""
        found: Subjects = {"app": ""}
        if self.directory is not None:
            found = {**found, "project": str(self._project), "workspace": str(self.directory)}
        return found if session is None else {**found, "session": session}

    def own(self, session: str | None) -> str | None:
        """The session, where it sees anything else than all others do."""
        return session if session is not None and (self._scoped or session in self._slots) else None

    def servers(self, session: str | None = None) -> list[Server]:
        """The servers that may be used."""
        slots = [slot for slot in self._for(session).values() if slot.held_back is None]
        return [self._server(slot, session) for slot in slots if session is not None or not slot.of_sessions]

    def slots(self, session: str | None = None) -> Iterator[Slot]:
        yield from self._for(session).values()

    def records(self, session: str | None = None) -> list[Record]:
        """Every known server, those that others stand before too. To look at them makes none."""
        slots = self._for(session).values()
        own = [record_of(slot, self._running(slot, session), self.workspace, session) for slot in slots]
        return own + [shadowed(one, self.workspace) for one in self.found.shadowed]

    def waiting(self) -> list[Definition]:
        """What waits for approval."""
        return [slot.definition for slot in self._for(None).values() if slot.waits]

    def find(self, name: str, session: str | None = None) -> Slot:
        slot = self._for(session).get(name)
        if slot is None:
            known = ", ".join(self._for(session)) or "none"
            raise RookeryError("server-not-found", f"there is no MCP server {name!r}", f"known here: {known}")
        return slot

    def server(self, name: str, session: str | None = None) -> Server:
        """A server that may be used, or the reason why it may not."""
        slot = self.find(name, session)
        if slot.held_back == "needs_approval":
            raise needs_approval(name)
        if slot.held_back is not None:
            raise RookeryError("server-unavailable", f'MCP server "{name}" is disabled', f"rookery mcp enable {name}")
        if session is None and slot.of_sessions:
            raise RookeryError("server-unavailable", f'MCP server "{name}": {NO_SESSION}', "use it from such a client")
        return self._server(slot, session)

    # ---- what changes

    def has(self, server: object) -> bool:
        """Whether it is one of these, for whichever session."""
        return any(server is one for slot in self._all() for one in slot.servers.values())

    def listen(self, changed: Callable[[], None], ended: Callable[[str], None]) -> Callable[[], None]:
        """`changed` is called when servers, switches or rules are others, `ended` when a session is over."""
        self._listeners[changed] = ended

        def stop() -> None:
            self._listeners.pop(changed, None)

        return stop

    async def refresh(self, *, reload: bool = True) -> None:
        """Take over what files, approvals and switches say now. What did not change goes on running."""
        async with self._refreshing:
            if reload:
                self.found = self._load()
            # Once, however many sessions see them: it may take looking at files.
            found = self.found.servers
            unapproved = {one.name: one for one in found if not await self._approved(one, self.directory)}
            sessions = {None, *self.switches.sessions, *(one for added in self._added for one in added.by_session)}
            wanted = {session: self._wanted(session, unapproved) for session in sessions}
            old, self._slots = self._slots, wanted
            self._scoped = any(slot.of_sessions for slot in wanted[None].values())
            self._keep(old, wanted)
        for changed in list(self._listeners):
            changed()

    def end_session(self, session: str) -> None:
        """Its own servers end with it."""
        for added in self._added:
            added.by_session.pop(session, None)
        own = self._slots.pop(session, {}).values()
        servers = [slot.servers.pop(session) for slot in self._all() if session in slot.servers]
        for server in servers + [one for slot in own for one in slot.servers.values()]:
            self._pool.give_back(server)
        for ended in list(self._listeners.values()):
            ended(session)

    def close(self) -> list[asyncio.Task[None]]:
        """Let all servers go; the tasks are those that are stopped because nobody else uses them."""
        closing = [self._pool.give_back(one) for slot in self._all() for one in slot.servers.values()]
        self._slots = {}
        return [task for task in closing if task is not None]

    def _all(self) -> list[Slot]:
        return [slot for slots in self._slots.values() for slot in slots.values()]

    def _wanted(self, session: str | None, unapproved: Mapping[str, Definition]) -> dict[str, Slot]:
        definitions = {one.name: one for one in self.found.servers}
        for added in reversed(self._added):
            definitions |= added.of(None) | (added.of(session) if session is not None else {})
        return {name: Slot(one, self._reason(one, session, unapproved)) for name, one in definitions.items()}

    def _reason(self, definition: Definition, session: str | None, unapproved: Mapping[str, Definition]) -> str | None:
        switched = self.switches.server(definition.name, self.subjects(session))
        if not (definition.enabled if switched is None else switched):
            return "disabled"
        return "needs_approval" if unapproved.get(definition.name) is definition else None

    def _keep(self, old: dict[str | None, dict[str, Slot]], new: dict[str | None, dict[str, Slot]]) -> None:
        """Servers whose definition still counts stay as they are, the others are given back."""
        for session, slots in old.items():
            for name, slot in slots.items():
                now = new.get(session, {}).get(name)
                same = now is not None and now.definition.digest == slot.definition.digest
                if now is not None and same and now.held_back is None and not slot.waits:
                    now.servers = slot.servers
                    continue
                for server in slot.servers.values():
                    self._pool.give_back(server)

    # ---- one server

    def _for(self, session: str | None) -> dict[str, Slot]:
        return self._slots.get(session) or self._slots.get(None, {})

    def _server(self, slot: Slot, session: str | None) -> Server:
        key = session if slot.of_sessions else None
        server = slot.servers.get(key)
        if server is None:
            where = self.where(slot.definition)
            server = slot.servers[key] = self._pool.take(slot.definition, where, key, self.directory)
        return server

    def _running(self, slot: Slot, session: str | None) -> Server | None:
        if slot.held_back is not None:
            return None
        key = session if slot.of_sessions else None
        return slot.servers.get(key) or self._pool.find(slot.definition, self.where(slot.definition), key)

    def where(self, definition: Definition) -> Path:
        """The folder that a server runs in. A repository's own never leave it: there its files were looked at."""
        if self.directory is None or definition.everywhere:
            return Path.home()
        shared = definition.scope == "project" and definition.source.place == "user"
        return self._project if shared and self._project is not None else self.directory
