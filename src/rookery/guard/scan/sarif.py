"""Reports as SARIF 2.1.0, the format in which builds and code hosts take findings."""

from collections.abc import Iterable
from typing import Any

from rookery.guard.scan.findings import ScanReport
from rookery.guard.scan.rules.registry import RULES

_LEVELS = {"severe": "error", "warning": "warning"}
RULES_PAGE = "docs/reference/scan-rules.md"


def make_sarif(reports: Iterable[ScanReport], version: str, source: str) -> dict[str, Any]:
    """Return a SARIF log. `source` is the file that was scanned, or the name of the set of servers."""
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.description},
            "help": {"text": f"{rule.remedy} See {RULES_PAGE}#{rule.id}."},
            "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        }
        for rule in RULES.values()
    ]
    numbers = {rule_id: number for number, rule_id in enumerate(RULES)}
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": numbers[finding.rule],
            "level": _LEVELS[finding.severity],
            "message": {"text": f"{RULES[finding.rule].title}: {finding.excerpt}"},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": source}},
                    "logicalLocations": [
                        {"name": report.tool, "fullyQualifiedName": f"{report.server}/{report.tool}/{finding.place}"}
                    ],
                }
            ],
            "partialFingerprints": {"definition/v1": f"{report.id}:{finding.rule}:{finding.place}"},
        }
        for report in reports
        for finding in report.findings
    ]
    return make_log("rookery guard scan", version, rules, results)


def make_log(tool: str, version: str, rules: list[dict[str, Any]], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a log of one run of a tool."""
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": tool, "version": version, "rules": rules}}, "results": results}],
    }
