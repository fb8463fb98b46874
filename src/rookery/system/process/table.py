"""The processes of this machine: find those that Rookery started, and signal exactly the intended one.

Each process that Rookery starts has `MARKER` in its environment: `<instance>.<child>`, appended with a colon to the
marker that Rookery itself was started with. `<child>` is a number, followed by `.<key>` if the child works for a user
or a workspace (`Spawner.origin_of`). Children inherit the marker, so descendants that left their process group are
found too. A pid is always used together with its start time, so that a reused pid is never mistaken.
"""

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from rookery.system.clock import SYSTEM_CLOCK

MARKER = "ROOKERY_SPAWN"

_PROC = Path("/proc")
_LINUX = (_PROC / "self" / "stat").exists()
# How often to check whether a process has ended, where the system does not notify.
_POLL_SECONDS = 1.0

_MAX_ANCESTORS = 1_000
# How often to read an ancestry again that changed meanwhile.
_TRIES = 5


def make_marker(instance: str, child: str) -> str:
    """Return the marker of a new child, with the marker of this process in front."""
    part = f"{instance}.{child}"
    inherited = os.environ.get(MARKER)
    return f"{inherited}:{part}" if inherited else part


def match_instance(instance: str) -> Callable[[str], bool]:
    """Return a predicate for markers: whether they contain this instance."""
    return lambda marker: any(part.partition(".")[0] == instance for part in marker.split(":"))


def match_child(instance: str, child: str) -> Callable[[str], bool]:
    """Return a predicate for markers: whether they contain this child of this instance."""
    wanted = f"{instance}.{child}"
    return lambda marker: wanted in marker.split(":")


def select_markers(markers: Iterable[str], instances: Collection[str]) -> set[str]:
    """Return the parts of these markers that belong to one of these instances."""
    parts = (part for marker in markers for part in marker.split(":"))
    return {part for part in parts if part.partition(".")[0] in instances}


def find_marked(matches: Callable[[str], bool], *, not_before: float = 0.0) -> list[psutil.Process]:
    """Return the living processes of this user whose marker is `matches`, started at `not_before` or later."""
    uid = os.getuid()
    processes: list[psutil.Process] = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            marker = read_marker(pid)
            if marker is None or not matches(marker) or start_time(pid) < not_before:
                continue
            process = psutil.Process(pid)
            if process.uids().real == uid and is_alive(process):
                processes.append(process)
    return processes


def read_marker(pid: int) -> str | None:
    """Return the marker in a process's initial environment, or None; raise if it cannot be read."""
    if not _LINUX:
        return psutil.Process(pid).environ().get(MARKER)
    # Many times cheaper than a psutil.Process for each pid, and almost all processes have no marker.
    environment = _read_proc(f"/proc/{pid}/environ")
    if not environment:
        raise psutil.AccessDenied(pid)  # a zombie, or a process that has overwritten it
    _, separator, rest = (b"\0" + environment).partition(b"\0" + MARKER.encode() + b"=")
    return rest.partition(b"\0")[0].decode("utf-8", "replace") if separator else None


def has_empty_environment(pid: int) -> bool:
    """Return whether a process was started without any variables; False if the system does not show it."""
    try:
        fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    start, end = fields[47:49]
    # Both are 0 while a program is being loaded.
    return start == end != b"0"


def _read_proc(path: str) -> bytes:
    """Read a file of /proc with plain system calls: it is called for all processes while callers wait."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(handle, 2**16)]
        while parts[-1]:
            parts.append(os.read(handle, 2**16))
    finally:
        os.close(handle)
    return b"".join(parts)


def list_group(group: int, *, not_before: float) -> list[psutil.Process]:
    """Return the living members of a process group that started at `not_before` or later."""
    processes: list[psutil.Process] = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(pid) == group and start_time(pid) >= not_before:
                process = psutil.Process(pid)
                if is_alive(process):
                    processes.append(process)
    return processes


def group_is_empty(group: int) -> bool:
    """Return whether a process group has no members, zombies included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def is_alive(process: psutil.Process) -> bool:
    """Return whether this is still the same process, and not a zombie that waits to be reaped."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def send_signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Signal each process that is still the same one; psutil compares start times first."""
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            process.send_signal(number)


