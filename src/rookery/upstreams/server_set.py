"""The servers of one directory, as defined by its files, its user and its sessions.

Also their records as REST and the tools show them, and their membership in the views of the gateway.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rookery.gateway.conversations import ALL_CONVERSATIONS
from rookery.gateway.provider import CatalogProvider
from rookery.gateway.rules import CombinedRules, Level, Rules, Subjects, Switches, ToolPolicy, ViewRules
from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.config.permissions import Permissions
from rookery.upstreams.config.sources import ServerConfig
from rookery.upstreams.connect import ApprovalCheck
from rookery.upstreams.errors import approval_required
from rookery.upstreams.pool import ServerPool
from rookery.upstreams.server import Server

_STDERR_LINES = 20

# Clients of the newest revision have no session: each of their requests is independent.
SESSION_REQUIRED = 'it has the scope "session"; only clients that open a session can use it'


class ServerRecord(msgspec.Struct):
    """One server as status, REST and `hub_list_servers` show it.

    `problems` are its definitions of tools, prompts and resources that were repaired or left out. `withheld` counts
    those that are not served until the user decides, `findings` what the scanner found in its definitions: models read
    this record, so it has no text of either.
    """

    name: str
    workspace: str | None
    status: str
    error: str | None
    tools: int
    source: str
    shadowed: bool
    scope: str
    era: str | None
    kind: str
    stderr: list[str]
    diagnosis: list[str] = []
    problems: list[str] = []
    withheld: int = 0
    findings: int = 0


@dataclass
class ServerSlot:
    """A definition in effect, and its servers by session.

    `blocked_status` is the status that prevents its use, if any. `is_off` is whether it is enabled only for some
    conversations of the workspace's agent.
    """

    definition: Definition
    blocked_status: str | None = None
    is_off: bool = False
    servers: dict[str | None, Server] = field(default_factory=dict[str | None, Server])

    @property
    def is_per_session(self) -> bool:
        """Whether each session has its own server; callers without a session have none."""
        return self.definition.scope == "session"

    @property
    def needs_approval(self) -> bool:
        """Whether it needs approval: from the beginning, or because a script changed before it was started."""
        refused = any(server.status == "needs_approval" for server in self.servers.values())
        return refused or self.blocked_status == "needs_approval"


@dataclass
class AddedServers:
    """Servers that were added at run time, by session; None is for all sessions."""

    by_session: dict[str | None, dict[str, Definition]] = field(default_factory=dict[str | None, dict[str, Definition]])

    def of(self, session: str | None) -> dict[str, Definition]:
        return self.by_session.get(session, {})

    def put(self, definition: Definition, session: str | None) -> None:
        self.by_session.setdefault(session, {})[definition.name] = definition

    def drop(self, name: str, session: str | None) -> bool:
        return self.by_session.get(session, {}).pop(name, None) is not None


def build_record(
    slot: ServerSlot, server: Server | None, workspace: str | None, session: str | None, *, off: bool = False
) -> ServerRecord:
    """Return the record of a slot. `server` is None if it has not been used yet or is held back.

    With `off` it is disabled for whom the record is about.
    """
    definition = slot.definition
    record = ServerRecord(
        name=definition.name,
        workspace=None if definition.is_app_wide else workspace,
        status=slot.blocked_status or "pending",
        error=slot.definition.unresolved or (SESSION_REQUIRED if slot.is_per_session and session is None else None),
        tools=0,
        source=str(definition.source),
        shadowed=False,
        scope=definition.scope,
        era=None,
        kind=definition.kind,
        stderr=[],
    )
    if server is not None:
        record.status = server.status
        record.error = server.error
        record.tools = len(server.catalog.tools) if server.catalog is not None else 0
        record.era = server.era
        record.diagnosis = server.diagnosis()
        record.problems = server.list_problems()
        record.withheld = len(server.catalog.withheld) if server.catalog is not None else 0
        record.findings = len(server.list_findings())
        record.stderr = server.redactor.clean(server.stderr.text()).splitlines()[-_STDERR_LINES:]
    if off:
        record.status = "disabled"
    return record


def build_shadowed_record(definition: Definition, workspace: str | None) -> ServerRecord:
    """Return the record of a definition that a higher source shadows."""
    return ServerRecord(
        definition.name,
        workspace,
        "disabled",
        None,
        0,
        str(definition.source),
        True,
        definition.scope,
        None,
        definition.kind,
        [],
    )


class ServerSet:
    """The servers of one directory, or the app-wide servers if `directory` is None.

    `project` is the main checkout of the project that the directory belongs to. `load` reads the files, `is_approved`
    checks whether the user has approved a definition. `on_record_changed` is called with the name and the new record of
    each server whose status a refresh has changed; the record is None if the server was removed.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        project: Path | None = None,
        pool: ServerPool,
        switches: Switches,
        added: Sequence[AddedServers],
        load: Callable[[], ServerConfig],
        is_approved: ApprovalCheck,
        on_record_changed: Callable[[str, ServerRecord | None], None] = lambda name, record: None,
    ) -> None:
        self.directory = directory
        self._project = project or directory
        self.config = ServerConfig()
        self._pool = pool
        self.switches = switches
        self._added = added
        self._load = load
        self._is_approved = is_approved
        self._on_record_changed = on_record_changed
        self._loaded = False
        # The set's own servers; the app-wide ones come after them in `added`.
        self.added = added[0]
        self._slots: dict[str | None, dict[str, ServerSlot]] = {}
        self._has_session_servers = False
        self._listeners: dict[Callable[[], None], Callable[[str], None]] = {}
        self._refreshing = asyncio.Lock()

    @property
    def workspace(self) -> str | None:
        return str(self.directory) if self.directory is not None else None

    def subjects(self, session: str | None, conversation: str | None = None) -> Subjects:
        """Return the subjects of the switches that apply to a caller of this server set."""
        subjects: dict[Level, str] = {"app": ""}
        if self.directory is not None:
            subjects |= {"project": str(self._project), "workspace": str(self.directory)}
        if session is not None:
            subjects["session"] = session
        if conversation is not None:
            subjects["conversation"] = conversation
        return subjects

    @property
    def conversations(self) -> frozenset[str]:
        """The conversations of the workspace's agent that have switches of their own."""
        return self.switches.conversations(str(self.directory)) if self.directory is not None else frozenset()

    def is_enabled(self, slot: ServerSlot, session: str | None = None, conversation: str | None = None) -> bool:
        """Return whether a server is enabled for a caller, or only for conversations other than its own."""
        if not self.conversations:
            return not slot.is_off
        return self._is_enabled(slot.definition, session, conversation)

    def _is_enabled(self, definition: Definition, session: str | None, conversation: str | None) -> bool:
        switched = self.switches.server(definition.name, self.subjects(session, conversation))
        return definition.enabled if switched is None else switched

    def session_key(self, session: str | None) -> str | None:
        """Return `session` if it sees anything else than callers without a session, else None."""
        return session if session is not None and (self._has_session_servers or session in self._slots) else None

    def servers(self, session: str | None = None, conversation: str | None = None) -> list[Server]:
        """Return the servers that may be used, also by `ALL_CONVERSATIONS`."""
        slots = [slot for slot in self._slots_for(session).values() if slot.blocked_status is None]
        if conversation != ALL_CONVERSATIONS:
            slots = [slot for slot in slots if self.is_enabled(slot, session, conversation)]
        return [self._server(slot, session) for slot in slots if session is not None or not slot.is_per_session]

    def slots(self, session: str | None = None) -> Iterator[ServerSlot]:
        yield from self._slots_for(session).values()

    def records(self, session: str | None = None, conversation: str | None = None) -> list[ServerRecord]:
        """Return the records of all servers, including shadowed ones. Creates no servers."""
        own = [
            build_record(
                slot,
                self._running(slot, session),
                self.workspace,
                session,
                off=not self.is_enabled(slot, session, conversation),
            )
            for slot in self._slots_for(session).values()
        ]
        return own + [build_shadowed_record(definition, self.workspace) for definition in self.config.shadowed]

    def awaiting_approval(self) -> list[Definition]:
        """Return the definitions that wait for approval."""
        return [slot.definition for slot in self._slots_for(None).values() if slot.needs_approval]

    def from_repository(self) -> list[Definition]:
        """Return the definitions that are not the user's own, approved or not."""
        return [slot.definition for slot in self._slots_for(None).values() if slot.definition.source.place != "user"]

    def find(self, name: str, session: str | None = None) -> ServerSlot:
        """Return the slot of a server. Raise `server-not-found` if there is none."""
        slot = self._slots_for(session).get(name)
        if slot is None:
            names = ", ".join(self._slots_for(session)) or "none"
            raise RookeryError("server-not-found", f"there is no MCP server {name!r}", f"known here: {names}")
        return slot

    def server(self, name: str, session: str | None = None) -> Server:
        """Return a server that may be used. Raise the reason if it may not be used."""
        slot = self.find(name, session)
        if slot.blocked_status == "needs_approval":
            raise approval_required(name)
        if slot.blocked_status == "failed":
            message = f'MCP server "{name}" failed: {slot.definition.unresolved}'
            raise RookeryError("upstream-failed", message, f"rookery mcp get {name}")
        if slot.blocked_status is not None or slot.is_off:
            raise RookeryError("server-unavailable", f'MCP server "{name}" is disabled', f"rookery mcp enable {name}")
        if session is None and slot.is_per_session:
            raise RookeryError(
                "server-unavailable", f'MCP server "{name}": {SESSION_REQUIRED}', "use it from such a client"
            )
        return self._server(slot, session)

    # Changes

    def contains(self, server: object) -> bool:
        """Return whether `server` belongs to this set, for any session."""
        return any(server is member for slot in self._all() for member in slot.servers.values())

    def listen(self, on_changed: Callable[[], None], on_session_ended: Callable[[str], None]) -> Callable[[], None]:
        """Add a listener and return a function that removes it.

        `on_changed` is called when servers, switches or rules change, `on_session_ended` when a session ends.
        """
        self._listeners[on_changed] = on_session_ended

        def stop() -> None:
            self._listeners.pop(on_changed, None)

        return stop

    async def refresh(self, *, reload: bool = True) -> None:
        """Apply the current files, approvals and switches. Servers that did not change keep running."""
        async with self._refreshing:
            if reload:
                self.config = self._load()
            # Checked once for all sessions, because a check may read files.
            definitions = self.config.servers
            unapproved = {
                definition.name: definition
                for definition in definitions
                if not await self._is_approved(definition, self.directory)
            }
            sessions = {
                None,
                *self.switches.sessions,
                *(session for added in self._added for session in added.by_session),
            }
            new = {session: self._build_slots(session, unapproved) for session in sessions}
            definitions = {slot.definition.digest: slot.definition for slots in new.values() for slot in slots.values()}
            await self._pool.load_catalogs(
                (definition, self.working_directory(definition)) for definition in definitions.values()
            )
            before = self.statuses()
            old, self._slots = self._slots, new
            self._has_session_servers = any(slot.is_per_session for slot in new[None].values())
            self._keep_servers(old, new)
            self._report(before)
        for changed in list(self._listeners):
            changed()

    def statuses(self) -> dict[str, str]:
        """Return the status of each server that callers without a session have. Creates no servers."""
        running = {name: (slot, self._running(slot, None)) for name, slot in self._slots_for(None).items()}
        return {
            name: "disabled" if slot.is_off else server.status if server else slot.blocked_status or "pending"
            for name, (slot, server) in running.items()
        }

    def running_status(self, slot: ServerSlot) -> str:
        """Return the status of a server that may be used by anybody, also if only by some conversations."""
        server = self._running(slot, None)
        return server.status if server is not None else "pending"

    def _report(self, before: Mapping[str, str]) -> None:
        """Report each status that changed. The first load of the files reports nothing."""
        after = self.statuses()
        slots = self._slots_for(None)
        loaded, self._loaded = self._loaded, True
        for name in [*after, *(before.keys() - after.keys())] if loaded else []:
            if name not in after:
                self._on_record_changed(name, None)
            elif after[name] != before.get(name):
                slot = slots[name]
                record = build_record(slot, self._running(slot, None), self.workspace, None, off=slot.is_off)
                self._on_record_changed(name, record)

    def end_session(self, session: str) -> None:
        """Give back the servers of a session that has ended."""
        for added in self._added:
            added.by_session.pop(session, None)
        own = self._slots.pop(session, {}).values()
        servers = [slot.servers.pop(session) for slot in self._all() if session in slot.servers]
        for server in servers + [server for slot in own for server in slot.servers.values()]:
            self._pool.release(server)
        for ended in list(self._listeners.values()):
            ended(session)

    def close(self) -> list[asyncio.Task[None]]:
        """Give back all servers. Return the tasks that stop those without another user."""
        closing = [self._pool.release(server) for slot in self._all() for server in slot.servers.values()]
        self._slots = {}
        return [task for task in closing if task is not None]

    def _all(self) -> list[ServerSlot]:
        return [slot for slots in self._slots.values() for slot in slots.values()]

    def _build_slots(self, session: str | None, unapproved: Mapping[str, Definition]) -> dict[str, ServerSlot]:
        definitions = {definition.name: definition for definition in self.config.servers}
        for added in reversed(self._added):
            definitions |= added.of(None) | (added.of(session) if session is not None else {})
        return {name: self._build_slot(definition, session, unapproved) for name, definition in definitions.items()}

    def _build_slot(
        self, definition: Definition, session: str | None, unapproved: Mapping[str, Definition]
    ) -> ServerSlot:
        is_off = not self._is_enabled(definition, session, None)
        if is_off and not any(self._is_enabled(definition, session, other) for other in self.conversations):
            return ServerSlot(definition, "disabled")
        if definition.unresolved:
            return ServerSlot(definition, "failed", is_off)
        status = "needs_approval" if unapproved.get(definition.name) is definition else None
        return ServerSlot(definition, status, is_off)

    def _keep_servers(
        self, old: dict[str | None, dict[str, ServerSlot]], new: dict[str | None, dict[str, ServerSlot]]
    ) -> None:
        """Keep the servers whose definition is still in effect, and give back the others."""
        for session, slots in old.items():
            for name, slot in slots.items():
                new_slot = new.get(session, {}).get(name)
                same = new_slot is not None and new_slot.definition.digest == slot.definition.digest
                if new_slot is not None and same and new_slot.blocked_status is None and not slot.needs_approval:
                    new_slot.servers = slot.servers
                    continue
                for server in slot.servers.values():
                    self._pool.release(server, retire=True)

    # Single servers

    def _slots_for(self, session: str | None) -> dict[str, ServerSlot]:
        return self._slots.get(session) or self._slots.get(None, {})

    def _server(self, slot: ServerSlot, session: str | None) -> Server:
        key = session if slot.is_per_session else None
        server = slot.servers.get(key)
        if server is None:
            where = self.working_directory(slot.definition)
            server = slot.servers[key] = self._pool.take(slot.definition, where, key, self.directory)
        return server

    def _running(self, slot: ServerSlot, session: str | None) -> Server | None:
        if slot.blocked_status is not None:
            return None
        key = session if slot.is_per_session else None
        return slot.servers.get(key) or self._pool.find(slot.definition, self.working_directory(slot.definition), key)

    def working_directory(self, definition: Definition) -> Path:
        """Return the folder that a server runs in. One of a repository runs in that, where its files were approved."""
        if self.directory is None or definition.is_app_wide:
            return Path.home()
        shared = definition.scope == "project" and definition.source.place == "user"
        return self._project if shared and self._project is not None else self.directory


