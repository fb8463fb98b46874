"""Loads on servers under measurement, each in a process of its own, and what a call costs the server meanwhile."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from .harness import Sample, cpu_so_far
from .servers import Running

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
ERAS = (HANDSHAKE, MODERN)

_LOAD = Path(__file__).parent / "peers" / "load.py"


@dataclass(frozen=True)
class Load:
    """A load on one server, whose CPU time it tells."""

    process: subprocess.Popen[str]
    target: int

    def call(self, much: int | float) -> dict[str, Any]:
        """Make so many calls, or for so many seconds if that is a float.

        How many there were, how long they took in all, the median of them, and the body of the first answer.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(f"{much}s\n" if isinstance(much, float) else f"{much}\n")
        self.process.stdin.flush()
        return self.heard()

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the load has ended early; it has told why")
        told = json.loads(line)
        if "error" in told:
            raise RuntimeError(told["error"])
        return told

    def measured(self, much: int | float) -> Sample:
        """Seconds by the clock and of CPU a call, and the median of the calls."""
        before = tree_cpu(self.target)
        told = self.call(much)
        cpu = tree_cpu(self.target) - before
        return {"cpu": cpu / told["calls"], "seconds": told["seconds"] / told["calls"], "p50": told["p50"]}


@contextlib.contextmanager
def loaded(
    target: Running, era: str, clients: int, token: str, what: str = "echo", path: str = "/mcp"
) -> Generator[Load]:
    """Clients of one server that have said hello, in a process of their own."""
    argv = [sys.executable, "-P", str(_LOAD), str(target.port), token, str(clients), era, what, path]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        load = Load(process, target.pid)
        load.heard()
        yield load
    finally:
        process.kill()
        process.communicate()


def calling(loads: Mapping[str, Load], much: int | float) -> dict[str, Callable[[], Sample]]:
    def measure(load: Load) -> Callable[[], Sample]:
        return lambda: load.measured(much)

    return {name: measure(load) for name, load in loads.items()}


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process and of everything below it that is still running."""
    children = psutil.Process(pid).children(recursive=True)
    return cpu_so_far(pid) + sum(cpu_so_far(child.pid) for child in children)
