"""Common parts of all benches: bars, measuring CPU time, and comparing two targets."""

import operator
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Literal

import psutil

_OPERATORS = {"<=": operator.le, ">=": operator.ge}

Sample = dict[str, float]


@dataclass(frozen=True)
class Bar:
    """A figure and its limit. The printed, rounded value is compared, so that the line never contradicts itself.

    A figure that could not be measured, because a peer is not available, misses its bar. `requirement` is the row of
    `tests/requirements.toml` that demands the figure.
    """

    name: str
    measured: float | None
    op: Literal["<=", ">="]
    wanted: float
    requirement: str = ""

    @property
    def ok(self) -> bool:
        return self.measured is not None and _OPERATORS[self.op](round(self.measured, 3), self.wanted)

    def __str__(self) -> str:
        if self.measured is None:
            return f"bar {self.name}: not measured {self.op} {self.wanted}"
        return f"bar {self.name}: {round(self.measured, 3)} {self.op} {self.wanted} {'ok' if self.ok else 'short'}"


def user_environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a user who has just installed Rookery: no settings, and byte code is cached."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROOKERY_", "XDG_"))
    }
    return inherited | {"HOME": str(home)} | more


def cpu_of(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> float:
    """Return the CPU seconds, user and system, of a command and the children it waited for. Raise if it fails."""
    process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return used.ru_utime + used.ru_stime


def cpu_so_far(pid: int) -> float:
    """Return the CPU seconds, user and system, of a running process."""
    if sys.platform == "linux":
        # The clock that clock_getcpuclockid(3) returns. /proc counts in ticks of 10 ms, which is too coarse for a
        # start.
        return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def compare(
    targets: Mapping[str, Callable[[], Sample]], baseline: str, *, rounds: int, repeats: int = 1, warm_ups: int = 2
) -> dict[str, float]:
    """Return the cost of each target relative to that of `baseline`, as `<target>.<figure>`."""
    results = take_turns(targets, rounds=rounds, repeats=repeats, warm_ups=warm_ups)
    return {
        f"{target}.{figure}": ratio(results, target, baseline, figure)
        for target in targets
        for figure in (results[0][target] if target != baseline else ())
    }


def take_turns(
    targets: Mapping[str, Callable[[], Sample]], *, rounds: int, repeats: int = 1, warm_ups: int = 2
) -> list[dict[str, Sample]]:
    """Return the samples of each target in each round.

    All targets are warmed up, then run by turns. The order is reversed after each round, so that drift cancels out.
    Within a round the least of `repeats` counts, because noise only adds.
    """
    for _ in range(warm_ups):
        for measure in targets.values():
            measure()
    return [_round(targets, repeats, backwards=bool(turn % 2)) for turn in range(rounds)]


def ratio(results: Sequence[Mapping[str, Sample]], target: str, baseline: str, figure: str) -> float:
    """Return the median of the ratios. Each ratio is computed within a round, under the same load."""
    each = [samples[target][figure] / samples[baseline][figure] for samples in results]
    low, middle, high = quantiles(each, n=4)
    ours, theirs = typical(results, target, figure), typical(results, baseline, figure)
    spread = f"ratio {middle:.3f}, half of all in {low:.3f} to {high:.3f}"
    print(f"{target}.{figure}: {ours:.4g}, {baseline} {theirs:.4g}; {spread}", flush=True)
    return middle


def typical(results: Sequence[Mapping[str, Sample]], target: str, figure: str) -> float:
    return median(samples[target][figure] for samples in results)


def _round(targets: Mapping[str, Callable[[], Sample]], repeats: int, *, backwards: bool) -> dict[str, Sample]:
    best: dict[str, Sample] = {name: {} for name in targets}
    order = [*targets][:: -1 if backwards else 1]
    for name in order * repeats:
        for figure, value in targets[name]().items():
            best[name][figure] = min(value, best[name].get(figure, value))
    return best
