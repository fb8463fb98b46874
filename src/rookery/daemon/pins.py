"""Pins of the MCP servers behind the gateway: which server a pin belongs to, and what users see of them."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Raw

from rookery.daemon.settings.schema import GuardSettings
from rookery.gateway.provider import Catalog, WithheldDefinition
from rookery.guard.audit.records import RecordDecision, ignore_decision
from rookery.guard.pins.gate import GateOptions, PinGate
from rookery.guard.pins.records import LockedPins, PinOwner
from rookery.guard.pins.store import PinStore
from rookery.guard.scan.reports import ReportStore
from rookery.guard.scan.results import ResultScanner, make_refusal, mark_result
from rookery.guard.server import KIND, definition_content
from rookery.guard.subject import Subject
from rookery.system.bus import Bus
from rookery.system.store import Store
from rookery.upstreams.config.definition import Definition

logger = logging.getLogger("rookery.guard")

ADDED = "added"


def find_owner(definition: Definition, project: Path | None) -> PinOwner:
    """Return whom the pins of a server belong to; `project` is the main checkout that it was defined in."""
    if definition.source.place == "project" and project is not None:
        content = definition_content(definition.kind, definition.written)
        return PinOwner(definition.name, str(project.resolve()), compute_program(content))
    if not definition.source.line:
        # An agent may add servers. Under a name of the user's they must not touch the pins of that.
        return PinOwner(definition.name, ADDED, definition.written_digest[:16])
    return PinOwner(definition.name)


def compute_program(content: str) -> str:
    """Return what tells apart the contents that were approved under one name."""
    return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def read_switched_off(rules: Mapping[str, str]) -> dict[str, str]:
    """Return the rules that are switched off with a reason. Others are reported, and stay on."""
    if not rules:
        return {}
    from rookery.guard.scan.rules.registry import RULES

    off: dict[str, str] = {}
    for rule, reason in rules.items():
        if rule not in RULES or rule == "limit":
            logger.error("guard.rules_off: there is no rule %s that can be switched off", rule)
        elif not reason.strip():
            logger.error("guard.rules_off: %s is not switched off, because no reason is given", rule)
        else:
            off[rule] = reason.strip()
            logger.info("the rule %s of the scanner is switched off: %s", rule, off[rule])
    return off


# Returns the pins that the lock file of a checkout has for a server, if they are for this definition of it.
FindLockedPins = Callable[[Definition, Path | None], Awaitable[LockedPins | None]]
FindLocked = Callable[[], Awaitable[LockedPins | None]]


async def find_no_lock(definition: Definition, checkout: Path | None) -> LockedPins | None:
    return None


class ServerReview:
    """The `CatalogReview` of one server."""

    def __init__(self, gate: PinGate, owner: PinOwner, folder: Path, find_locked: FindLocked) -> None:
        self._gate = gate
        self._owner = owner
        self._folder = folder
        self._find_locked = find_locked

    def review_stored(self, catalog: Catalog) -> Catalog | None:
        return self._gate.review_stored(self._owner, self._folder, catalog)

    async def review(self, catalog: Catalog) -> Catalog:
        return await self._gate.review(self._owner, self._folder, catalog, await self._find_locked())

    def list_findings(self) -> list[str]:
        """Return the findings in what the server listed last, as messages."""
        return self._gate.list_findings(self._owner)


class ResultGuard:
    """Scans results of servers, and marks or withholds those with findings."""

    def __init__(self, settings: GuardSettings, environment: Mapping[str, str], events: Bus) -> None:
        self._scanner = ResultScanner(environment, read_switched_off(settings.rules_off))
        self._withholds = settings.results == "withhold"
        self._events = events

    async def check(self, server: str, name: str, result: Raw) -> Raw:
        """Return what is served of a result. Raise `result-withheld` if nothing is."""
        findings = await self._scanner.scan(server, name, bytes(result))
        if not findings:
            return result
        rules = sorted({finding.rule for finding in findings})
        self._events.publish("guard.result", server=server, name=name, rules=rules, withheld=self._withholds)
        logger.warning("a result of %s of %s has findings: %s", name, server, ", ".join(rules))
        if self._withholds:
            raise make_refusal(server, name, findings)
        return Raw(mark_result(bytes(result), findings))


class ServerPinGuard:
    """The `CatalogGuard` of the daemon. `find_project` returns the main checkout of a checkout."""

    def __init__(
        self,
        store: Store,
        events: Bus,
        settings: GuardSettings,
        find_project: Callable[[Path], Path],
        record: RecordDecision = ignore_decision,
    ) -> None:
        self.pins = PinStore(store)
        self.reports = ReportStore(store)
        options = GateOptions(settings.pins, settings.scan, read_switched_off(settings.rules_off))
        self.gate = PinGate(self.pins, self.reports, options, self._on_withheld)
        self._events = events
        self._record = record
        self._find_project = find_project
        self.find_locked: FindLockedPins = find_no_lock

    async def start(self) -> None:
        """Read the pins, so that a loss is reported at the start, and delete findings that nobody needs any more."""
        await self.gate.prepare()
        await self.reports.prune()

    async def prepare(self) -> None:
        await self.gate.prepare()

    def make_review(self, definition: Definition, directory: Path, checkout: Path | None) -> ServerReview:
        async def find_locked() -> LockedPins | None:
            return await self.find_locked(definition, checkout)

        return ServerReview(self.gate, self.find_owner(definition, checkout), directory, find_locked)

    async def on_approved(self, subject: Subject) -> None:
        """Pin anew what a server of a repository lists, because the user has just approved what it runs."""
        if subject.kind == KIND:
            await self.pins.forget(PinOwner(subject.name, subject.place, compute_program(subject.content)))

    def find_owner(self, definition: Definition, checkout: Path | None) -> PinOwner:
        """Return whom the pins of a server belong to that was defined in a checkout."""
        return find_owner(definition, self._find_project(checkout) if checkout is not None else None)

    def _on_withheld(self, owner: PinOwner, withheld: "list[WithheldDefinition]") -> None:
        definitions = [{"kind": item.kind, "name": item.name, "reason": item.reason} for item in withheld]
        self._events.publish("guard.withheld", server=owner.name, place=owner.place, definitions=definitions)
        for item in withheld:
            detail = {"kind": item.kind, "name": item.name, "place": owner.place}
            self._record("withheld", item.reason, principal="rookery", server=owner.name, detail=detail)
