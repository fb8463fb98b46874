"""The official suite judges the client role."""

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.support.requirements import requirement

SCENARIOS = {"2025-11-25": 4, "2026-07-28": 7}


@pytest.mark.timeout(600)
@requirement("wire.conformance.direct")
@pytest.mark.parametrize("revision", SCENARIOS)
def test_every_scored_scenario_that_is_not_about_sign_in_passes(revision: str, tmp_path: Path) -> None:
    suite.install()
    outcome = suite.client_without_sign_in(revision, tmp_path)
    assert outcome.failed == []
    assert len(outcome.passed) == SCENARIOS[revision]
