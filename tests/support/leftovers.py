"""Finds and ends the processes that a test left behind, by the marker in their environment."""

import psutil

from rookery.system.processes import marker_of


def alive() -> frozenset[int]:
    """The pids of now: of these none carries the mark of a test that only begins."""
    return frozenset(psutil.pids())


def carriers(mark: str, before: frozenset[int]) -> list[psutil.Process]:
    """Living processes whose environment carries `mark`, but for those that were there before."""
    found: list[psutil.Process] = []
    for pid in alive() - before:
        try:
            if mark not in (marker_of(pid) or ""):
                continue
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


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
