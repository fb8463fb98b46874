"""The official suite tests the client role, including sign-in."""

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.support.requirements import requirement

SCENARIOS = {"2025-11-25": 18, "2026-07-28": 32}


@pytest.mark.timeout(900)
@requirement("wire.conformance.direct", "hub.conformance.client")
@pytest.mark.parametrize("revision", SCENARIOS)
def test_every_scored_scenario_of_a_client_passes(revision: str, tmp_path: Path) -> None:
    suite.install()
    outcome = suite.client(revision, tmp_path)
    assert outcome.failed == []
    assert len(outcome.passed) == SCENARIOS[revision]
