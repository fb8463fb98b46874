"""The guard: what it costs a call, how many poisoned definitions the scanner finds, how many others, and how fast."""

import asyncio
import hashlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Raw

from rookery.gateway.provider import Catalog, CatalogEntry
from rookery.guard.pins.gate import GateOptions, PinGate
from rookery.guard.pins.records import PinOwner
from rookery.guard.pins.store import PinStore, make_seal
from rookery.guard.scan.definition import Definition
from rookery.guard.scan.findings import ScanReport
from rookery.guard.scan.reports import ReportStore
from rookery.guard.scan.scanner import Scanner
from rookery.system.store import Store

from .contest import CLIENTS, TROUBLE, Effort, Target, measure_by_turns, skip, warm_up
from .gateways import echo, echo_over_http, rookery
from .harness import Bar, ratio

# Settings that switch off what the guard does for a call. Without rules there is no policy.
_OFF = {"ROOKERY_AUDIT_CALLS": "false"}
_RULES = {"*": "allow", "echo__other_*": "deny", "echo__echo": "allow"}
_GUARDED, _BARE = "guarded", "bare"
_COST = "guard.audit.cost"
_ROW = "guard.scan.measured"
_BUDGET = "guard.scan.budget"
_ROOT = Path(__file__).resolve().parents[1]
# A labelled set as JSON lines with id, label (poisoned or benign), category, name, description and inputSchema. It is
# not a part of the project: it is only counted.
_VARIABLE = "ROOKERY_GUARD_CORPUS"
_USUAL = "shared/corpus/tools-dev.jsonl"
# The share of each category that is set aside, by a hash of the id. The guide has the figures of the first look at it.
_HELD_OUT = 0.3
_MANY = 1000
_STARTS = 15
_FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")

Rows = Sequence[Mapping[str, Any]]


def run() -> Iterable[Bar]:
    yield _measure_calls(Effort())
    yield Bar("guard.scan.seconds", _time(), "<=", 1.0, requirement=_BUDGET)
    yield Bar("guard.pins.start", asyncio.run(_compare_start()), "<=", 1.05)
    path = _find_corpus()
    if path is None:
        print(f"guard: there is no labelled set; name one with {_VARIABLE}", flush=True)
        yield Bar("guard.scan.recall", None, ">=", 0.95, requirement=_ROW)
        yield Bar("guard.scan.flagged", None, "<=", 0.005, requirement=_ROW)
        return
    data = path.read_bytes()
    rows = [json.loads(line) for line in data.splitlines()]
    print(f"guard: {len(rows)} definitions, sha256 {hashlib.sha256(data).hexdigest()}", flush=True)
    known, unseen = _split(rows)
    recall, flagged = _measure("development part", known)
    _measure("part set aside", unseen)
    yield Bar("guard.scan.recall", recall, ">=", 0.95, requirement=_ROW)
    yield Bar("guard.scan.flagged", flagged, "<=", 0.005, requirement=_ROW)


def _measure_calls(effort: Effort) -> Bar:
    """Compare calls with rules and audit with calls without them, over both upstream transports and in both eras.

    The worst of the four counts. Over stdio the CPU time is that of the daemon and of the server.
    """
    worst: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder, ExitStack() as stack:
        home = Path(folder)
        try:
            for upstream in (echo("stdio", "1"), stack.enter_context(echo_over_http(home))):
                worst += _compare(home, upstream, effort)
        except TROUBLE as error:
            skip("guard", error)
            return Bar("guard.call.cpu", None, "<=", 1.15, requirement=_COST)
    return Bar("guard.call.cpu", max(worst), "<=", 1.15, requirement=_COST)


def _compare(home: Path, upstream: str | Sequence[str], effort: Effort) -> list[float]:
    with ExitStack() as stack:
        gateways = {
            _GUARDED: stack.enter_context(rookery(home, {"echo": upstream}, permission=_RULES)),
            _BARE: stack.enter_context(rookery(home, {"echo": upstream}, variables=_OFF)),
        }
        targets = {
            f"{name} {era}": Target(gateway, era, "echo", gateway.single_server)
            for name, gateway in gateways.items()
            for era in gateway.eras
        }
        results = measure_by_turns(warm_up(targets, effort), CLIENTS, effort)
        eras = gateways[_BARE].eras
    return [ratio(results, f"{_GUARDED} {era}", f"{_BARE} {era}", "cpu") for era in eras]


def _find_corpus() -> Path | None:
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    return next((folder / _USUAL for folder in _ROOT.parents if (folder / _USUAL).is_file()), None)


