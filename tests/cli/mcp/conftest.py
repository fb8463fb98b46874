"""Settings of the daemons in these tests."""

import pytest


@pytest.fixture(autouse=True)
def scan_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve what the scanner would withhold: one of the servers hides characters, to see them escaped."""
    monkeypatch.setenv("ROOKERY_GUARD_SCAN", "off")
