"""A client whose network is gone, so that it cannot close its connection."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import requirement

PROGRAM = Path(__file__).parents[2] / "programs" / "dropped_route.py"
ROOT = Path(__file__).parents[3]


@requirement("wire.http.lost-client")
def test_a13_a_call_whose_client_lost_its_network_is_cancelled_and_its_slot_freed() -> None:
    """In a network namespace of its own: a client that is merely stopped would still acknowledge."""
    reasons: list[str] = []
    for space in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        try:
            tried = subprocess.run([*space, "true"], capture_output=True, text=True, timeout=30, check=False)
        except FileNotFoundError as error:
            pytest.skip(f"no network namespaces here: {error}")
        if tried.returncode == 0:
            done = subprocess.run(
                [*space, sys.executable, str(PROGRAM)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            assert done.stdout.split() == ["dropped", "cancelled", "freed"], done.stderr
            return
        reasons.append(tried.stderr.strip())
    pytest.skip(f"no network namespaces here: {'; '.join(reasons)}")
