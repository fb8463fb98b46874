"""Lets others go first."""

import contextlib
import os
from pathlib import Path

_STEPS = 5


def step_back() -> None:
    """This process is willing to wait for those who serve somebody; on an idle machine it is as fast as ever."""
    with contextlib.suppress(OSError):
        os.nice(_STEPS)
    # Where Linux weighs sessions instead of processes, that alone would do nothing.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_STEPS))
