"""All servers of all directories, for whoever lists, adds, switches or connects them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rookery.gateway.rules import ALLOWED
from rookery.gateway.switches import Level, Switch, Switches
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.upstreams.costs import Tool, tools_of
from rookery.upstreams.debugging import Examination, examine
from rookery.upstreams.definition import Definition, sealed
from rookery.upstreams.dialects import define_entry
from rookery.upstreams.fleet import Fleet
from rookery.upstreams.fleets import Fleets
from rookery.upstreams.following import Following
from rookery.upstreams.membership import FleetMembers
from rookery.upstreams.ourselves import without_ourselves
from rookery.upstreams.pool import Pool
from rookery.upstreams.reading import File
from rookery.upstreams.server import Server
from rookery.upstreams.slots import Added, Record
from rookery.upstreams.sources import Found
from rookery.upstreams.writing import remove_from_file, write_to_file

logger = logging.getLogger("rookery.upstreams")

# Adds to what was found what is wrong with its rules about tools.
Checked = Callable[[Found], Found]


class Hub:
    """Fleets are made when somebody first asks for their directory; None is what is app-wide."""

    def __init__(self, pool: Pool, switches: Switches, events: Bus, checked: Checked = lambda found: found) -> None:
        self._checked = checked
        self.switches = switches
        self.pool = pool
        self._events = events
        self._everywhere = Added()
        self._fleets = Fleets(self._make)
        self.files = Following(self._file_changed)
        self.signins = pool.connector.signins
        # Where Rookery itself is served, once that is known, and where its open workspaces are.
        self.own_port: int | None = None
        self.workspace_ports: set[int] = set()
        # Whether a session is still there: whatever is made for one ends with it, and else would never end.
        self.knows_session: Callable[[str], bool] = lambda session: False
        # The main checkout of the project that a directory is a workspace of.
        self.project_of: Callable[[Path], Path] = lambda directory: directory

    async def fleet(self, directory: Path | None, session: str | None = None) -> Fleet:
        if session is not None and not self.knows_session(session):
            raise RookeryError("session-not-found", f"there is no session {session!r}", "name an open one, or none")
        return await self._fleets.get(directory)

    async def let_go(self, directory: Path) -> bool:
        """Stop what runs for a directory that is closed; whether there was anything. It may come into use again."""
        self.files.forget(directory)
        return await self._fleets.let_go(directory)

    async def refresh(self, directory: Path | None = None, *, reload: bool = True) -> None:
        """Files, approvals or switches have changed: for one directory, or app-wide and so for all."""
        for fleet in [one for one in self._fleets if directory is None or one.directory == directory]:
            await fleet.refresh(reload=reload)

    async def start(self) -> None:
        await self.switches.load()
        self.files.start()

    async def close(self) -> None:
        await self.files.close()
        self._fleets.close()
        await self.pool.close()

    def _make(self, directory: Path | None) -> Fleet:
        added = [self._everywhere] if directory is None else [Added(), self._everywhere]
        return Fleet(
            directory,
            project=self.project_of(directory) if directory is not None else None,
            pool=self.pool,
            switches=self.switches,
            added=added,
            load=lambda: self._checked(without_ourselves(self.files.read(directory), self._own_ports())),
            approved=self.pool.connector.approved,
        )

    def _own_ports(self) -> set[int]:
        return self.workspace_ports | ({self.own_port} if self.own_port is not None else set())

    # ---- what is asked for

    async def records(self, directory: Path | None, session: str | None = None) -> list[Record]:
        return (await self.fleet(directory, session)).records(session)

    async def all_records(self) -> list[Record]:
        """Of every directory that is in use, and app-wide; what is shared is told once."""
        await self.fleet(None)
        found = {(one.name, one.workspace, one.source): one for fleet in self._fleets for one in fleet.records()}
        return list(found.values())

    async def tools(self, directory: Path | None, session: str | None, wanted: str | None) -> list[Tool]:
        """The tools of all servers, or of one; waits for every one that is starting."""
        fleet = await self.fleet(directory, session)
        servers = [fleet.server(wanted, session)] if wanted is not None else fleet.servers(session)
        starting = [wait for one in servers if (wait := one.use()) is not None]
        if starting:
            await asyncio.wait(starting)
        if wanted is not None and servers[0].catalog is None:
            raise servers[0].failure()
        rules = FleetMembers(fleet, lambda _: lambda server, tool, public: ALLOWED).rules(session)
        return list(tools_of(servers, rules))

    def waiting(self) -> list[tuple[Definition, Path]]:
        """What waits for approval, and the checkouts that it was found in."""
        fleets = [(fleet, fleet.directory) for fleet in self._fleets]
        return [(one, where) for fleet, where in fleets if where is not None for one in fleet.waiting()]

    async def add(self, directory: Path | None, session: str | None, name: str, config: Mapping[str, Any]) -> None:
        """Define a server until it is removed or Rookery stops, and connect it; how that went is in its record."""
        definition = define_entry(name, config, "added while running")
        if session is not None:
            # Whatever it says of itself: nobody else is to see it, and nobody else would end it.
            definition = sealed(msgspec.structs.replace(definition, scope="session"))
        fleet = await self.fleet(directory, session)
        fleet.added.put(definition, session)
        await self.refresh(directory, reload=False)
        if fleet.find(name, session).held_back is None:
            await self._try(fleet.server(name, session))

    async def remove(self, directory: Path | None, session: str | None, name: str) -> Definition:
        """Take away what was added while running, or else its entry in the file that defines it."""
        fleet = await self.fleet(directory, session)
        definition = fleet.find(name, session).definition
        if definition.source.line:
            await asyncio.to_thread(remove_from_file, directory, definition)
            await self.files.read_again()
        elif not fleet.added.drop(name, session):
            self._everywhere.drop(name, None)
        await self.switches.forget(name, fleet.subjects(session))
        await self.refresh(reload=False)
        return definition

    async def write(self, file: File, name: str, config: Mapping[str, Any], force: bool) -> None:
        """Define a server in a file, from where it counts at once."""
        await asyncio.to_thread(write_to_file, file, name, config, force=force)
        await self.files.read_again()

    async def connect(self, directory: Path | None, session: str | None, name: str) -> None:
        await self._try((await self.fleet(directory, session)).server(name, session))

    async def disconnect(self, directory: Path | None, session: str | None, name: str) -> None:
        await (await self.fleet(directory, session)).server(name, session).disconnect()

    async def debug(self, directory: Path | None, session: str | None, name: str) -> Examination:
        """Try a server beside the one that may be running, and tell each step."""
        fleet = await self.fleet(directory, session)
        definition = fleet.find(name, session).definition
        found = await examine(definition, fleet.where(definition), directory, self.pool.connector)
        found.problems = [str(problem) for problem in fleet.found.problems if problem.server == name]
        return found

    async def switch(
        self, directory: Path | None, session: str | None, name: str, *, tool: str | None, level: Level, enabled: bool
    ) -> None:
        """Switch a server, or those of its tools that match, on or off."""
        fleet = await self.fleet(directory, session)
        fleet.find(name, session)
        subject = fleet.subjects(session).get(level)
        if subject is None:
            raise RookeryError(
                "invalid-input", f"there is no {level} here to switch {name} for", "name a workspace or a session"
            )
        pattern = name if tool is None else f"{name}/{tool}"
        await self.switches.set(Switch(level, subject, pattern, enabled))
        await self.refresh(directory if level != "app" else None, reload=False)
        self._events.publish("mcp.switched", server=name, tool=tool, level=level, enabled=enabled)

    def end_session(self, session: str) -> None:
        """What belonged to a session ends with it."""
        self.switches.end_session(session)
        for fleet in self._fleets:
            fleet.end_session(session)

    async def _file_changed(self, directory: Path | None) -> None:
        if (fleet := self._fleets.find(directory)) is not None:
            await fleet.refresh()
            self._events.publish("mcp.config", workspace=fleet.workspace, problems=len(fleet.found.problems))

    async def _try(self, server: Server) -> None:
        """Whatever comes of it is the server's status."""
        try:
            await server.connect()
        except RookeryError as error:
            logger.info('MCP server "%s" failed: %s', server.name, error.message)
