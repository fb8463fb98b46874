"""`rookery guard scan`: scan saved definitions, or those of servers, and print the findings."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rookery import __version__
from rookery.cli import output
from rookery.cli.mcp.common import ServerClient
from rookery.cli.progress import show_progress
from rookery.daemon_client.failure import FAILED, Failure, report_failure
from rookery.guard.scan.findings import ScanReport, worst
from rookery.guard.scan.rules.registry import RULES
from rookery.guard.scan.sarif import make_sarif
from rookery.guard.scan.saved import read_saved
from rookery.guard.scan.scanner import scan_definitions
from rookery.system.errors import RookeryError


class ServerScan(NamedTuple):
    """The servers to scan, none for all of the current workspace, or of the global ones."""

    names: Sequence[str]
    everywhere: bool = False
    no_start: bool = False


def run_scan(
    file: Path | None, servers: ServerScan | None, off: Sequence[str], *, as_json: bool, as_sarif: bool
) -> int:
    """Scan the definitions in a file, or else those that servers list now."""
    try:
        switches = parse_switches(off)
        if file is not None:
            reports = scan_definitions(read_saved(file), switches)
        else:
            reports = _leave_out(_fetch_reports(servers or ServerScan([])), switches)
    except RookeryError as error:
        return report_failure(Failure(error.code, error.message, error.remedy))
    except Failure as failure:
        return report_failure(failure)
    if as_sarif:
        output.write(json.dumps(make_sarif(reports, __version__, file.name if file is not None else ""), indent=2))
    elif as_json:
        output.write(msgspec.json.encode(reports).decode())
    else:
        _print(reports, off)
    return FAILED if any(report.severity == "severe" for report in reports) else 0


def _fetch_reports(scan: ServerScan) -> list[ScanReport]:
    client = ServerClient(scan.everywhere, scan.no_start)
    with show_progress("starting the servers"):
        data = client.request("POST", "/api/guard/scan", {"servers": list(scan.names)}, seconds=300.0)
    return msgspec.json.decode(data, type=list[ScanReport])


def _leave_out(reports: Sequence[ScanReport], off: Mapping[str, str]) -> list[ScanReport]:
    """Return reports without the findings of these rules."""
    left: list[ScanReport] = []
    for report in reports:
        findings = [finding for finding in report.findings if finding.rule not in off]
        left.append(msgspec.structs.replace(report, findings=findings, severity=worst(findings)))
    return left


def parse_switches(switches: Sequence[str]) -> dict[str, str]:
    """Return the rules that are switched off, each with its reason, from texts like `rule=reason`."""
    off: dict[str, str] = {}
    for switch in switches:
        rule, _, reason = switch.partition("=")
        if rule not in RULES or rule == "limit":
            known = ", ".join(sorted(RULES.keys() - {"limit"}))
            message = f"the rule {rule} cannot be switched off" if rule == "limit" else f"there is no rule {rule}"
            raise RookeryError("invalid-input", message, f"choose one of: {known}")
        if not reason.strip():
            raise RookeryError("invalid-input", f"{rule} is switched off without a reason", f"add it: {rule}=REASON")
        off[rule] = reason.strip()
    return off


def _print(reports: Sequence[ScanReport], off: Sequence[str]) -> None:
    lines: list[str] = []
    for report in reports:
        if report.severity is None:
            continue
        color = "red" if report.severity == "severe" else "yellow"
        name = output.visible(f"{report.server}: {report.tool}")
        lines.append(f"{output.paint(report.severity, color, sys.stdout)}  {name}")
        for finding in report.findings:
            lines.append(f"  {finding.rule}  {output.visible(finding.place)}")
            lines.append(f"    {output.visible(finding.excerpt)}")
    severe = sum(report.severity == "severe" for report in reports)
    warned = sum(report.severity == "warning" for report in reports)
    many = "definition" if len(reports) == 1 else "definitions"
    lines.append(f"{len(reports)} {many} scanned: {severe} severe, {warned} with warnings")
    output.write("\n".join(lines))
    for switch in off:
        output.write_note(f"switched off: {output.visible(switch)}")
