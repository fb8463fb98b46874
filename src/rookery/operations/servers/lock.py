"""The operations on `mcp.lock`: write it, and compare the servers with it."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

import rookery
from rookery.gateway.provider import WITHHELD_REASONS, WithheldDefinition
from rookery.guard.lock.compare import CurrentServer, Drift, compare_servers, has_same_definition
from rookery.guard.lock.definition import list_facts
from rookery.guard.lock.file import LOCK_FILE, LockedServer, format_lock, read_lock, write_lock
from rookery.guard.lock.packages import PackageRequest, find_packages
from rookery.guard.lock.registry import PackageRegistries, ResolvedPackage
from rookery.guard.lock.sarif import make_drift_sarif
from rookery.guard.pins.gate import list_seen
from rookery.operations.operation import Caller, Interface, RestRoute, operation
from rookery.operations.servers.control import ForWorkspace, ServerSelector
from rookery.system.errors import RookeryError
from rookery.upstreams.check import ListedServer, list_servers_once
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.config.redact import redact_definition
from rookery.upstreams.hub import Hub
from rookery.upstreams.server_set import ServerSet, ServerSlot

_NOT_BY_A_MODEL: Mapping[Interface, str] = {
    "mcp": "what is locked counts as reviewed on other machines; a model could lock what it was told to"
}
_NOT_FOR_A_MODEL: Mapping[Interface, str] = {
    "mcp": "the differences quote definitions as they are now, and the text of a poisoned one is addressed to models"
}
_UNREACHED = {"needs_approval": "it needs approval: rookery guard approve"}


class LockServers(ForWorkspace):
    servers: Annotated[
        Sequence[str],
        Meta(
            description="Names of the servers to lock, also of the user's own; default: those that the repository "
            "defines, and those of the user that are in the file; if the repository defines none, all"
        ),
    ] = ()
    offline: Annotated[bool, Meta(description="If true, do not ask registries, and lock no packages")] = False


class CheckLock(ForWorkspace):
    servers: Annotated[Sequence[str], Meta(description="Names of the servers to compare; empty for all")] = ()
    offline: Annotated[bool, Meta(description="If true, do not ask registries, and do not compare packages")] = False
    sarif: Annotated[bool, Meta(description="If true, return the differences as SARIF too")] = False


class ServerInLock(msgspec.Struct, frozen=True):
    """A server as it was locked: its packages with their versions, and the number of its pins."""

    name: str
    packages: Mapping[str, str]
    pins: int


class LockProblem(msgspec.Struct, frozen=True):
    """Something that is not locked, and why."""

    server: str
    message: str


class LockWritten(msgspec.Struct, frozen=True):
    """The file, whether it changed, the servers in it that were locked now, and what is not locked."""

    file: str
    changed: bool
    servers: Sequence[ServerInLock]
    problems: Sequence[LockProblem]
    notes: Sequence[LockProblem]


class LockCheck(msgspec.Struct, frozen=True):
    """The comparison of the servers with the file. `ok` is false if a difference has the level error."""

    file: str
    ok: bool
    servers: Sequence[str]
    differences: Sequence[Drift]
    sarif: Mapping[str, Any] | None = None


class LockOperations:
    """The operations on `mcp.lock`. They start servers beside the running ones, as `server.check` does."""

    group = "lock"

    def __init__(self, selector: ServerSelector, registries: PackageRegistries) -> None:
        self._selector = selector
        self._registries = registries

    @property
    def _hub(self) -> Hub:
        return self._selector.hub

    @operation(access="person", rest=RestRoute("POST", "/api/guard/lock"), absent=_NOT_BY_A_MODEL)
    async def write(self, caller: Caller, arguments: LockServers) -> LockWritten:
        """Write mcp.lock: definitions, packages and pins; not for processes that Rookery started, Unix socket only."""
        directory = await self._find_directory(caller, arguments)
        server_set = await self._hub.server_set(directory)
        notes: list[LockProblem] = []
        try:
            text, old = await asyncio.to_thread(read_lock, directory)
        except RookeryError as error:
            if arguments.servers or error.code != "invalid-lock":
                raise
            text = ""
            old = dict[str, LockedServer]()
            notes.append(LockProblem("", f"the old file was not used: {error.message}"))
        names = _choose_servers(server_set, old, arguments.servers)
        listed = await self._list_servers(server_set, names)
        # What is withheld here must not be served elsewhere because it is locked.
        listed = [replace(server, listed=server.catalog) for server in listed]
        notes += [
            LockProblem(server.result.name, _describe_withheld(withheld))
            for server in listed
            if server.catalog is not None
            for withheld in server.catalog.withheld
        ]
        current = await self._describe_servers(server_set, listed, packages=not arguments.offline)
        problems = [LockProblem(name, server.problem) for name, server in current.items() if server.problem]
        problems += [
            LockProblem(name, f"{key}: {reason}")
            for name, server in current.items()
            for key, reason in server.unresolved.items()
        ]
        notes += [
            LockProblem(name, "it is switched off, so its lines stay as they are")
            for name, server in current.items()
            if server.disabled
        ]
        locked = {name: server.locked for name, server in current.items() if not (server.problem or server.disabled)}
        if arguments.offline:
            locked = {name: _keep_packages(server, old.get(name)) for name, server in locked.items()}
        new_text = format_lock((_keep_others(server_set, old, names) | locked).values())
        if new_text != text:
            await asyncio.to_thread(write_lock, directory, new_text)
        return LockWritten(
            file=str(directory / LOCK_FILE),
            changed=new_text != text,
            servers=[
                ServerInLock(name, {package.key: package.version for package in server.packages}, len(server.pins))
                for name, server in sorted(locked.items())
            ],
            problems=problems,
            notes=notes,
        )

    @operation(access="socket", rest=RestRoute("POST", "/api/guard/check"), absent=_NOT_FOR_A_MODEL)
    async def check(self, caller: Caller, arguments: CheckLock) -> LockCheck:
        """Start the servers once, and compare them with mcp.lock; returns the differences; Unix socket only."""
        directory = await self._find_directory(caller, arguments)
        server_set = await self._hub.server_set(directory)
        text, locked = await asyncio.to_thread(read_lock, directory)
        if not text:
            raise RookeryError(
                "lock-not-found",
                f"there is no {LOCK_FILE} in {directory}",
                "write it, and commit it: rookery guard lock",
            )
        defined = {slot.definition.name: slot.definition for slot in server_set.slots()}
        for name in arguments.servers:
            if name not in locked:
                server_set.find(name)
        wanted = [
            name
            for name, definition in defined.items()
            if (name in arguments.servers if arguments.servers else name in locked or _is_of_repository(definition))
        ]
        listed = await self._list_servers(server_set, wanted)
        current = await self._describe_servers(server_set, listed, packages=not arguments.offline)
        differences = compare_servers(locked, current, chosen=arguments.servers, packages=not arguments.offline)
        return LockCheck(
            file=str(directory / LOCK_FILE),
            ok=all(drift.level != "error" for drift in differences),
            servers=sorted(current),
            differences=differences,
            sarif=make_drift_sarif(differences, text, rookery.__version__) if arguments.sarif else None,
        )

    @operation(access="socket", changes=False, rest=RestRoute("GET", "/api/guard/drift"), absent=_NOT_FOR_A_MODEL)
    async def drift(self, caller: Caller, arguments: ForWorkspace) -> LockCheck:
        """The differences between mcp.lock and what servers listed last; starts no server, Unix socket only."""
        directory = await self._find_directory(caller, arguments)
        server_set = await self._hub.server_set(directory)
        text, locked = await asyncio.to_thread(read_lock, directory)
        current = {
            slot.definition.name: await asyncio.to_thread(self._describe_known, server_set, slot)
            for slot in (server_set.slots() if text else ())
        }
        differences = compare_servers(locked, current, packages=False)
        return LockCheck(
            file=str(directory / LOCK_FILE),
            ok=all(drift.level != "error" for drift in differences),
            servers=sorted(current),
            differences=differences,
        )

    def _describe_known(self, server_set: ServerSet, slot: ServerSlot) -> CurrentServer:
        """Return a server with what it listed last, without starting it."""
        definition = slot.definition
        folder = server_set.working_directory(definition)
        server = self._hub.pool.find(definition, folder, None) if slot.blocked_status is None else None
        seen = list_seen(server.listed, folder) if server is not None and server.listed is not None else None
        pins = {definition.key: definition.digest for definition in seen or ()}
        return CurrentServer(
            msgspec.structs.replace(describe_definition(definition), pins=pins),
            disabled=slot.blocked_status == "disabled",
            listed=seen is not None,
            contents={definition.key: definition.content for definition in seen or ()},
        )

    async def _find_directory(self, caller: Caller, arguments: ForWorkspace) -> Path:
        directory = await self._selector.find_directory(caller, arguments)
        if directory is None:
            raise RookeryError(
                "invalid-input",
                f"{LOCK_FILE} belongs to a repository, and no workspace is selected",
                "run it in a checkout whose project is registered, or name a workspace",
            )
        return directory

    async def _list_servers(self, server_set: ServerSet, names: Collection[str]) -> list[ListedServer]:
        return await list_servers_once(server_set, self._hub.pool, names) if names else []

    async def _describe_servers(
        self, server_set: ServerSet, listed: Sequence[ListedServer], *, packages: bool
    ) -> dict[str, CurrentServer]:
        """Return each server as it is now, with what the registries tell about its packages."""
        requests = {
            server.result.name: find_packages(server.definition.command, list(server.definition.environment))
            for server in listed
        }
        # Only for servers that were approved and started: nothing in a repository causes a request by being there.
        wanted = [request for server in listed if server.catalog for request in requests[server.result.name]]
        resolved = await self._registries.resolve(wanted) if packages else {}
        return {
            server.result.name: _describe_server(
                server,
                server_set.working_directory(server.definition),
                requests[server.result.name] if packages else [],
                resolved,
            )
            for server in listed
        }


def _describe_withheld(withheld: WithheldDefinition) -> str:
    subject = f"{withheld.kind} {withheld.name}".strip()
    return f"{subject} is withheld and was not locked: {WITHHELD_REASONS[withheld.reason]}"


def describe_definition(definition: Definition) -> LockedServer:
    """Return a server as it is locked, without its packages and pins."""
    level = definition.source.place
    shown = cast(dict[str, Any], redact_definition(definition)["written"])
    facts = list_facts(definition.name, definition.kind, level, definition.written, shown)
    return LockedServer(definition.name, level, facts)


def _is_of_repository(definition: Definition) -> bool:
    return definition.source.place == "project"


def _choose_servers(server_set: ServerSet, old: Collection[str], names: Sequence[str]) -> list[str]:
    """Return the names of the servers to lock."""
    if names:
        return [server_set.find(name).definition.name for name in dict.fromkeys(names)]
    definitions = [slot.definition for slot in server_set.slots()]
    if not any(map(_is_of_repository, definitions)):
        return [definition.name for definition in definitions]
    return [definition.name for definition in definitions if _is_of_repository(definition) or definition.name in old]


def _keep_others(
    server_set: ServerSet, old: Mapping[str, LockedServer], names: Collection[str]
) -> dict[str, LockedServer]:
    """Return the locked servers that stay as they are.

    A server that the repository no longer defines is dropped. One of a person's own files may be defined elsewhere.
    """
    defined = {slot.definition.name for slot in server_set.slots()}
    return {name: server for name, server in old.items() if name in names or name in defined or server.level == "user"}


def _keep_packages(server: LockedServer, old: LockedServer | None) -> LockedServer:
    """Return a server with the packages that are locked already, if its definition is the same."""
    if old is None or not has_same_definition(old, server):
        return server
    return msgspec.structs.replace(server, packages=old.packages)


def _describe_server(
    server: ListedServer,
    folder: Path,
    requests: Sequence[PackageRequest],
    resolved: Mapping[PackageRequest, ResolvedPackage],
) -> CurrentServer:
    definition = server.definition
    catalog = server.listed
    listed = list_seen(catalog, folder) if catalog is not None else []
    answers = [resolved[request] for request in requests if request in resolved]
    packages = {answer.package.key: answer.package for answer in answers if answer.package is not None}
    status = server.result.status
    problem = server.result.error or _UNREACHED.get(status, status)
    is_disabled = status == "disabled"
    return CurrentServer(
        msgspec.structs.replace(
            describe_definition(definition),
            packages=[packages[key] for key in sorted(packages)],
            pins={seen.key: seen.digest for seen in listed},
        ),
        problem="" if catalog is not None or is_disabled else problem,
        disabled=is_disabled,
        contents={seen.key: seen.content for seen in listed},
        requests=requests,
        unresolved={
            f"{answer.request.ecosystem}:{answer.request.name}": answer.problem
            for answer in answers
            if answer.package is None
        },
    )
