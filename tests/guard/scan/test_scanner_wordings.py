"""Attacks in several hundred wordings, and ordinary tools that come close to them.

The wordings were used to develop the rules, so they do not show how many unknown attacks are found; `bench/guard.py`
does. They show that a change of a rule loses none of them.
"""

from collections import Counter
from pathlib import Path

import pytest

from rookery.guard.scan.definition import Definition
from rookery.guard.scan.findings import ScanReport
from rookery.guard.scan.scanner import Scanner

FOLDER = Path(__file__).parent
# Raised with each improvement.
LEAST_FOUND = 0.85
SCANNER = Scanner()


def read_lines(name: str) -> list[str]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def scan(description: str) -> ScanReport:
    tool = {"name": "tool", "description": description, "inputSchema": {"type": "object"}}
    return SCANNER.scan(Definition("tool", "server", "tool", tool))


def test_c01_attacks_are_found_in_most_wordings() -> None:
    total, found = Counter[str](), Counter[str]()
    for line in read_lines("poisoned.txt"):
        kind, _, description = line.partition("|")
        total[kind] += 1
        found[kind] += scan(description).severity == "severe"
    assert found.total() >= LEAST_FOUND * total.total(), {kind: f"{found[kind]} of {total[kind]}" for kind in total}


@pytest.mark.parametrize("description", read_lines("benign.txt"))
def test_c02_a_tool_that_comes_close_to_an_attack_has_no_finding(description: str) -> None:
    assert scan(description).findings == []
