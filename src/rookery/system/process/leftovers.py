"""Find and stop the processes that a killed daemon left running, by the marker of its instance.

`require_user` refuses actions that are reserved for the user to any process that a daemon of the same user started.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import signal
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NotRequired, TypedDict

import psutil

from rookery.system.clock import boot_id
from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.fs.atomic import UnreadableFile, read_json, set_aside, write_atomic
from rookery.system.ids import new_id
from rookery.system.process import table
from rookery.system.process.table import list_markers_around

logger = logging.getLogger("rookery.leftovers")
_WAIT_SECONDS = {signal.SIGTERM: 3.0, signal.SIGKILL: 2.0}


class Instance(TypedDict):
    """A daemon. `started` is the start time of the process `pid`, so that a later process is not mistaken for it."""

    id: str
    boot: str
    started: float
    pid: NotRequired[int]


def this_instance(id_: str) -> Instance:
    """Return the record of this process as the instance with this id."""
    return {"id": id_, "boot": boot_id(), "started": table.start_time(os.getpid()), "pid": os.getpid()}


class InstanceRegistry:
    """The list of daemon instances, in the state folder. Only the holder of the daemon's lock may write it."""

    def __init__(self, state: Path) -> None:
        self._file = state / "instances.json"
        self.problems: list[str] = []

    def load_current_boot(self) -> list[Instance]:
        """Return the listed instances of this boot, a running one included: no process outlives a boot."""
        try:
            listed = read_json(self._file, list[Instance])
        except FileNotFoundError:
            return []
        except UnreadableFile as error:
            problem = f"{set_aside(self._file, str(error))}; children of an earlier daemon may still run"
            self.problems.append(problem)
            logger.error("%s", problem)
            return []
        boot = boot_id()
        return [instance for instance in listed if instance["boot"] == boot]

    def load_all(self) -> list[Instance]:
        """Return all listed instances, also those of an earlier boot; none if the file is missing or damaged."""
        try:
            return read_json(self._file, list[Instance])
        except (FileNotFoundError, UnreadableFile):
            return []

    def find_running(self) -> psutil.Process | None:
        """Return a listed daemon that runs, whatever happened to its lock; never this process."""
        boot = boot_id()
        for instance in self.load_all():
            pid = instance.get("pid", os.getpid())
            with contextlib.suppress(psutil.Error):
                if instance["boot"] == boot and pid != os.getpid() and table.start_time(pid) == instance["started"]:
                    process = psutil.Process(pid)
                    if table.is_alive(process):
                        return process
        return None

    def write(self, instances: list[Instance]) -> None:
        """Replace the list."""
        write_atomic(self._file, json.dumps(instances).encode(), mode=0o600)


def new_instance() -> str:
    """Return a new id for a daemon. It contains hashes of the user's config folder and home folder.

    Another state folder does not make another user: a process with the marker is recognised by these hashes too.
    """
    return "-".join([new_id(), *map(_folder_hash, (paths.config_folder(), Path.home()))])


def require_user(state: Path, action: str, *, in_home: bool = False) -> None:
    """Raise if a daemon of this state folder, or one with the same config folder, started this process.

    `action` is reserved for the user. With `in_home`, daemons with the same home folder count too, whatever their
    config folder is.
    """
    instances = {instance["id"] for instance in InstanceRegistry(state).load_all()}
    pid = os.getpid()
    markers = [os.environ.get(table.MARKER, ""), *(list_markers_around(pid, table.start_time(pid)) or ())]
    config = _folder_hash(paths.config_folder())
    home = _folder_hash(Path.home())
    if any(
        _is_same_user(mark.partition(".")[0], instances, config, home if in_home else None)
        for mark in _split_markers(markers)
    ):
        raise RookeryError(
            "forbidden",
            f"this process was started by Rookery, and {action} is reserved for its user",
            "run the command yourself in a terminal that Rookery did not open; to run Rookery inside an agent, set "
            "ROOKERY_HOME and XDG_CONFIG_HOME to separate folders",
        )


def _split_markers(markers: Iterable[str]) -> set[str]:
    return {mark for marker in markers for mark in marker.split(":")}


def _is_same_user(instance: str, instances: Collection[str], config: str, home: str | None) -> bool:
    """Return whether an instance is listed, or has the same config folder or home folder."""
    parts = instance.split("-")
    if instance in instances:
        return True
    return len(parts) == 3 and (parts[1] == config or parts[2] == home)


def _folder_hash(folder: Path) -> str:
    """Return a short hash of the real path of a folder."""
    return hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:8]


async def stop_leftovers(instances: list[Instance]) -> tuple[list[int], list[Instance]]:
    """Stop all processes of these instances; return the pids and the instances that still have processes."""
    ended: set[int] = set()
    alive: list[Instance] = []
    for instance in instances:
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            processes = await asyncio.to_thread(_processes_of, instance)
            if not processes:
                break
            ended.update(process.pid for process in processes)
            table.send_signal(processes, number)
            await asyncio.to_thread(table.wait_for_exits, processes, _WAIT_SECONDS[number])
        if await asyncio.to_thread(_processes_of, instance):
            alive.append(instance)
    return sorted(ended), alive


def _processes_of(instance: Instance) -> list[psutil.Process]:
    # Neither this process nor an ancestor of it is among them: `require_user` has ensured that.
    return table.find_marked(table.match_instance(instance["id"]), not_before=instance["started"])
