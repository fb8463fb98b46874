"""How often a test repeats its action: a few times in the suite, the full count in `make soak`.

A test that repeats uses both names, so that `make soak` finds it:

    @soak
    def test_it_holds_every_time() -> None:
        for _ in range(repetitions(5, 50)):
            ...
"""

import os

import pytest

# Read once: every test has an environment without the variables of Rookery.
SOAKING = os.environ.get("ROOKERY_SOAK") == "1"

soak = pytest.mark.soak


def repetitions(short: int, full: int) -> int:
    """Return how many times to repeat: `short` in the suite, `full` in the soak."""
    return full if SOAKING else short
