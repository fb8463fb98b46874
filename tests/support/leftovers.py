"""Finds and ends the processes that a test left behind, by the marker in their environment."""

import time
from pathlib import Path

import psutil

from rookery.system.process.table import read_marker


def alive() -> frozenset[int]:
    """The pids of now: of these none carries the mark of a test that only begins."""
    return frozenset(psutil.pids())


def carriers(mark: str, before: frozenset[int]) -> list[psutil.Process]:
    """Living processes whose environment carries `mark`, but for those that were there before."""
    found: list[psutil.Process] = []
    for pid in alive() - before:
        try:
            if mark not in (read_marker(pid) or ""):
                continue
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def zombies(before: frozenset[int]) -> list[str]:
    """Children that have ended and were not waited for, but for those of `before`; they have a moment for it."""
    deadline = time.monotonic() + 5
    while True:
        left = [pid for pid in _children() - before if _is_zombie(pid)]
        if not left or time.monotonic() > deadline:
            return [f"{pid} (zombie)" for pid in left]
        time.sleep(0.01)


def _children() -> frozenset[int]:
    threads = Path("/proc/self/task")
    return frozenset(int(pid) for thread in threads.iterdir() for pid in _read(thread / "children").split())


def _is_zombie(pid: int) -> bool:
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] == ["Z"]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def end(processes: list[psutil.Process]) -> list[str]:
    """Kill them and tell what they were."""
    told: list[str] = []
    for process in processes:
        try:
            told.append(f"{process.pid} {' '.join(process.cmdline())}")
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(processes, timeout=10)
    return told