def wait_for_exits(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Block until all processes have ended or the time is up. A zombie that init does not reap counts as ended."""
    handles: list[int] = []
    try:
        for process in processes:
            try:
                handles.append(os.pidfd_open(process.pid))
            except ProcessLookupError:
                continue
            except (AttributeError, OSError):
                psutil.wait_procs(list(processes), timeout=seconds)
                return
        deadline = SYSTEM_CLOCK.monotonic() + seconds
        poller = select.poll()
        for handle in handles:
            poller.register(handle, select.POLLIN)
        running = len(handles)
        while running and (remaining := deadline - SYSTEM_CLOCK.monotonic()) > 0:
            for handle, _ in poller.poll(remaining * 1000):
                poller.unregister(handle)
                running -= 1
    finally:
        for handle in handles:
            os.close(handle)


def signal_if_same(pid: int, started: float, number: signal.Signals) -> None:
    """Signal the process with this pid if it started at that moment."""
    with contextlib.suppress(psutil.Error, OSError):
        if start_time(pid) == started:
            os.kill(pid, number)


def start_time(pid: int) -> float:
    """Return when a process started; on Linux in seconds since boot, which changing the clock does not affect."""
    if _LINUX:
        try:
            fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            raise psutil.NoSuchProcess(pid) from None
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return psutil.Process(pid).create_time()


async def wait_for_pid(pid: int) -> None:
    """Wait until a process has ended; return at once if there is none."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        while psutil.pid_exists(pid):  # noqa: ASYNC110 - the system does not notify
            await asyncio.sleep(_POLL_SECONDS)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def find_calling_shell(pid: int) -> int:
    """Return the shell that waits for a command: a subshell, as for `$(...)`, is a copy of the shell above it."""
    try:
        process = psutil.Process(pid)
        while (parent := process.parent()) is not None and _name_and_arguments(parent) == _name_and_arguments(process):
            process = parent
        return process.pid
    except psutil.Error:
        return pid


def _name_and_arguments(process: psutil.Process) -> tuple[str, list[str]]:
    return process.name(), process.cmdline()


class ProcessInfo(NamedTuple):
    """One process. `marker` is empty if it has none, and None if its environment cannot be read.

    `foreground` is None if the system does not show it.
    """

    pid: int
    started: float
    parent: int
    session: int
    terminal: int | str | None
    foreground: bool | None
    marker: str | None

    @property
    def marked(self) -> bool | None:
        """Whether it has a marker; None if its environment cannot be read."""
        return None if self.marker is None else bool(self.marker)


class ProcessesChanged(Exception):
    """Processes started or ended while they were being read."""


def list_ancestry(pid: int) -> list[ProcessInfo]:
    """Return the process and its ancestors as far as the system shows them; empty if it has ended."""
    ancestry: list[ProcessInfo] = []
    process = read_process(pid)
    while process is not None and len(ancestry) < _MAX_ANCESTORS:
        ancestry.append(process)
        parent = read_process(process.parent) if process.parent > 0 else None
        # An orphan gets another parent, and the pid of its old parent may be reused by now.
        if not _is_same_process(process) or (parent is not None and parent.started > process.started):
            raise ProcessesChanged
        process = parent
    return ancestry


def list_markers_around(pid: int, started: float) -> list[str] | None:
    """Return the markers of a process, of its ancestors and of the leader of its session.

    None if they cannot be determined: the process has ended, is executing another program, or does not show its
    environment. The leader counts because an orphaned process gets another parent but stays in its session.
    """
    for _ in range(_TRIES):
        try:
            ancestry = list_ancestry(pid)
        except ProcessesChanged:
            continue
        if not ancestry or ancestry[0].started != started:
            return None
        if ancestry[0].marker is None and not has_empty_environment(pid):
            return None
        leader = read_process(ancestry[0].session)
        return [process.marker for process in (*ancestry, leader) if process is not None and process.marker]
    return None


def read_process(pid: int) -> ProcessInfo | None:
    """Return a process; None if it has ended, or cannot be seen at all."""
    try:
        before = start_time(pid)
        parent, session, terminal, foreground = _from_stat(pid) if _LINUX else _from_psutil(pid)
        try:
            marker = read_marker(pid) or ""
        except (psutil.AccessDenied, PermissionError):
            marker = None
        if start_time(pid) != before:
            return None
    except (psutil.Error, OSError):
        return None
    return ProcessInfo(pid, before, parent, session, terminal, foreground, marker)


def _is_same_process(process: ProcessInfo) -> bool:
    """Return whether a process is still the one that was read, with the same parent."""
    try:
        parent = (_from_stat if _LINUX else _from_psutil)(process.pid)[0]
        return parent == process.parent and start_time(process.pid) == process.started
    except (psutil.Error, OSError):
        return False


def _from_stat(pid: int) -> tuple[int, int, int | None, bool | None]:
    fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    parent, group, session, terminal, in_front = (int(field) for field in fields[1:6])
    return parent, session, terminal or None, group == in_front


def _from_psutil(pid: int) -> tuple[int, int, str | None, bool | None]:
    process = psutil.Process(pid)
    return process.ppid(), os.getsid(pid), process.terminal(), None


def find_marked_on_terminal(terminal: int | str | None, session: int) -> list[int]:
    """Return the pids of processes with any marker in this session or on this terminal."""
    carriers = find_marked(lambda marker: True)
    infos = [info for info in map(read_process, (process.pid for process in carriers)) if info is not None]
    return [info.pid for info in infos if info.session == session or (terminal and info.terminal == terminal)]
