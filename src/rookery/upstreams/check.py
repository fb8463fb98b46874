"""Check servers: start each once beside the running ones, and report its state and the faults of its tools."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from rookery.gateway.names import OwnedName, gateway_name
from rookery.gateway.provider import Catalog
from rookery.gateway.rules import ALLOWED
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.lint import Finding, Severity, find_name_clashes, find_toxic_flow, lint_tools
from rookery.upstreams.pool import ServerPool
from rookery.upstreams.server import Server
from rookery.upstreams.server_set import ServerSet, ServerSetMembership, ServerSlot
from rookery.upstreams.tool_costs import estimate_tool_tokens

# A machine with two cores starts two programs at a time; many more would only delay each other.
_MAX_PARALLEL = 4
_MAX_SECONDS = 90.0
_SEVERITIES: dict[str, Severity] = {"disabled": "note"}


class CheckedServer(msgspec.Struct):
    """The result for one server. `ms` is the time to start it and list everything, `tokens` the cost of its tools."""

    name: str
    status: str
    source: str
    error: str | None = None
    era: str | None = None
    ms: float | None = None
    tools: int = 0
    tokens: int = 0


class CheckReport(msgspec.Struct):
    """The results and findings of a check."""

    servers: list[CheckedServer]
    findings: list[Finding]
    # The cost of the list of visible tools, and of a view that offers a search instead.
    list_tokens: int
    search_tokens: int
    ok: bool


@dataclass(frozen=True)
class ListedServer:
    """A server that was started once: the result, what is served of it, and what it `listed`; None if not reached."""

    definition: Definition
    result: CheckedServer
    catalog: Catalog | None
    findings: Sequence[Finding]
    listed: Catalog | None = None


async def list_servers_once(server_set: ServerSet, pool: ServerPool, names: Collection[str]) -> list[ListedServer]:
    """Start all servers of a directory, or those with the given names, and return what they list."""
    slots = [server_set.find(name) for name in dict.fromkeys(names)] if names else list(server_set.slots())
    semaphore = asyncio.Semaphore(_MAX_PARALLEL)
    return await asyncio.gather(*(_list_server(slot, server_set, pool, semaphore) for slot in slots))


async def check_servers(
    server_set: ServerSet, pool: ServerPool, names: Collection[str], search_tokens: int
) -> CheckReport:
    """Check all servers of a directory, or those with the given names."""
    listed = await list_servers_once(server_set, pool, names)
    findings = [finding for server in listed for finding in server.findings]
    catalogs = [(server.result.name, server.catalog) for server in listed if server.catalog is not None]
    findings += find_name_clashes(OwnedName(name, entry.name) for name, catalog in catalogs for entry in catalog.tools)
    rules = ServerSetMembership(server_set, lambda _: lambda server, tool, public: ALLOWED).rules(None)
    visible = [
        (public, entry)
        for name, catalog in catalogs
        for entry in catalog.tools
        if rules.is_shown(name, entry.name, public := gateway_name(name, entry.name))
    ]
    if (flow := find_toxic_flow(visible)) is not None:
        findings.append(flow)
    return CheckReport(
        servers=[server.result for server in listed],
        findings=findings,
        list_tokens=sum(estimate_tool_tokens(entry) for _, entry in visible),
        search_tokens=search_tokens,
        ok=all(finding.level != "error" for finding in findings),
    )


async def _list_server(
    slot: ServerSlot, server_set: ServerSet, pool: ServerPool, semaphore: asyncio.Semaphore
) -> ListedServer:
    definition = slot.definition
    result = CheckedServer(definition.name, slot.blocked_status or "pending", str(definition.source))
    if slot.blocked_status == "failed":
        result.error = definition.unresolved
        return ListedServer(definition, result, None, [_report_unreachable(result)])
    if slot.blocked_status is not None:
        return ListedServer(definition, result, None, [_report_blocked(result)])
    async with semaphore:
        server = Server(
            definition,
            server_set.working_directory(definition),
            pool.connector,
            lambda _: None,
            server_set.directory,
            review=pool.guard.make_review(definition, server_set.working_directory(definition), server_set.directory),
        )
        start = SYSTEM_CLOCK.monotonic()
        try:
            async with asyncio.timeout(_MAX_SECONDS):
                await server.connect()
            result.ms = round((SYSTEM_CLOCK.monotonic() - start) * 1000, 1)
            catalog = server.catalog
            listed = server.listed
            result.era = server.era
        except TimeoutError:
            result.status = "failed"
            result.error = f"it did not become ready within {_MAX_SECONDS:g} s"
            return ListedServer(definition, result, None, [_report_unreachable(result)])
        except RookeryError as error:
            result.status = server.status if server.status.startswith("needs") else "failed"
            result.error = server.redactor.clean(error.message)
            return ListedServer(definition, result, None, [_report_unreachable(result)])
        finally:
            await server.close()
    result.status = "reachable"
    if catalog is None:
        return ListedServer(definition, result, None, [])
    result.tools = len(catalog.tools)
    result.tokens = sum(map(estimate_tool_tokens, catalog.tools))
    problems = [*server.redactor.warnings, *server.list_problems()]
    warnings = [Finding("warning", "listing", problem, definition.name) for problem in problems]
    warnings += [
        Finding("warning", "scan", f"{finding}: rookery guard scan {definition.name}", definition.name)
        for finding in server.list_findings()
    ]
    if catalog.withheld:
        text = f"{len(catalog.withheld)} of its definitions are withheld: rookery guard diff {definition.name}"
        warnings.append(Finding("warning", "withheld", text, definition.name))
    findings = [*warnings, *lint_tools(definition.name, catalog.tools)]
    return ListedServer(definition, result, catalog, findings, listed)


def _report_blocked(result: CheckedServer) -> Finding:
    messages = {
        "disabled": "it is disabled and was not started",
        "needs_approval": f"it needs approval and was not started: rookery guard approve {result.name}",
    }
    return Finding(
        _SEVERITIES.get(result.status, "warning"), result.status.replace("_", "-"), messages[result.status], result.name
    )


def _report_unreachable(result: CheckedServer) -> Finding:
    """Return the finding for a server that did not connect. One that waits for its user is no error."""
    level: Severity = "warning" if result.status.startswith("needs") else "error"
    rule = result.status.replace("_", "-") if level == "warning" else "unreachable"
    return Finding(level, rule, result.error or result.status, result.name)
