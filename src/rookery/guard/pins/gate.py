"""Decides what of a server's catalog is served: what is pinned, and what the scanner has nothing severe against.

Each catalog passes once, when it was listed, and the bytes that were compared and scanned are those that are served.
Calls are not checked again: what is withheld is not in the catalog.

- `PinGate.review(owner, folder, catalog)` pins a first listing, and withholds what changed or is new.
- `PinGate.review_stored(...)` returns what is served of a catalog from before a restart.
- `PinGate.find_notes(owner)` returns the findings in what is served.
"""

import asyncio
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rookery.gateway.provider import LISTS, WITHHELD_REASONS, Catalog, WithheldDefinition
from rookery.guard.pins.definition import (
    PINNED_LISTS,
    DefinitionKey,
    compute_digest,
    list_definitions,
)
from rookery.guard.pins.records import DECIDED, LockedPins, PinOwner, SeenDefinition, WithheldReason
from rookery.guard.pins.store import PinChanges, PinStore, ServerPins, describe_key
from rookery.guard.scan.definition import Kind as ScanKind
from rookery.guard.scan.findings import ScanFinding, ScanReport, worst
from rookery.guard.scan.reports import ReportStore, ScannedDefinition
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.guard")

PinMode = Literal["on", "off"]
ScanMode = Literal["withhold", "report", "off"]

# Below this, a thread costs more than hashing.
_MOST_INLINE = 50
_FOLDER = b"{folder}"
_SCAN_KINDS: Mapping[str, ScanKind] = {
    "tool": "tool",
    "prompt": "prompt",
    "template": "resource",
    "skill": "skill",
    "instructions": "instructions",
}
# Called with the owner and what was withheld for the first time.
WithheldCallback = Callable[[PinOwner, list[WithheldDefinition]], None]


class GateOptions(msgspec.Struct, frozen=True):
    """How the gate decides. `rules_off` has the reason for each rule that is switched off."""

    pins: PinMode = "on"
    scan: ScanMode = "withhold"
    rules_off: Mapping[str, str] = {}


