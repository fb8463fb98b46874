"""Where a process comes from: itself and all above it, each made sure to be the one that was meant."""

import os
from pathlib import Path
from typing import NamedTuple

import psutil

from rookery.system import processes

_PROC = Path("/proc")
_LINUX = (_PROC / "self" / "stat").exists()
_MOST = 1_000


class Seen(NamedTuple):
    """One process. `marked` is None if its environment cannot be read; `foreground` if the system does not tell."""

    pid: int
    started: float
    parent: int
    session: int
    terminal: int | str | None
    foreground: bool | None
    marked: bool | None


class Unsteady(Exception):
    """Processes came or went while they were being looked at."""


def lineage(pid: int) -> list[Seen]:
    """The process and all above it as far as the system shows them; empty if it has gone."""
    found: list[Seen] = []
    seen = look(pid)
    while seen is not None and len(found) < _MOST:
        found.append(seen)
        above = look(seen.parent) if seen.parent > 0 else None
        # An orphan is given to another parent, and its old parent's pid may be somebody else's by now.
        now = look(seen.pid)
        if now is None or now[:3] != seen[:3] or (above is not None and above.started > seen.started):
            raise Unsteady
        seen = above
    return found


def look(pid: int) -> Seen | None:
    """One process; None if it has gone, or cannot be seen at all."""
    try:
        before = processes.started(pid)
        parent, session, terminal, foreground = _from_stat(pid) if _LINUX else _from_psutil(pid)
        try:
            marked = processes.marker_of(pid) is not None
        except (psutil.AccessDenied, PermissionError):
            marked = None
        if processes.started(pid) != before:
            return None
    except (psutil.Error, OSError):
        return None
    return Seen(pid, before, parent, session, terminal, foreground, marked)


def _from_stat(pid: int) -> tuple[int, int, int | None, bool | None]:
    fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    parent, group, session, terminal, in_front = (int(field) for field in fields[1:6])
    return parent, session, terminal or None, group == in_front


def _from_psutil(pid: int) -> tuple[int, int, str | None, bool | None]:
    process = psutil.Process(pid)
    return process.ppid(), os.getsid(pid), process.terminal(), None


def marked_on(terminal: int | str | None, session: int) -> list[int]:
    """The processes with a marker, of anyone's, in this session or on this terminal."""
    carriers = processes.carriers(lambda marker: True)
    seen = [one for one in map(look, (process.pid for process in carriers)) if one is not None]
    return [one.pid for one in seen if one.session == session or (terminal and one.terminal == terminal)]