def _split(rows: Rows) -> tuple[Rows, Rows]:
    """Return the development part and the part set aside, with the same share of each category."""
    by_category: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_category[row["category"]].append(row)
    aside: set[str] = set()
    for members in by_category.values():
        members.sort(key=lambda row: hashlib.sha256(row["id"].encode()).hexdigest())
        aside |= {row["id"] for row in members[: round(len(members) * _HELD_OUT)]}
    return [row for row in rows if row["id"] not in aside], [row for row in rows if row["id"] in aside]


def _measure(part: str, rows: Rows) -> tuple[float, float]:
    """Print and return the share of poisoned and of benign definitions with a severe finding."""
    scanner = Scanner()
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        report = _scan(scanner, row)
        for count in (counts[row["label"], row["category"]], counts[row["label"], "all"]):
            count[0] += report.severity == "severe"
            count[1] += report.severity is not None
            count[2] += 1
    print(f"guard: {part}", flush=True)
    for (label, category), (severe, any_, total) in sorted(counts.items()):
        low, high = _interval(severe, total)
        print(
            f"guard:   {label:9} {category:34} {severe:4} of {total:4} severe, {any_:4} with a finding; "
            f"95 % interval {low:.1%} to {high:.1%}",
            flush=True,
        )
    found, benign = counts["poisoned", "all"], counts["benign", "all"]
    return found[0] / max(found[2], 1), benign[0] / max(benign[2], 1)


def _scan(scanner: Scanner, row: Mapping[str, Any]) -> ScanReport:
    value = {field: row[field] for field in _FIELDS if row.get(field) is not None}
    return scanner.scan(Definition("tool", row.get("server", ""), row["name"], value, row["id"]))


def _interval(hits: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, by Wilson."""
    if not total:
        return 0.0, 1.0
    z = 1.96
    share = hits / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return max(middle - half, 0.0), min(middle + half, 1.0)


async def _compare_start() -> float:
    """Return the CPU of starting a pinned server with the check of its pins, relative to starting the program alone.

    The program is a server made with the official SDK. What the daemon itself does for a start is left out.
    """
    servers = json.loads((_ROOT / "bench" / "search" / "tools.json").read_text(encoding="utf-8"))
    tools = next(iter(sorted((listed["tools"] for listed in servers.values()), key=len, reverse=True)))
    entries = [CatalogEntry(tool["name"], Raw(json.dumps(tool).encode())) for tool in tools]
    catalog = Catalog(tools=entries, info={"version": "1"})
    with tempfile.TemporaryDirectory() as folder:
        make_seal(Path(folder, "rookery.db")).create()
        store = Store(Path(folder, "rookery.db"))
        await store.open()
        gate = PinGate(PinStore(store), ReportStore(store), GateOptions(), lambda owner, withheld: None)
        await gate.review(PinOwner("one"), Path("/work/one"), catalog)
        checked: list[float] = []
        for _ in range(_STARTS):
            # As after a restart of the daemon: the pins are loaded, the findings are not, and nothing is scanned again.
            gate = PinGate(PinStore(store), ReportStore(store), GateOptions(), lambda owner, withheld: None)
            await gate.prepare()
            began = time.process_time()
            await gate.review(PinOwner("one"), Path("/work/one"), catalog)
            checked.append(time.process_time() - began)
        await store.close()
    started = [_start_program() for _ in range(3)]
    check, start = statistics.median(checked), statistics.median(started)
    print(
        f"guard: {len(tools)} pinned tools are checked in {check * 1000:.2f} ms of CPU, and a server of the SDK starts "
        f"in {start * 1000:.0f} ms",
        flush=True,
    )
    return 1 + check / start


def _start_program() -> float:
    """Return the CPU seconds of a server until it has listed its tools and ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    requests: list[tuple[str, dict[str, str]]] = [("initialize", {"protocolVersion": "2025-11-25"}), ("tools/list", {})]
    lines = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        for number, (method, params) in enumerate(requests)
    )
    program = [sys.executable, str(_ROOT / "tests" / "programs" / "sdk_server.py"), "stdio"]
    subprocess.run(program, input=lines.encode(), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _time() -> float:
    """Return the CPU seconds for a thousand definitions of real servers, each text read for the first time."""
    servers = json.loads((_ROOT / "bench" / "search" / "tools.json").read_text(encoding="utf-8"))
    definitions = [
        Definition("tool", server, tool["name"], tool) for server, listed in servers.items() for tool in listed["tools"]
    ]
    Scanner().scan(definitions[0])
    took: list[float] = []
    while len(took) < _MANY:
        # A scanner remembers what it has read: each pass has a new one.
        scanner = Scanner()
        for definition in definitions:
            began = time.process_time()
            scanner.scan(definition)
            took.append(time.process_time() - began)
    took.sort()
    print(
        f"guard: {sum(took) / len(took) * 1000:.2f} ms a definition, the slowest {took[-1] * 1000:.0f} ms", flush=True
    )
    return sum(took) / len(took) * _MANY
