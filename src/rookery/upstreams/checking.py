"""Starts every server once, beside those that run, and tells how it is and what is wrong with what it lists."""

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from rookery.gateway.catalog import Catalog
from rookery.gateway.names import Owned, face_name
from rookery.gateway.rules import ALLOWED
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.upstreams.costs import tokens_of
from rookery.upstreams.fleet import Fleet
from rookery.upstreams.flows import toxic_flow
from rookery.upstreams.judging import Finding, Level, clashes, judged
from rookery.upstreams.membership import FleetMembers
from rookery.upstreams.pool import Pool
from rookery.upstreams.server import Server
from rookery.upstreams.slots import Slot

# A machine with two cores starts two programs at a time; the rest would only make each other late.
_AT_ONCE = 4
_MOST_SECONDS = 90.0
_LEVELS: dict[str, Level] = {"disabled": "note"}


class Checked(msgspec.Struct):
    """One server. `ms` is what it took to start and to list all, `tokens` what its tools cost a model to read."""

    name: str
    status: str
    source: str
    error: str | None = None
    era: str | None = None
    ms: float | None = None
    tools: int = 0
    tokens: int = 0


class Check(msgspec.Struct):
    servers: list[Checked]
    findings: list[Finding]
    # What the tools that are shown cost in a list, and what a view costs that is searched instead.
    list_tokens: int
    search_tokens: int
    ok: bool


async def check(fleet: Fleet, pool: Pool, names: Collection[str], search_tokens: int) -> Check:
    """Of all servers of a directory, or of those with these names."""
    slots = [fleet.find(name) for name in dict.fromkeys(names)] if names else list(fleet.slots())
    turns = asyncio.Semaphore(_AT_ONCE)
    tried = await asyncio.gather(*(_try(slot, fleet, pool, turns) for slot in slots))
    findings = [one for _, _, said in tried for one in said]
    offered = [(one.name, catalog) for one, catalog, _ in tried if catalog is not None]
    findings += clashes(Owned(name, entry.name) for name, catalog in offered for entry in catalog.tools)
    rules = FleetMembers(fleet, lambda _: lambda server, tool, public: ALLOWED).rules(None)
    shown = [
        (public, entry)
        for name, catalog in offered
        for entry in catalog.tools
        if rules.shows(name, entry.name, public := face_name(name, entry.name))
    ]
    if (flow := toxic_flow(shown)) is not None:
        findings.append(flow)
    return Check(
        servers=[one for one, _, _ in tried],
        findings=findings,
        list_tokens=sum(tokens_of(entry) for _, entry in shown),
        search_tokens=search_tokens,
        ok=all(one.level != "error" for one in findings),
    )


async def _try(
    slot: Slot, fleet: Fleet, pool: Pool, turns: asyncio.Semaphore
) -> tuple[Checked, Catalog | None, Sequence[Finding]]:
    definition = slot.definition
    found = Checked(definition.name, slot.held_back or "pending", str(definition.source))
    if slot.held_back is not None:
        return found, None, [_held_back(found)]
    async with turns:
        server = Server(definition, fleet.where(definition), pool.connector, lambda one: None, fleet.directory)
        began = SYSTEM_CLOCK.monotonic()
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                await server.connect()
            found.ms = round((SYSTEM_CLOCK.monotonic() - began) * 1000, 1)
            catalog = server.catalog
            found.era = server.client.revision if server.client is not None else None
        except TimeoutError:
            found.status, found.error = "failed", f"it did not become ready within {_MOST_SECONDS:g} s"
            return found, None, [_unreachable(found)]
        except RookeryError as error:
            found.status = server.status if server.status.startswith("needs") else "failed"
            found.error = server.voice.clean(error.message)
            return found, None, [_unreachable(found)]
        finally:
            await server.close()
    found.status = "reachable"
    if catalog is None:
        return found, None, []
    found.tools, found.tokens = len(catalog.tools), sum(map(tokens_of, catalog.tools))
    said = [Finding("warning", "listing", one, definition.name) for one in server.voice.warnings]
    return found, catalog, [*said, *judged(definition.name, catalog.tools)]


def _held_back(found: Checked) -> Finding:
    told = {
        "disabled": "it is disabled, and was not started",
        "needs_approval": f"it waits for approval, and was not started: rookery guard approve {found.name}",
    }
    return Finding(_LEVELS.get(found.status, "warning"), found.status.replace("_", "-"), told[found.status], found.name)


def _unreachable(found: Checked) -> Finding:
    """One that waits for its user is no fault of anybody's."""
    level: Level = "warning" if found.status.startswith("needs") else "error"
    rule = found.status.replace("_", "-") if level == "warning" else "unreachable"
    return Finding(level, rule, found.error or found.status, found.name)