@dataclass(frozen=True)
class ServerSetMembership:
    """The membership of a server set in a view.

    `only_server` names the server of a view with bare names. Without `with_servers` there are only toolsets.
    """

    server_set: ServerSet
    make_policy: Callable[[Permissions], ToolPolicy]
    toolsets: Sequence[CatalogProvider] = ()
    only_server: str | None = None
    with_servers: bool = True

    @property
    def workspace(self) -> str | None:
        return self.server_set.workspace

    def session_key(self, session: str | None) -> str | None:
        return self.server_set.session_key(session)

    def conversation_key(self, conversation: str | None) -> str | None:
        own = self.server_set.conversations
        return conversation if conversation in own or (own and conversation == ALL_CONVERSATIONS) else None

    def members(self, session: str | None, conversation: str | None = None) -> Sequence[CatalogProvider]:
        if not self.with_servers:
            return self.toolsets
        servers = self.server_set.servers(session, conversation)
        if self.only_server is not None:
            return [server for server in servers if server.name == self.only_server]
        return [*self.toolsets, *servers]

    def rules(self, session: str | None, conversation: str | None = None) -> Rules:
        if conversation == ALL_CONVERSATIONS:
            return CombinedRules([self.rules(session, other) for other in (None, *self.server_set.conversations)])
        return ViewRules(
            {slot.definition.name: slot.definition.tool_filters for slot in self.server_set.slots(session)},
            self.server_set.config.permissions.shown,
            self.server_set.switches,
            self.server_set.subjects(session, conversation),
            self.make_policy(self.server_set.config.permissions),
        )

    def describe_absent(self, session: str | None, may_own: Callable[[str], bool]) -> Sequence[str]:
        """Describe the servers that are not available and may own what was requested.

        The error of a server, which contains its output, is shown only if no other one may be meant.
        """
        absent = [
            record
            for record in self.server_set.records(session)
            if record.status not in ("connected", "stopped") and not record.shadowed and may_own(record.name)
            if self.with_servers and self.only_server in (None, record.name)
        ]
        return [
            f"{record.name} is {record.status}{f' ({record.error})' if record.error and len(absent) == 1 else ''}"
            for record in absent
        ]

    def is_present(self, member: CatalogProvider) -> bool:
        return member.is_builtin or self.server_set.contains(member)

    def listen(self, on_changed: Callable[[], None], on_session_ended: Callable[[str], None]) -> Callable[[], None]:
        return self.server_set.listen(on_changed, on_session_ended)
