"""Finds and ends the processes that a test left behind, by the marker in their environment."""

import psutil

from rookery.system.processes import MARKER


def carriers(mark: str) -> list[psutil.Process]:
    """Living processes whose environment carries `mark`, this one aside."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if mark in process.environ().get(MARKER, "") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [process for process in found if process.pid != psutil.Process().pid]


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
