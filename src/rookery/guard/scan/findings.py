"""What the scanner reports: findings, and the rules that they come from."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Severity = Literal["severe", "warning"]


class ScanFinding(msgspec.Struct, frozen=True):
    """One match of a rule: where it is in the definition, and what it looks like.

    `place` is the path in the definition, with the decoding that made it readable, such as `description (base64)`.
    """

    rule: str
    severity: Severity
    place: str
    excerpt: str


class ScanReport(msgspec.Struct, frozen=True):
    """The findings of one definition. `severity` is that of the worst one, and null if there is none."""

    id: str
    server: str
    tool: str
    severity: Severity | None
    findings: Sequence[ScanFinding]


class ScanRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: what it looks for and why, with definitions that it matches. `remedy` is for the server's author."""

    id: str
    severity: Severity
    title: str
    description: str
    remedy: str
    examples: tuple[dict[str, Any], ...]


class Match(msgspec.Struct, frozen=True):
    """A match before it is a finding: the rule, and the span in the text that was read."""

    rule: str
    start: int
    end: int
    severity: Severity | None = None


def worst(findings: Sequence[ScanFinding]) -> Severity | None:
    """Return the severity of the worst finding; None if there is none."""
    severities = {finding.severity for finding in findings}
    return "severe" if "severe" in severities else "warning" if severities else None
