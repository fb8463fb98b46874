"""A contest of gateways: those that can be had are warmed up, measured by turns, and compared with ours."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from subprocess import SubprocessError

from .gateways import Gateway
from .harness import Bar, Sample, ratio, take_turns, typical
from .installs import NotInstalled
from .loads import Load, calling, loaded

OURS = "rookery"
CLIENTS = 16

# What goes wrong with a gateway that cannot be had, or does not do what it is measured in.
TROUBLE = (NotInstalled, RuntimeError, OSError, SubprocessError)

Taken = list[dict[str, Sample]]


@dataclass(frozen=True)
class Effort:
    """How much to measure. Less than this is for trying the bench itself, not for figures."""

    rounds: int = 5
    seconds: float = 2.0
    warm_up: float = 5.0
    ours: bool = True


@dataclass(frozen=True)
class Target:
    """One way to ask one gateway."""

    gateway: Gateway
    era: str
    what: str
    path: str

    def loaded(self, clients: int) -> AbstractContextManager[Load]:
        return loaded(self.gateway.running, self.era, clients, self.gateway.token, self.what, self.path)


def started(
    stack: ExitStack, starts: Mapping[str, Callable[[], AbstractContextManager[Gateway]]], effort: Effort
) -> dict[str, Gateway]:
    """Those that can be had, installed and running."""
    gateways: dict[str, Gateway] = {}
    for name, start in starts.items():
        if name == OURS and not effort.ours:
            continue
        try:
            gateways[name] = stack.enter_context(start())
        except TROUBLE as error:
            skip(name, error)
    return gateways


def targets_of(gateways: Mapping[str, Gateway], asked: Callable[[Gateway], tuple[str, str]]) -> dict[str, Target]:
    return {f"{name} {era}": Target(one, era, *asked(one)) for name, one in gateways.items() for era in one.eras}


def warmed(
    targets: Mapping[str, Target], effort: Effort, check: Callable[[Target, str], None] | None = None
) -> dict[str, Target]:
    """Those that do their work, after each was busy with it for a while.

    A gateway that fails in one era is out of the contest: nobody knows which of its two would have been the better.
    """
    failed: list[Gateway] = []
    for name, target in targets.items():
        try:
            with target.loaded(CLIENTS) as load:
                load.call(effort.warm_up)
                if check is not None:
                    check(target, load.call(1)["answer"])
        except TROUBLE as error:
            skip(name, error)
            failed.append(target.gateway)
    return {name: target for name, target in targets.items() if target.gateway not in failed}


def measured(targets: Mapping[str, Target], clients: int, effort: Effort) -> Taken:
    """What each target took, by turns."""
    with ExitStack() as stack:
        loads = {name: stack.enter_context(target.loaded(clients)) for name, target in targets.items()}
        taken = take_turns(calling(loads, effort.seconds), rounds=effort.rounds, warm_ups=0)
    for name, target in targets.items():
        cpu, seconds, p50 = (typical(taken, name, figure) for figure in ("cpu", "seconds", "p50"))
        told = f"{cpu * 1e6:.0f} us of CPU a call, {1 / seconds:.0f} calls/s, p50 {p50 * 1e3:.2f} ms"
        print(f"{name}, {target.what}, clients {clients}: {told}", flush=True)
    return taken


def against(name: str, taken: Taken, peers: Sequence[str], figure: str, wanted: float) -> Bar:
    """How many times ours the best of the peers takes, each in its better era; ours counts in its worse one."""
    ours, theirs = ([one for one in taken[0] if one.startswith(tuple(which))] for which in ([OURS], peers))
    if not ours or any(not any(one.startswith(peer) for one in theirs) for peer in peers):
        return Bar(name, None, ">=", wanted)
    worst = max(ours, key=lambda one: typical(taken, one, figure))
    best = min(theirs, key=lambda one: typical(taken, one, figure))
    return Bar(name, ratio(taken, best, worst, figure), ">=", wanted)


def skip(name: str, error: BaseException) -> None:
    print(f"{name} is left out: {error}", flush=True)
