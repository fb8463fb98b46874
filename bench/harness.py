"""What all figures share: the bar that one has to reach, how CPU is measured, and how two things are compared."""

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
    """A figure and what it has to reach. It is judged as it is printed, so that the line never contradicts itself.

    One that could not be measured, because a peer is not to be had, is not reached either. `requirement` is the row of
    `tests/requirements.toml` whose figure it is.
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
    """The environment of a user who has just installed Rookery: nothing is set, and byte code is cached."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROOKERY_", "XDG_"))}
    return kept | {"HOME": str(home)} | more


def cpu_of(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> float:
    """CPU seconds, user and system, of a command and the children it waited for; raises if the command fails."""
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
    """CPU seconds, user and system, of a process that is still running."""
    if sys.platform == "linux":
        # The clock that clock_getcpuclockid(3) names. /proc counts in ticks of 10 ms, which is too coarse for a start.
        return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def compare(
    targets: Mapping[str, Callable[[], Sample]], against: str, *, rounds: int, repeats: int = 1, warm_ups: int = 2
) -> dict[str, float]:
    """How many times what `against` takes each other target takes, as `<target>.<figure>`."""
    taken = take_turns(targets, rounds=rounds, repeats=repeats, warm_ups=warm_ups)
    return {
        f"{target}.{figure}": ratio(taken, target, against, figure)
        for target in targets
        for figure in (taken[0][target] if target != against else ())
    }


def take_turns(
    targets: Mapping[str, Callable[[], Sample]], *, rounds: int, repeats: int = 1, warm_ups: int = 2
) -> list[dict[str, Sample]]:
    """What each target took in each round.

    All are warmed up, then run by turns. The order turns around from round to round, so that drift cancels out.
    Within a round the least of `repeats` is taken, because noise only ever adds.
    """
    for _ in range(warm_ups):
        for measure in targets.values():
            measure()
    return [_round(targets, repeats, backwards=bool(turn % 2)) for turn in range(rounds)]


def ratio(taken: Sequence[Mapping[str, Sample]], target: str, against: str, figure: str) -> float:
    """The median of the ratios, each made within a round, where both met the same machine."""
    each = [one[target][figure] / one[against][figure] for one in taken]
    low, middle, high = quantiles(each, n=4)
    ours, theirs = typical(taken, target, figure), typical(taken, against, figure)
    spread = f"ratio {middle:.3f}, half of all in {low:.3f} to {high:.3f}"
    print(f"{target}.{figure}: {ours:.4g}, {against} {theirs:.4g}; {spread}", flush=True)
    return middle


def typical(taken: Sequence[Mapping[str, Sample]], target: str, figure: str) -> float:
    return median(one[target][figure] for one in taken)


def _round(targets: Mapping[str, Callable[[], Sample]], repeats: int, *, backwards: bool) -> dict[str, Sample]:
    best: dict[str, Sample] = {name: {} for name in targets}
    order = [*targets][:: -1 if backwards else 1]
    for name in order * repeats:
        for figure, value in targets[name]().items():
            best[name][figure] = min(value, best[name].get(figure, value))
    return best
