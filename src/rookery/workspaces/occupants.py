"""Who lives in a folder: processes that have it as their folder, or files of it open."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from rookery.system import processes

_PROC = Path("/proc")
_SECONDS = 3.0


class Occupant(msgspec.Struct, frozen=True):
    """`started` makes sure that a pid that was given to another is not mistaken for it."""

    pid: int
    name: str
    started: float


async def find_occupants(folder: Path) -> list[Occupant]:
    """All of this user's processes in a folder, this one aside; those of others cannot be seen."""
    return await asyncio.to_thread(lambda: list(_look(folder)))


async def ask_to_leave(occupants: Sequence[Occupant]) -> None:
    """SIGTERM, and a short wait. Never more: it may be the shell or editor in which somebody asked for the deletion."""
    found: list[psutil.Process] = []
    for one in occupants:
        with contextlib.suppress(psutil.Error):
            if processes.started(one.pid) == one.started:
                found.append(psutil.Process(one.pid))
    processes.send(found, signal.SIGTERM)
    await asyncio.to_thread(processes.wait_gone, found, _SECONDS)


def _look(folder: Path) -> Iterator[Occupant]:
    inside = os.fsencode(folder)
    places = _links if _PROC.joinpath("self", "cwd").exists() else _told
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if any(place == inside or place.startswith(inside + b"/") for place in places(pid)):
                yield Occupant(pid, psutil.Process(pid).name(), processes.started(pid))


def _links(pid: int) -> Iterator[bytes]:
    """The folder, program and open files of a process, as Linux tells them."""
    own = os.fsencode(_PROC / str(pid))
    yield os.readlink(own + b"/cwd")  # noqa: PTH115 - bytes, as names may be any
    with contextlib.suppress(OSError):
        yield os.readlink(own + b"/exe")  # noqa: PTH115
    for handle in os.listdir(own + b"/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            yield os.readlink(own + b"/fd/" + handle)  # noqa: PTH115


def _told(pid: int) -> Iterator[bytes]:
    """The same for other systems."""
    process = psutil.Process(pid)
    yield os.fsencode(process.cwd())
    yield from (os.fsencode(file.path) for file in process.open_files())
