"""What a daemon that was killed left running: found by the marker of its instance, and ended.

`instances.json` in the state folder lists the instances whose children may still live. A daemon writes itself down
before it starts anything, and is struck off when it has stopped all of it.
"""

import asyncio
import json
import logging
import signal
from pathlib import Path
from typing import TypedDict

import psutil

from rookery.system import processes
from rookery.system.files import write_atomic

logger = logging.getLogger("rookery.leftovers")
_SECONDS = {signal.SIGTERM: 3.0, signal.SIGKILL: 2.0}


class Instance(TypedDict):
    id: str
    boot: str
    started: float


class Register:
    """Holding the daemon's lock is what allows to write here."""

    def __init__(self, state: Path) -> None:
        self._file = state / "instances.json"

    def earlier(self) -> list[Instance]:
        """Instances of this boot that were not struck off; processes do not outlive a boot."""
        try:
            listed: list[Instance] = json.loads(self._file.read_bytes())
            boot = processes.boot_id()
            return [one for one in listed if one["boot"] == boot]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            logger.error("%s is unreadable (%s); children of an earlier daemon may still run", self._file, error)
            return []

    def write(self, instances: list[Instance]) -> None:
        write_atomic(self._file, json.dumps(instances).encode(), mode=0o600)


async def end_leftovers(instances: list[Instance]) -> tuple[list[int], list[Instance]]:
    """End all that these instances started; answers the pids ended and the instances that still have some alive."""
    above = processes.ancestors()
    ended: set[int] = set()
    alive: list[Instance] = []
    for instance in instances:
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            found = await asyncio.to_thread(_of, instance, above)
            if not found:
                break
            ended.update(process.pid for process in found)
            processes.send(found, number)
            await asyncio.to_thread(processes.wait_gone, found, _SECONDS[number])
        if await asyncio.to_thread(_of, instance, above):
            alive.append(instance)
    return sorted(ended), alive


def _of(instance: Instance, above: set[int]) -> list[psutil.Process]:
    # A daemon started from inside a leftover agent must end neither itself nor the shell it was started from.
    found = processes.carriers(processes.of_instance(instance["id"]), not_before=instance["started"])
    return [process for process in found if process.pid not in above]
