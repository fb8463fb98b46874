"""Differences from `mcp.lock` as SARIF."""

from collections.abc import Sequence
from typing import Any

from rookery.guard.lock.compare import DRIFT_RULES, Drift
from rookery.guard.lock.file import LOCK_FILE, find_line
from rookery.guard.scan.sarif import make_log


def make_drift_sarif(differences: Sequence[Drift], text: str, version: str) -> dict[str, Any]:
    """Return a SARIF log. Each difference is placed at the line of `text`, the file, that is about it."""
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "help": {"text": rule.remedy},
            "defaultConfiguration": {"level": rule.level},
        }
        for rule in DRIFT_RULES.values()
    ]
    numbers = {rule_id: number for number, rule_id in enumerate(DRIFT_RULES)}
    results = [
        {
            "ruleId": drift.rule,
            "ruleIndex": numbers[drift.rule],
            "level": drift.level,
            "message": {"text": f"{drift.server}: {drift.text}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": LOCK_FILE},
                        "region": {"startLine": find_line(text, drift.server, drift.subject)},
                    },
                    "logicalLocations": [
                        {"name": drift.subject, "fullyQualifiedName": f"{drift.server}/{drift.subject}"}
                    ],
                }
            ],
            "partialFingerprints": {"drift/v1": f"{drift.server}:{drift.rule}:{drift.subject}"},
        }
        for drift in differences
    ]
    return make_log("rookery guard check", version, rules, results)
