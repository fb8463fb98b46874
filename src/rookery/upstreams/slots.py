"""What there is for each server of a fleet: its definition, what became of it, and how people see that."""

from dataclasses import dataclass, field

import msgspec

from rookery.upstreams.definition import Definition
from rookery.upstreams.server import Server

_STDERR_LINES = 20

# Clients of the newest revision have none: every request of theirs stands by itself.
NO_SESSION = 'it has the scope "session", and only clients that open a session can use it'


class Record(msgspec.Struct):
    """One server as status, REST and `hub_list_servers` show it."""

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


@dataclass
class Slot:
    """One definition that counts, and the server that was made of it, unless something holds it back."""

    definition: Definition
    held_back: str | None = None
    servers: dict[str | None, Server] = field(default_factory=dict[str | None, Server])

    @property
    def of_sessions(self) -> bool:
        """Whether each session has its own; who has no session has none."""
        return self.definition.scope == "session"

    @property
    def waits(self) -> bool:
        """For approval: from the beginning, or because a script of it was another one when it was to be started."""
        refused = any(server.status == "needs_approval" for server in self.servers.values())
        return refused or self.held_back == "needs_approval"


@dataclass
class Added:
    """Servers that were added while running, by the session they were added for; None is for all."""

    by_session: dict[str | None, dict[str, Definition]] = field(default_factory=dict[str | None, dict[str, Definition]])

    def of(self, session: str | None) -> dict[str, Definition]:
        return self.by_session.get(session, {})

    def put(self, definition: Definition, session: str | None) -> None:
        self.by_session.setdefault(session, {})[definition.name] = definition

    def drop(self, name: str, session: str | None) -> bool:
        return self.by_session.get(session, {}).pop(name, None) is not None


def record_of(slot: Slot, server: Server | None, workspace: str | None, session: str | None) -> Record:
    """`server` is None where there is none: it was not used yet, or something holds it back."""
    one = slot.definition
    made = Record(
        name=one.name,
        workspace=None if one.everywhere else workspace,
        status=slot.held_back or "pending",
        error=NO_SESSION if slot.of_sessions and session is None else None,
        tools=0,
        source=str(one.source),
        shadowed=False,
        scope=one.scope,
        era=None,
        kind=one.kind,
        stderr=[],
    )
    if server is not None:
        made.status = server.status
        made.error = server.error
        made.tools = len(server.catalog.tools) if server.catalog is not None else 0
        made.era = server.client.revision if server.client is not None else None
        made.stderr = server.voice.clean(server.stderr.text()).splitlines()[-_STDERR_LINES:]
    return made


def shadowed(one: Definition, workspace: str | None) -> Record:
    """One that a higher source stands before."""
    return Record(one.name, workspace, "disabled", None, 0, str(one.source), True, one.scope, None, one.kind, [])
