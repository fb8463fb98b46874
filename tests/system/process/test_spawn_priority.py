"""Processes with a lower priority."""

import os
import sys
from pathlib import Path

import pytest

from rookery.system.process.spawn import Priority, Spawner, lower_priority

pytestmark = pytest.mark.anyio

TOLD = "import os; print(os.nice(0), flush=True)"


async def _told(tmp_path: Path, priority: Priority | None) -> int:
    """What a process finds of itself, once it is asked."""
    child = await Spawner("0" * 32).start(
        [sys.executable, "-c", f"input(); {TOLD}"],
        name="python",
        cwd=tmp_path,
        env=dict(os.environ),
        stdin=True,
        stdout="stream",
        priority=priority,
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(b"\n")
    line = await child.stdout.readline()
    await child.wait()
    return int(line)


@pytest.mark.parametrize("long_slice", [False, True])
@pytest.mark.parametrize("nice", [5, 10])
async def test_a_process_lets_others_go_first_as_far_as_it_is_told_to(
    tmp_path: Path, nice: int, long_slice: bool
) -> None:
    assert await _told(tmp_path, Priority(nice, long_slice)) == min(os.nice(0) + nice, 19)


async def test_all_others_are_as_important_as_we_are(tmp_path: Path) -> None:
    assert await _told(tmp_path, None) == os.nice(0)


def test_where_there_is_no_such_process_nothing_happens() -> None:
    before = os.nice(0)
    lower_priority(2**22 + 1, Priority(5, long_slice=True))
    assert os.nice(0) == before
