"""Compare Rookery with other gateways: start and warm up those that are available, and measure them by turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from subprocess import SubprocessError

from .gateways import Gateway
from .harness import Bar, Sample, ratio, take_turns, typical
from .installs import NotInstalled
from .loads import Load, measure_calls, open_load

OURS = "rookery"
CLIENTS = 16

# Errors of a gateway that is not available, or does not do what is measured.
TROUBLE = (NotInstalled, RuntimeError, OSError, SubprocessError)

Rounds = list[dict[str, Sample]]


@dataclass(frozen=True)
class Effort:
    """How much to measure. Less than this is for trying the bench, not for figures."""

    rounds: int = 5
    seconds: float = 2.0
    warm_up: float = 5.0
    ours: bool = True


@dataclass(frozen=True)
class Target:
    """One kind of request to one gateway in one era."""

    gateway: Gateway
    era: str
    what: str
    path: str

    def open_load(self, clients: int) -> AbstractContextManager[Load]:
        return open_load(self.gateway.running, self.era, clients, self.gateway.token, self.what, self.path)


def start_gateways(
    stack: ExitStack, starts: Mapping[str, Callable[[], AbstractContextManager[Gateway]]], effort: Effort
) -> dict[str, Gateway]:
    """Install and start the gateways that are available."""
    gateways: dict[str, Gateway] = {}
    for name, start in starts.items():
        if name == OURS and not effort.ours:
            continue
        try:
            gateways[name] = stack.enter_context(start())
        except TROUBLE as error:
            skip(name, error)
    return gateways


def make_targets(
    gateways: Mapping[str, Gateway], choose_target: Callable[[Gateway], tuple[str, str]]
) -> dict[str, Target]:
    return {
        f"{name} {era}": Target(gateway, era, *choose_target(gateway))
        for name, gateway in gateways.items()
        for era in gateway.eras
    }


def warm_up(
    targets: Mapping[str, Target], effort: Effort, check: Callable[[Target, str], None] | None = None
) -> dict[str, Target]:
    """Warm up all targets, and return those that work.

    A gateway that fails in one era is left out: it is unknown which era would have been its better one.
    """
    failed: list[Gateway] = []
    for name, target in targets.items():
        try:
            with target.open_load(CLIENTS) as load:
                load.call(effort.warm_up)
                if check is not None:
                    check(target, load.call(1)["answer"])
        except TROUBLE as error:
            skip(name, error)
            failed.append(target.gateway)
    return {name: target for name, target in targets.items() if target.gateway not in failed}


def measure_by_turns(targets: Mapping[str, Target], clients: int, effort: Effort) -> Rounds:
    """Measure all targets by turns, and return their samples."""
    with ExitStack() as stack:
        loads = {name: stack.enter_context(target.open_load(clients)) for name, target in targets.items()}
        results = take_turns(measure_calls(loads, effort.seconds), rounds=effort.rounds, warm_ups=0)
    for name, target in targets.items():
        cpu, seconds, p50 = (typical(results, name, figure) for figure in ("cpu", "seconds", "p50"))
        text = f"{cpu * 1e6:.0f} us of CPU a call, {1 / seconds:.0f} calls/s, p50 {p50 * 1e3:.2f} ms"
        print(f"{name}, {target.what}, clients {clients}: {text}", flush=True)
    return results


def compare_with_best(name: str, results: Rounds, peers: Sequence[str], figure: str, wanted: float) -> Bar:
    """Compare the best of the peers, in its better era, with Rookery in its worse one."""
    ours, theirs = ([name for name in results[0] if name.startswith(tuple(which))] for which in ([OURS], peers))
    if not ours or any(not any(name.startswith(peer) for name in theirs) for peer in peers):
        return Bar(name, None, ">=", wanted)
    worst = max(ours, key=lambda name: typical(results, name, figure))
    best = min(theirs, key=lambda name: typical(results, name, figure))
    return Bar(name, ratio(results, best, worst, figure), ">=", wanted)


def skip(name: str, error: BaseException) -> None:
    print(f"{name} is left out: {error}", flush=True)
