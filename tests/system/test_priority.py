"""Processes that let others go first."""

import os
import sys
from pathlib import Path

import pytest

from rookery.system.priority import send_back
from rookery.system.spawn import Spawner

pytestmark = pytest.mark.anyio

TOLD = "import os; print(os.nice(0), flush=True)"


async def _told(tmp_path: Path, nice: int) -> int:
    """What a process finds of itself, once it is asked."""
    child = await Spawner("0" * 32).start(
        [sys.executable, "-c", f"input(); {TOLD}"],
        name="python",
        cwd=tmp_path,
        env=dict(os.environ),
        stdin=True,
        stdout="stream",
        nice=nice,
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b"\n")
    line = await child.stdout.readline()
    await child.wait()
    return int(line)


@pytest.mark.parametrize("nice", [0, 5, 10])
async def test_a_process_lets_others_go_first_as_far_as_it_is_told_to(tmp_path: Path, nice: int) -> None:
    assert await _told(tmp_path, nice) == min(os.nice(0) + nice, 19)


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux alone")
async def test_it_keeps_a_policy_that_starves_nobody(tmp_path: Path) -> None:
    child = await Spawner("0" * 32).start(
        [sys.executable, "-c", "input()"], name="python", cwd=tmp_path, env=dict(os.environ), stdin=True, nice=5
    )
    assert os.sched_getscheduler(child.pid) == os.SCHED_OTHER
    await child.stop()


def test_where_there_is_no_such_process_nothing_happens() -> None:
    before = os.nice(0)
    send_back(2**22 + 1, 5)
    assert os.nice(0) == before
