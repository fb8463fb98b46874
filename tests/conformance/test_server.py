"""The official suite tests the server role."""

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.support.requirements import requirement

ACROSS = {"2025-11-25": 30, "2026-07-28": 35}
SCENARIOS = {"2025-11-25": 30, "2026-07-28": 37}


@pytest.mark.timeout(600)
@requirement("wire.conformance.direct")
@pytest.mark.parametrize("revision", SCENARIOS)
def test_every_scored_scenario_passes(revision: str, tmp_path: Path) -> None:
    suite.install()
    outcome = suite.server_direct(revision, tmp_path)
    assert outcome.failed == []
    assert len(outcome.passed) == SCENARIOS[revision]


@pytest.mark.timeout(600)
@requirement("hub.conformance.through")
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("revision", SCENARIOS)
def test_every_scored_scenario_passes_through_the_gateway(revision: str, transport: str, tmp_path: Path) -> None:
    suite.install()
    outcome = suite.server_through(revision, transport, tmp_path)
    assert outcome.failed == []
    assert len(outcome.passed) == SCENARIOS[revision]


@pytest.mark.timeout(600)
@requirement("hub.call.server-requests", "hub.conformance.through")
@pytest.mark.parametrize("revision", ACROSS)
def test_every_scenario_that_the_other_era_can_express_passes_over_a_server_of_it(
    revision: str, tmp_path: Path
) -> None:
    suite.install()
    found = suite.across(revision)
    assert sorted([*found.scenarios, *found.not_expressible]) == sorted(suite.required(revision, "server"))
    assert len(found.scenarios) == ACROSS[revision]
    assert suite.server_across(revision, tmp_path).failed == []
