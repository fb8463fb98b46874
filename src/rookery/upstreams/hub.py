"""All servers of all directories: list, add, remove, switch, connect and debug them.

The servers of a directory are loaded when they are first requested.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rookery.gateway.rules import ALLOWED, Level, Switch, Switches
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Definition, add_digests
from rookery.upstreams.config.dialects import define_server
from rookery.upstreams.config.edit import remove_server, write_server
from rookery.upstreams.config.live import ConfigWatcher
from rookery.upstreams.config.sources import ConfigFile, ServerConfig, exclude_self
from rookery.upstreams.debug import DebugReport, debug_server
from rookery.upstreams.pool import ServerPool
from rookery.upstreams.server import Server
from rookery.upstreams.server_set import AddedServers, ServerRecord, ServerSet, ServerSetMembership
from rookery.upstreams.tool_costs import ToolCost, list_tool_costs

logger = logging.getLogger("rookery.mcp.servers")


class ServerSets:
    """The server sets by directory; None is the app-wide one."""

    def __init__(self, make: Callable[[Path | None], ServerSet]) -> None:
        self._make = make
        self._sets: dict[Path | None, ServerSet] = {}
        self._locks: defaultdict[Path | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __iter__(self) -> Iterator[ServerSet]:
        yield from list(self._sets.values())

    def find(self, directory: Path | None) -> ServerSet | None:
        return self._sets.get(directory)

    async def get(self, directory: Path | None) -> ServerSet:
        """Return the server set of a directory. The first use creates and loads it."""
        if directory in self._sets:
            return self._sets[directory]
        # One lock per directory, so that no directory waits for the files of another.
        async with self._locks[directory]:
            if directory not in self._sets:
                server_set = self._make(directory)
                await server_set.refresh()
                self._sets[directory] = server_set
            return self._sets[directory]

    async def release(self, directory: Path | None) -> bool:
        """Stop the servers of a directory and wait until they have ended. Return whether there were any."""
        async with self._locks[directory]:
            server_set = self._sets.pop(directory, None)
            closing = server_set.close() if server_set is not None else []
            if closing:
                await asyncio.wait(closing)
        return bool(closing)

    def close(self) -> None:
        for server_set in self:
            server_set.close()
        self._sets.clear()


# Adds the problems of the tool rules to a configuration that was read.
ConfigCheck = Callable[[ServerConfig], ServerConfig]


class Hub:
    """The server sets of all directories, each created on first use; the directory None is app-wide."""

    def __init__(
        self, pool: ServerPool, switches: Switches, events: Bus, check_config: ConfigCheck = lambda config: config
    ) -> None:
        self._check_config = check_config
        self.switches = switches
        self.pool = pool
        self._events = events
        self._app_wide = AddedServers()
        self._server_sets = ServerSets(self._make)
        self.config_watcher = ConfigWatcher(self._file_changed)
        self.signins = pool.connector.signins
        # The port of Rookery itself, once it is known, and the ports of its open workspaces.
        self.own_port: int | None = None
        self.workspace_ports: set[int] = set()
        # Returns whether a session is open. Its servers end with it; those of a closed session would never end.
        self.is_session_open: Callable[[str], bool] = lambda session: False
        # Returns the main checkout of the project that a directory is a workspace of.
        self.find_project: Callable[[Path], Path] = lambda directory: directory

    async def server_set(self, directory: Path | None, session: str | None = None) -> ServerSet:
        """Return the server set of a directory. Raise `session-not-found` if `session` is not open."""
        if session is not None and not self.is_session_open(session):
            remedy = "use an open session: rookery status --json lists them under daemon.clients"
            raise RookeryError("session-not-found", f"there is no client session {session!r}", remedy)
        return await self._server_sets.get(directory)

    def find_set(self, directory: Path | None) -> ServerSet | None:
        """Return the server set of a directory if it is in use. Creates nothing."""
        return self._server_sets.find(directory)

    async def release(self, directory: Path) -> bool:
        """Stop the servers of a closed directory. Return whether there were any. The directory may be used again."""
        self.config_watcher.forget(directory)
        return await self._server_sets.release(directory)

    async def refresh(self, directory: Path | None = None, *, reload: bool = True) -> None:
        """Apply changed files, approvals or switches, to one directory or, if they are app-wide, to all."""
        for server_set in [item for item in self._server_sets if directory is None or item.directory == directory]:
            await server_set.refresh(reload=reload)

    async def start(self) -> None:
        await self.switches.load()
        await self.pool.catalogs.prune()
        self.config_watcher.start()

    async def close(self) -> None:
        await self.config_watcher.close()
        self._server_sets.close()
        await self.pool.close()

    def _make(self, directory: Path | None) -> ServerSet:
        added = [self._app_wide] if directory is None else [AddedServers(), self._app_wide]
        return ServerSet(
            directory,
            project=self.find_project(directory) if directory is not None else None,
            pool=self.pool,
            switches=self.switches,
            added=added,
            load=lambda: self._check_config(exclude_self(self.config_watcher.read(directory), self._own_ports())),
            is_approved=self.pool.connector.is_approved,
            on_record_changed=lambda name, record: self._publish(directory, name, record),
        )

    def _publish(self, directory: Path | None, name: str, record: ServerRecord | None) -> None:
        workspace = str(directory) if directory is not None else None
        if record is None:
            self._events.publish("mcp.removed", server=name, workspace=workspace)
        else:
            about = {"status": record.status, "error": record.error}
            self._events.publish("mcp.status", server=name, workspace=workspace, **about)

    def _own_ports(self) -> set[int]:
        return self.workspace_ports | ({self.own_port} if self.own_port is not None else set())

    # Operations

    async def records(self, directory: Path | None, session: str | None = None) -> list[ServerRecord]:
        return (await self.server_set(directory, session)).records(session)

    async def all_records(self) -> list[ServerRecord]:
        """Return the records of all directories in use and of the app-wide servers; shared servers only once."""
        await self.server_set(None)
        records = {
            (record.name, record.workspace, record.source): record
            for server_set in self._server_sets
            for record in server_set.records()
        }
        return list(records.values())

    async def tools(self, directory: Path | None, session: str | None, wanted: str | None) -> list[ToolCost]:
        """Return the tools of all servers, or of the server `wanted`. Wait for each server that is starting."""
        server_set = await self.server_set(directory, session)
        servers = [server_set.server(wanted, session)] if wanted is not None else server_set.servers(session)
        starting = [future for server in servers if (future := server.use()) is not None]
        if starting:
            await asyncio.wait(starting)
        if wanted is not None and servers[0].catalog is None:
            raise servers[0].failure()
        rules = ServerSetMembership(server_set, lambda _: lambda server, tool, public: ALLOWED).rules(session)
        return list(list_tool_costs(servers, rules))

    def awaiting_approval(self) -> list[tuple[Definition, Path]]:
        """Return the definitions that wait for approval, and the checkouts that they were found in."""
        server_sets = [(server_set, server_set.directory) for server_set in self._server_sets]
        return [
            (definition, checkout)
            for server_set, checkout in server_sets
            if checkout is not None
            for definition in server_set.awaiting_approval()
        ]

    def from_repositories(self) -> list[tuple[Definition, Path]]:
        """Return the definitions that are not the user's own, and the checkouts that they were found in."""
        server_sets = [(server_set, server_set.directory) for server_set in self._server_sets]
        return [
            (definition, checkout)
            for server_set, checkout in server_sets
            if checkout is not None
            for definition in server_set.from_repository()
        ]

    async def add(self, directory: Path | None, session: str | None, name: str, config: Mapping[str, Any]) -> None:
        """Define a server until it is removed or Rookery stops, and connect it. The result is in its record."""
        definition = define_server(name, config, "added while running")
        if session is not None:
            # Regardless of the scope it names: only this session may see it, and only its end stops it.
            definition = add_digests(msgspec.structs.replace(definition, scope="session"))
        server_set = await self.server_set(directory, session)
        server_set.added.put(definition, session)
        await self.refresh(directory, reload=False)
        if server_set.find(name, session).blocked_status is None:
            await self._try_connect(server_set.server(name, session))

    async def remove(self, directory: Path | None, session: str | None, name: str) -> Definition:
        """Remove a server that was added at run time, or else its entry in the file that defines it."""
        server_set = await self.server_set(directory, session)
        definition = server_set.find(name, session).definition
        if definition.source.line:
            await asyncio.to_thread(remove_server, directory, definition)
            await self.config_watcher.read_again()
        elif not server_set.added.drop(name, session):
            self._app_wide.drop(name, None)
        await self.switches.forget(name, server_set.subjects(session))
        await self.refresh(reload=False)
        return definition

    async def write(self, file: ConfigFile, name: str, config: Mapping[str, Any], force: bool) -> None:
        """Write a server into a file. The definition takes effect at once."""
        await asyncio.to_thread(write_server, file, name, config, force=force)
        await self.config_watcher.read_again()

    async def connect(self, directory: Path | None, session: str | None, name: str) -> None:
        await self._try_connect((await self.server_set(directory, session)).server(name, session))

    async def disconnect(self, directory: Path | None, session: str | None, name: str) -> None:
        await (await self.server_set(directory, session)).server(name, session).disconnect()

    async def debug(
        self, directory: Path | None, session: str | None, name: str, *, trace: bool = False
    ) -> DebugReport:
        """Connect to a server beside the one that may be running, and report each step.

        With `trace`, also report the system calls that its sandbox has refused.
        """
        server_set = await self.server_set(directory, session)
        definition = server_set.find(name, session).definition
        report = await debug_server(
            definition, server_set.working_directory(definition), directory, self.pool.connector, trace=trace
        )
        report.problems = [str(problem) for problem in server_set.config.problems if problem.server == name]
        return report

    async def switch(
        self,
        directory: Path | None,
        session: str | None,
        name: str,
        *,
        tool: str | None,
        level: Level,
        enabled: bool,
        conversation: str | None = None,
    ) -> None:
        """Switch a server, or those of its tools that match, on or off."""
        server_set = await self.server_set(directory, session)
        server_set.find(name, session)
        subject = server_set.subjects(session, conversation).get(level)
        if subject is None:
            raise RookeryError(
                "invalid-input", f"there is no {level} here to switch {name} for", "name a workspace or a session"
            )
        pattern = name if tool is None else f"{name}/{tool}"
        workspace = server_set.workspace or "" if level == "conversation" else ""
        await self.switches.set(Switch(level, subject, pattern, enabled, workspace))
        # Refresh all affected sets: the other workspaces of the project, and every view that a session may have.
        for affected in self._server_sets:
            if level == "conversation":
                is_affected = affected is server_set
            else:
                is_affected = level == "session" or affected.subjects(None).get(level) == subject
            if is_affected:
                await affected.refresh(reload=False)
        about = {"session": conversation} if level == "conversation" else {}
        self._events.publish("mcp.switched", server=name, tool=tool, level=level, enabled=enabled, **about)

    def end_session(self, session: str) -> None:
        """End the switches and the servers of a session."""
        self.switches.end_session(session)
        for server_set in self._server_sets:
            server_set.end_session(session)

    async def _file_changed(self, directory: Path | None) -> None:
        if (server_set := self._server_sets.find(directory)) is not None:
            await server_set.refresh()
            self._events.publish("mcp.config", workspace=server_set.workspace, problems=len(server_set.config.problems))

    async def _try_connect(self, server: Server) -> None:
        """Connect a server. A failure is logged and shown as the server's status, and not raised."""
        try:
            await server.connect()
        except RookeryError as error:
            logger.info('MCP server "%s" failed: %s', server.name, error.message)
