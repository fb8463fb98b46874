"""The operations on pins of MCP servers: show what is withheld, approve, block, trust, and scan what servers list."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rookery.guard.audit.records import RecordDecision, ignore_decision
from rookery.guard.pins.definition import DefinitionKey, PinKind
from rookery.guard.pins.difference import FieldDifference, compare_definitions
from rookery.guard.pins.gate import PinGate
from rookery.guard.pins.records import Pin, PinnedServer, PinOwner, SeenDefinition
from rookery.guard.scan.findings import ScanFinding, ScanReport
from rookery.operations.operation import Caller, Interface, NoParameters, Parameters, RestRoute, operation
from rookery.operations.servers.control import ForWorkspace, ServerSelector
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.server import Server

_NO_LIST: Mapping[Interface, str] = {
    "mcp": "what is withheld is shown only over the Unix socket: its text is addressed to models"
}
_NO_DECISION: Mapping[Interface, str] = {
    "mcp": "a person decides, over the Unix socket; behind MCP there is a model, which could release what it was told"
}
_NO_SCAN: Mapping[Interface, str] = {"mcp": "the findings quote text that is addressed to models"}
_START_SECONDS = 90.0

ServerName = Annotated[str, Meta(description="Name of the server")]
Place = Annotated[str, Meta(description="Whose server it is, as listed: empty for those in the user's own files")]
Program = Annotated[str, Meta(description="Which of the servers with this name and place, as listed")]


class WaitingDefinition(msgspec.Struct, frozen=True):
    """A definition that is withheld. `difference` is against the newest pinned content; against nothing if it is new.

    `reason` is `changed`, `new`, `severe` or `lost`; `pinned_at` and `pinned_version` are empty for a new one.
    """

    kind: PinKind
    name: str
    digest: str
    reason: str
    version: str
    at: float
    pinned_version: str
    pinned_at: float | None
    difference: Sequence[FieldDifference]
    findings: Sequence[ScanFinding]


class PinnedDefinitionRecord(msgspec.Struct, frozen=True):
    """A definition that is pinned or blocked; one that is blocked has no digest."""

    kind: PinKind
    name: str
    digest: str
    state: Literal["pinned", "blocked"]
    by: str
    version: str
    at: float


class ServerPinsRecord(msgspec.Struct, frozen=True):
    """The pins of one server. `additions`: its new definitions are pinned without asking."""

    name: str
    place: str
    program: str
    at: float
    additions: bool
    blocked: bool
    waiting: Sequence[WaitingDefinition]
    pinned: Sequence[PinnedDefinitionRecord]


class PinsList(msgspec.Struct, frozen=True):
    """The pins of all servers. `lost`: they were changed from outside, and every definition waits."""

    servers: Sequence[ServerPinsRecord]
    lost: bool


class PinDecision(msgspec.Struct, frozen=True):
    """The definitions that were decided about."""

    name: str
    definitions: Sequence[str]


class DefinitionName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: PinKind
    name: str


class ApprovedDefinition(DefinitionName, frozen=True, forbid_unknown_fields=True):
    digest: Annotated[str, Meta(description="Digest of the content, as it was shown; empty to unblock")]


class ApprovePins(Parameters):
    name: ServerName
    place: Place
    program: Program
    definitions: Annotated[list[ApprovedDefinition], Meta(description="The definitions to release")]
    server: Annotated[bool, Meta(description="Also unblock the server")] = False
    accept_loss: Annotated[bool, Meta(description="Trust first listings again, after the pins were lost")] = False


class BlockPins(Parameters):
    name: ServerName
    place: Place
    program: Program
    definitions: Annotated[list[DefinitionName], Meta(description="The definitions; none for the whole server")]


class TrustServer(Parameters):
    name: ServerName
    place: Place
    program: Program
    additions: Annotated[bool, Meta(description="Whether new definitions are pinned without asking")]


class ScanServers(ForWorkspace):
    servers: Annotated[list[str], Meta(description="Names of servers; none for all")] = msgspec.field(
        default_factory=list[str]
    )


class PinOperations:
    """The operations on pins. `on_changed` is called with the name of a server after each decision about it."""

    group = "pins"

    def __init__(
        self,
        gate: PinGate,
        selector: ServerSelector,
        events: Bus,
        on_changed: Callable[[str], Awaitable[None]],
        find_owner: Callable[[Definition, Path | None], PinOwner],
        record: RecordDecision = ignore_decision,
    ) -> None:
        self._record = record
        self._gate = gate
        self._pins = gate.pins
        self._selector = selector
        self._events = events
        self._on_changed = on_changed
        self._find_owner = find_owner

    @operation(access="socket", changes=False, rest=RestRoute("GET", "/api/guard/pins"), absent=_NO_LIST)
    async def list(self, caller: Caller, arguments: NoParameters) -> PinsList:
        """The pins of all servers, and what is withheld with its difference and findings; Unix socket only."""
        servers = [await self._describe(server) for server in await self._pins.list_servers()]
        return PinsList(servers, await self._pins.are_lost())

    @operation(access="terminal", rest=RestRoute("POST", "/api/guard/pins/approve"), absent=_NO_DECISION)
    async def approve(self, caller: Caller, arguments: ApprovePins) -> PinDecision:
        """Release definitions with the contents that were shown; only for a person at a terminal."""
        digests = {DefinitionKey(item.kind, item.name): item.digest for item in arguments.definitions}
        await self._pins.approve(_owner(arguments), digests, server=arguments.server)
        if arguments.accept_loss:
            await self._pins.accept_loss()
        self._record_decision("approved", "terminal", arguments, digests)
        return await self._publish("guard.pins.approved", arguments, digests)

    @operation(access="person", rest=RestRoute("POST", "/api/guard/pins/block"), absent=_NO_DECISION)
    async def block(self, caller: Caller, arguments: BlockPins) -> PinDecision:
        """Withhold definitions, or a whole server, for good; not for processes that Rookery started."""
        keys = [DefinitionKey(item.kind, item.name) for item in arguments.definitions]
        await self._pins.block(_owner(arguments), keys or None)
        self._record_decision("blocked", "person", arguments, await self._find_digests(_owner(arguments), keys))
        return await self._publish("guard.pins.blocked", arguments, keys)

    @operation(access="terminal", rest=RestRoute("POST", "/api/guard/pins/trust"), absent=_NO_DECISION)
    async def trust(self, caller: Caller, arguments: TrustServer) -> PinDecision:
        """Let a server add definitions without asking, or no longer; only for a person at a terminal."""
        await self._pins.trust(_owner(arguments), additions=arguments.additions)
        self._record_decision("trusted" if arguments.additions else "untrusted", "terminal", arguments, {})
        return await self._publish("guard.pins.trusted", arguments, (), additions=arguments.additions)

    @operation(rest=RestRoute("POST", "/api/guard/scan"), time_limit=300.0, absent=_NO_SCAN)
    async def scan(self, caller: Caller, arguments: ScanServers) -> Sequence[ScanReport]:
        """Start all servers of a workspace, or the named ones, and scan the definitions that they list."""
        directory = await self._selector.find_directory(caller, arguments)
        server_set = await self._selector.hub.server_set(directory)
        names = dict.fromkeys(arguments.servers)
        servers = [server_set.server(name) for name in names] if names else server_set.servers()
        starting = [future for server in servers if (future := server.use(current=True)) is not None]
        if starting:
            await asyncio.wait(starting, timeout=_START_SECONDS)
        failed = [server for server in servers if server.listed is None]
        if failed and names:
            raise failed[0].failure()
        reports = [await self._scan(server, directory) for server in servers]
        return [report for group in reports for report in group]

    async def _scan(self, server: Server, directory: Path | None) -> "Sequence[ScanReport]":
        owner = self._find_owner(server.definition, directory)
        if server.listed is None:
            return []
        return await self._gate.scan_catalog(owner, server.directory, server.listed)

    async def _describe(self, server: PinnedServer) -> ServerPinsRecord:
        waiting = [pin for pin in server.pins if pin.state == "waiting"]
        seen = [SeenDefinition(pin.key, pin.digest, pin.content) for pin in waiting]
        findings = await self._gate.find_findings(server.owner, seen)
        newest = {pin.key: pin for pin in server.pins if pin.state == "pinned"}
        return ServerPinsRecord(
            *server.owner,
            server.at,
            server.additions,
            server.blocked,
            # A large difference takes a while.
            [
                await asyncio.to_thread(_describe_waiting, pin, newest.get(pin.key), findings.get(pin.digest, ()))
                for pin in waiting
            ],
            [
                PinnedDefinitionRecord(
                    pin.kind,
                    pin.definition,
                    pin.digest,
                    "blocked" if pin.state == "blocked" else "pinned",
                    pin.by,
                    pin.version,
                    pin.at,
                )
                for pin in server.pins
                if pin.state != "waiting"
            ],
        )

    async def _find_digests(self, owner: PinOwner, keys: "Sequence[DefinitionKey]") -> dict[DefinitionKey, str]:
        """Return the digest of each definition as it was listed last, or as it is pinned."""
        pins = await self._pins.find(owner)
        if pins is None:
            return dict.fromkeys(keys, "")
        return {
            key: pins.waiting[key][0] if key in pins.waiting else next(reversed(pins.pinned.get(key, {"": ""})))
            for key in keys
        }

    def _record_decision(
        self,
        verdict: str,
        by: str,
        arguments: ApprovePins | BlockPins | TrustServer,
        digests: Mapping[DefinitionKey, str],
    ) -> None:
        """Record a decision in the audit: about each definition, or about the server."""
        about = [(key.kind, key.name, digest) for key, digest in digests.items()]
        for kind, name, digest in about or [("mcp-server", arguments.name, "")]:
            detail = {
                "kind": kind,
                "name": name,
                "place": arguments.place,
                "digest": digest.rpartition(":")[2],
                "by": by,
            }
            self._record("approval", verdict, server=arguments.name, detail=detail)

    async def _publish(
        self,
        event: str,
        arguments: ApprovePins | BlockPins | TrustServer,
        keys: "Mapping[DefinitionKey, str] | Sequence[DefinitionKey]",
        **more: bool,
    ) -> PinDecision:
        """Publish a decision, and apply it to the running servers."""
        definitions = [f"{key.kind}:{key.name}" if key.name else key.kind for key in keys]
        self._events.publish(event, server=arguments.name, place=arguments.place, definitions=definitions, **more)
        await self._on_changed(arguments.name)
        return PinDecision(arguments.name, definitions)


def _describe_waiting(pin: Pin, pinned: Pin | None, findings: Sequence[ScanFinding]) -> WaitingDefinition:
    return WaitingDefinition(
        pin.kind,
        pin.definition,
        pin.digest,
        pin.reason,
        pin.version,
        pin.at,
        pinned.version if pinned is not None else "",
        pinned.at if pinned is not None else None,
        compare_definitions(pinned.content if pinned is not None else None, pin.content),
        findings,
    )


def _owner(arguments: ApprovePins | BlockPins | TrustServer) -> PinOwner:
    if not arguments.name:
        raise RookeryError("invalid-input", "the name of a server is empty", "list the pins: rookery guard diff")
    return PinOwner(arguments.name, arguments.place, arguments.program)
