"""Fixtures for tests of the gateway."""

from collections.abc import Generator

import pytest

from tests.support.gateway.fastpath import FastCallCounts, count_fast_calls


@pytest.fixture
def fast_calls() -> Generator[FastCallCounts]:
    """Tells which calls were served without a task."""
    with count_fast_calls() as made:
        yield made
