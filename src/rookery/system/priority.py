"""Lets others go first."""

import contextlib
import ctypes
import functools
import os
import platform
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

# The most that Linux grants at a time.
_SLICE_NANOSECONDS = 100_000_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())


@dataclass(frozen=True)
class Priority:
    """How `nice` a process is. Whoever is woken beside one with a `long_slice` goes before it at once.

    Not for those who compute for long: who has had its share already waits for the end of such a slice.
    """

    nice: int
    long_slice: bool = False


def send_back(pid: int, priority: Priority) -> None:
    """A child of ours, and all that it starts, waits for those who serve somebody; on an idle machine it is as fast."""
    with contextlib.suppress(OSError):
        nice = min(os.getpriority(os.PRIO_PROCESS, pid) + priority.nice, 19)
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        if priority.long_slice:
            _lengthen_slice(pid, nice)
    # Where Linux weighs sessions instead of processes, that alone would do nothing.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(priority.nice))


def _lengthen_slice(pid: int, nice: int) -> None:
    """Since 6.12; before that Linux takes note of the rest only."""
    if sys.platform == "linux" and _SCHED_SETATTR is not None:
        attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, _SLICE_NANOSECONDS, 0, 0)
        _library().syscall(_SCHED_SETATTR, pid, attributes, 0)


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
