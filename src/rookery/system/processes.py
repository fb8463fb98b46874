"""What processes there are, whose they are, and how to signal exactly the one that was meant.

Each process that Rookery starts carries `MARKER` in its environment: `<instance>.<child>`, appended with a colon to
the marker that Rookery itself was started with. Children inherit it, so that also those are found that left their
process group. A pid is only ever used together with its start time, so that a re-used one is never mistaken.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import psutil

from rookery.system.clock import SYSTEM_CLOCK

MARKER = "ROOKERY_SPAWN"

_PROC = Path("/proc")
_LINUX = (_PROC / "self" / "stat").exists()


def marker_for(instance: str, child: str) -> str:
    """The marker of a new child, with the one that this process carries in front."""
    own = f"{instance}.{child}"
    inherited = os.environ.get(MARKER)
    return f"{inherited}:{own}" if inherited else own


def of_instance(instance: str) -> Callable[[str], bool]:
    return lambda marker: any(part.partition(".")[0] == instance for part in marker.split(":"))


def of_child(instance: str, child: str) -> Callable[[str], bool]:
    wanted = f"{instance}.{child}"
    return lambda marker: wanted in marker.split(":")


def carriers(owned: Callable[[str], bool], *, not_before: float = 0.0) -> list[psutil.Process]:
    """Living processes of this user whose marker is `owned` and that started at `not_before` or later."""
    mine = os.getuid()
    found: list[psutil.Process] = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            marker = marker_of(pid)
            if marker is None or not owned(marker) or started(pid) < not_before:
                continue
            process = psutil.Process(pid)
            if process.uids().real == mine and is_alive(process):
                found.append(process)
    return found


def marker_of(pid: int) -> str | None:
    """The marker in a process's environment, as that was when it began; raises where it cannot be read."""
    if not _LINUX:
        return psutil.Process(pid).environ().get(MARKER)
    # Many times cheaper than a psutil.Process for each pid, and all but a few end here.
    environment = _read(f"/proc/{pid}/environ")
    if not environment:
        raise psutil.AccessDenied(pid)  # of a zombie, or of a process that has wiped it
    _, there, rest = (b"\0" + environment).partition(b"\0" + MARKER.encode() + b"=")
    return rest.partition(b"\0")[0].decode("utf-8", "replace") if there else None


def _read(path: str) -> bytes:
    """A file of /proc. Plainly: of all processes of a machine, while others wait for this one."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(handle, 2**16)]
        while parts[-1]:
            parts.append(os.read(handle, 2**16))
    finally:
        os.close(handle)
    return b"".join(parts)


def group_members(group: int, *, not_before: float) -> list[psutil.Process]:
    """Living members of a process group that started at `not_before` or later."""
    found: list[psutil.Process] = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(pid) == group and started(pid) >= not_before:
                process = psutil.Process(pid)
                if is_alive(process):
                    found.append(process)
    return found


def group_is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def is_alive(process: psutil.Process) -> bool:
    """Still the same process, and not a zombie that merely waits to be read."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Signal each one that is still the process it was; psutil compares start times first."""
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            process.send_signal(number)


def wait_gone(found: Sequence[psutil.Process], seconds: float) -> None:
    """Block until all have ended or the time is up. One that is a zombie for want of a good init has ended too."""
    handles: list[int] = []
    try:
        for process in found:
            try:
                handles.append(os.pidfd_open(process.pid))
            except ProcessLookupError:
                continue
            except (AttributeError, OSError):
                psutil.wait_procs(list(found), timeout=seconds)
                return
        ends = SYSTEM_CLOCK.monotonic() + seconds
        waiting = select.poll()
        for handle in handles:
            waiting.register(handle, select.POLLIN)
        left = len(handles)
        while left and (rest := ends - SYSTEM_CLOCK.monotonic()) > 0:
            for handle, _ in waiting.poll(rest * 1000):
                waiting.unregister(handle)
                left -= 1
    finally:
        for handle in handles:
            os.close(handle)


def signal_if_same(pid: int, moment: float, number: signal.Signals) -> None:
    """Signal the process with this pid if it is the one that started at that moment."""
    with contextlib.suppress(psutil.Error, OSError):
        if started(pid) == moment:
            os.kill(pid, number)


def started(pid: int) -> float:
    """When a process started, on a clock that no clock change moves where the system has one (Linux: since boot)."""
    if _LINUX:
        try:
            fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            raise psutil.NoSuchProcess(pid) from None
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return psutil.Process(pid).create_time()


def boot_id() -> str:
    """Changes with every boot, where the system tells."""
    try:
        return _PROC.joinpath("sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(psutil.boot_time())


def ancestors() -> set[int]:
    """This process and all above it."""
    try:
        me = psutil.Process()
        return {me.pid, *(parent.pid for parent in me.parents())}
    except psutil.Error:
        return {os.getpid(), os.getppid()}
