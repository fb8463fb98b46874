"""Processes whose working directory or open files are in a folder."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from rookery.system.process import table

_PROC = Path("/proc")
_WAIT_SECONDS = {signal.SIGTERM: 3.0, signal.SIGKILL: 2.0}
_MAX_COMMAND_LENGTH = 200


class FolderProcess(msgspec.Struct, frozen=True):
    """A process in a folder. `started` distinguishes it from a later process with the same pid."""

    pid: int
    name: str
    started: float
    command: str = ""


async def end_processes_in(folder: Path, is_own_marker: Callable[[str], bool]) -> list[FolderProcess]:
    """End the processes in a folder whose marker is `is_own_marker`, and return the remaining ones.

    Other processes are never signalled: one of them may be the shell or the script that requested the deletion.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        occupants = await find_processes_in(folder)
        marked = [process for process in occupants if _has_marker(process.pid, is_own_marker)]
        if not marked:
            return occupants
        await asyncio.to_thread(_signal, marked, number)
    return await find_processes_in(folder)


async def find_processes_in(folder: Path) -> list[FolderProcess]:
    """Return this user's processes in a folder except this one. Those of other users are not visible."""
    return await asyncio.to_thread(lambda: list(_scan_processes(folder)))


def _has_marker(pid: int, is_own_marker: Callable[[str], bool]) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        marker = table.read_marker(pid)
        return marker is not None and is_own_marker(marker)
    return False


def _signal(occupants: Sequence[FolderProcess], number: signal.Signals) -> None:
    """Send a signal to processes that still exist, and wait for their end."""
    processes: list[psutil.Process] = []
    for occupant in occupants:
        with contextlib.suppress(psutil.Error):
            if table.start_time(occupant.pid) == occupant.started:
                processes.append(psutil.Process(occupant.pid))
    table.send_signal(processes, number)
    table.wait_for_exits(processes, _WAIT_SECONDS[number])


def _scan_processes(folder: Path) -> Iterator[FolderProcess]:
    prefix = os.fsencode(folder)
    list_paths = _paths_from_proc if _PROC.joinpath("self", "cwd").exists() else _paths_from_psutil
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if any(path == prefix or path.startswith(prefix + b"/") for path in list_paths(pid)):
                process = psutil.Process(pid)
                name = process.name()
                command = " ".join(process.cmdline()) or name
                yield FolderProcess(pid, name, table.start_time(pid), _shorten(command))


def _shorten(command: str) -> str:
    # A command line may contain any bytes; the result must be valid text.
    text = command.encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_COMMAND_LENGTH else text[: _MAX_COMMAND_LENGTH - 1] + "…"


def _paths_from_proc(pid: int) -> Iterator[bytes]:
    """Yield the working directory, program and open files of a process, from /proc on Linux."""
    own = os.fsencode(_PROC / str(pid))
    yield os.readlink(own + b"/cwd")  # noqa: PTH115 - bytes, as names may be any
    with contextlib.suppress(OSError):
        yield os.readlink(own + b"/exe")  # noqa: PTH115
    for handle in os.listdir(own + b"/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            yield os.readlink(own + b"/fd/" + handle)  # noqa: PTH115


def _paths_from_psutil(pid: int) -> Iterator[bytes]:
    """Yield the same for other systems, without the program."""
    process = psutil.Process(pid)
    yield os.fsencode(process.cwd())
    yield from (os.fsencode(file.path) for file in process.open_files())