class PinGate:
    """Compares catalogs with the pins, and scans them."""

    def __init__(
        self, pins: PinStore, reports: ReportStore, options: GateOptions, on_withheld: WithheldCallback
    ) -> None:
        self.pins = pins
        self.reports = reports
        self.options = options
        self._on_withheld = on_withheld
        self._notes: dict[PinOwner, Mapping[DefinitionKey, Sequence[ScanFinding]]] = {}
        self._locks: defaultdict[PinOwner, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def prepare(self) -> None:
        """Load the pins. If they cannot be read, nothing from before a restart is served."""
        try:
            await self.pins.load()
        except RookeryError as error:
            logger.error("the pins of MCP servers cannot be read: %s", error.message)

    def find_notes(self, owner: PinOwner) -> Mapping[DefinitionKey, Sequence[ScanFinding]]:
        """Return the findings in the definitions that a server listed last."""
        return self._notes.get(owner, {})

    def list_findings(self, owner: PinOwner) -> list[str]:
        """Return these findings as messages. They quote nothing, because models may read them."""
        return [
            f"{finding.rule} ({finding.severity}) in {describe_key(key)}"
            for key, findings in self.find_notes(owner).items()
            for finding in findings
        ]

    def review_stored(self, owner: PinOwner, folder: Path, catalog: Catalog) -> Catalog | None:
        """Return what is pinned of a stored catalog. Nothing is recorded: the server will be listed again."""
        if self.options.pins == "off" and self.options.scan != "withhold":
            return catalog
        pins = self.pins.get_loaded(owner)
        if pins is None or not pins.at:
            return None
        withheld: dict[DefinitionKey, WithheldReason] = {}
        for seen in list_seen(catalog, folder):
            if seen.key in pins.blocked_definitions:
                withheld[seen.key] = "blocked"
            elif seen.digest not in pins.pinned.get(seen.key, {}):
                withheld[seen.key] = _describe_state(seen, pins)
        return withhold(catalog, withheld, is_blocked=pins.blocked)

    async def review(
        self, owner: PinOwner, folder: Path, catalog: Catalog, locked: LockedPins | None = None
    ) -> Catalog:
        """Return what is served of a catalog that was just listed, and record what is pinned and what waits.

        `locked` are the pins that a lock file has for this server: a first listing has to fit them, and what the user
        approved with the file is pinned without asking. Severe findings withhold all the same.
        """
        if self.options.pins == "off" and self.options.scan == "off":
            return catalog
        definitions = await _list_in_background(catalog, folder)
        # One after the other, or a server could list something else to each of its first two users.
        async with self._locks[owner]:
            pins = await self.pins.find(owner) or ServerPins(0.0)
            severe = await self._scan(owner, definitions)
            is_lost = await self.pins.are_lost()
            changes = PinChanges([], [], [])
            withheld: dict[DefinitionKey, WithheldReason] = {}
            for seen in definitions:
                reason = self._judge(seen, pins, changes, locked, is_severe=seen.digest in severe, is_lost=is_lost)
                if pins.blocked or seen.key in pins.blocked_definitions:
                    reason = "blocked"
                if reason is not None:
                    withheld[seen.key] = reason
            if not pins.at or any(changes):
                by = "trusted" if pins.at and pins.additions else "first"
                if locked is not None and all(locked.contains(seen) for seen in changes.pinned):
                    by = "lock"
                try:
                    await self.pins.record(owner, changes, version=_read_version(catalog), by=by)
                except RookeryError as error:
                    if changes.pinned:
                        raise
                    # What is withheld is withheld all the same, and the rest of the server works.
                    logger.error("%s: what is withheld cannot be recorded: %s", owner.name, error.message)
        if changes.waiting:
            self._report(owner, changes.waiting)
        return withhold(catalog, withheld, is_blocked=pins.blocked)

    def _judge(
        self,
        seen: SeenDefinition,
        pins: ServerPins,
        changes: PinChanges,
        locked: LockedPins | None,
        *,
        is_severe: bool,
        is_lost: bool,
    ) -> WithheldReason | None:
        """Return why a definition is withheld, or None, and add what has to be recorded to `changes`."""
        by = pins.pinned.get(seen.key, {}).get(seen.digest)
        waited = pins.waiting.get(seen.key)
        reason = None if by is not None else self._find_objection(seen, pins, locked, is_lost=is_lost)
        if reason is None and is_severe and by not in DECIDED:
            reason = "severe"
        if reason is not None:
            if waited != (seen.digest, reason):
                changes.waiting.append((seen, reason))
        elif by is None:
            changes.pinned.append(seen)
        elif waited is not None:
            # The server lists again what is pinned.
            changes.settled.append(seen.key)
        return reason

    def _find_objection(
        self, seen: SeenDefinition, pins: ServerPins, locked: LockedPins | None, *, is_lost: bool
    ) -> WithheldReason | None:
        """Return why a content that is not pinned waits, or None if it is pinned now."""
        if self.options.pins == "off":
            return None
        if locked is not None and locked.is_approved and locked.contains(seen):
            return None
        if not pins.at:
            if is_lost:
                return "lost"
            return "unlocked" if locked is not None and not locked.contains(seen) else None
        if pins.waiting.get(seen.key) == (seen.digest, "severe"):
            # Only the scanner was against it: now the rule is switched off.
            return None
        if seen.key not in pins.pinned and pins.additions:
            return None
        return _describe_state(seen, pins)

    async def find_findings(
        self, owner: PinOwner, definitions: Sequence[SeenDefinition]
    ) -> Mapping[str, Sequence[ScanFinding]]:
        """Return the findings in definitions by their digest, without those of rules that are switched off."""
        names = frozenset(seen.key.name for seen in definitions if seen.key.kind == "tool")
        tools = self.pins.list_tools()
        tools[owner.name] = tools.get(owner.name, frozenset()) | names
        items = [ScannedDefinition(_SCAN_KINDS[seen.key.kind], seen.key.name, *seen[1:]) for seen in definitions]
        return {
            digest: [finding for finding in findings if finding.rule not in self.options.rules_off]
            for digest, findings in (await self.reports.get(owner.name, items, tools)).items()
        }

    async def scan_catalog(self, owner: PinOwner, folder: Path, catalog: Catalog) -> list[ScanReport]:
        """Return a report for each definition of a catalog."""
        definitions = await _list_in_background(catalog, folder)
        findings = await self.find_findings(owner, definitions)
        return [
            ScanReport(
                f"{owner.name}/{seen.key.kind}/{seen.key.name}",
                owner.name,
                seen.key.name or seen.key.kind,
                worst(findings[seen.digest]),
                findings[seen.digest],
            )
            for seen in definitions
        ]

    async def _scan(self, owner: PinOwner, definitions: Sequence[SeenDefinition]) -> set[str]:
        """Return the digests with severe findings, if these withhold. All findings are kept for `find_notes`."""
        if self.options.scan == "off":
            return set()
        active = await self.find_findings(owner, definitions)
        self._notes[owner] = {seen.key: active[seen.digest] for seen in definitions if active[seen.digest]}
        if self.options.scan != "withhold":
            return set()
        return {
            digest for digest, findings in active.items() if any(finding.severity == "severe" for finding in findings)
        }

    def _report(self, owner: PinOwner, waiting: Sequence[tuple[SeenDefinition, WithheldReason]]) -> None:
        described = ", ".join(f"{describe_key(seen.key)} ({WITHHELD_REASONS[reason]})" for seen, reason in waiting[:5])
        more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
        logger.warning("%s: withheld: %s%s; rookery guard diff %s", owner.name, described, more, owner.name)
        self._on_withheld(owner, [WithheldDefinition(*seen.key, reason) for seen, reason in waiting])


def list_seen(catalog: Catalog, folder: Path) -> list[SeenDefinition]:
    """Return the definitions of a catalog as they are pinned.

    The folder that the server runs in is replaced, so that a pin holds for each workspace, and on other machines.
    """
    path = json.dumps(str(folder)).encode()[1:-1]
    # Whole paths only: /a is no part of /api.
    pattern = re.compile(rb"(?<![\w/.-])" + re.escape(path) + rb"(?![\w-])")
    definitions: list[SeenDefinition] = []
    for definition in list_definitions(catalog):
        named = len(path) > 1 and path in definition.content
        content = pattern.sub(_FOLDER, definition.content) if named else definition.content
        definitions.append(SeenDefinition(definition.key, compute_digest(content), content))
    return definitions


async def _list_in_background(catalog: Catalog, folder: Path) -> list[SeenDefinition]:
    many = sum(len(catalog.entries(kind)) for kind in PINNED_LISTS)
    size = sum(len(entry.raw) for kind in PINNED_LISTS for entry in catalog.entries(kind)[:_MOST_INLINE])
    if many <= _MOST_INLINE and size <= 100_000:
        return list_seen(catalog, folder)
    return await asyncio.to_thread(list_seen, catalog, folder)


def _describe_state(seen: SeenDefinition, pins: ServerPins) -> WithheldReason:
    """Return why a content that is not pinned is withheld; what waits since the first listing waits for that."""
    if seen.key in pins.pinned:
        return "changed"
    waits_for = pins.waiting.get(seen.key, ("", ""))[1]
    return waits_for if waits_for in ("lost", "unlocked") else "new"


def withhold(catalog: Catalog, reasons: Mapping[DefinitionKey, str], *, is_blocked: bool = False) -> Catalog:
    """Return a catalog without these definitions. Of a server that is blocked nothing is left."""
    withheld = [WithheldDefinition(*key, reason) for key, reason in reasons.items()]
    if is_blocked:
        lists: dict[str, Any] = dict.fromkeys(LISTS, ())
        whole = WithheldDefinition("server", "", "blocked")
        return msgspec.structs.replace(catalog, **lists, instructions=None, withheld=[whole, *withheld])
    if not reasons:
        return catalog
    lists = {
        kind: [entry for entry in catalog.entries(kind) if DefinitionKey(pinned, entry.name) not in reasons]
        for kind, pinned in PINNED_LISTS.items()
    }
    skills = {key.name for key in reasons if key.kind == "skill"}
    if skills:
        lists["resources"] = [entry for entry in catalog.resources if entry.name not in skills]
    instructions = None if DefinitionKey("instructions", "") in reasons else catalog.instructions
    return msgspec.structs.replace(catalog, **lists, instructions=instructions, withheld=withheld)


def _read_version(catalog: Catalog) -> str:
    version = catalog.info.get("version")
    return version[:100] if isinstance(version, str) else ""
