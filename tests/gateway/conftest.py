"""What tests of the gateway share."""

from collections.abc import Generator

import pytest

from tests.support.gateway.fastpath import Noted, noted


@pytest.fixture
def lane() -> Generator[Noted]:
    """Tells which calls were served without a task."""
    with noted() as made:
        yield made
