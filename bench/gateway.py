"""The cost of a call through the gateway, against other gateways. `python -m bench.gateway --help` for short runs."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from .contest import (
    CLIENTS,
    OURS,
    TROUBLE,
    Effort,
    Target,
    compare_with_best,
    make_targets,
    measure_by_turns,
    skip,
    start_gateways,
    warm_up,
)
from .gateways import echo, echo_over_http, fastmcp, npm_proxy, pypi_proxy, rookery
from .harness import Bar, ratio, take_turns, typical
from .sick import side_by_side, through_rookery

_MANY_SERVERS = 10
_MANY_TOOLS = 100

_NPM = "npm mcp-proxy"
_PYPI = "PyPI mcp-proxy"
_FASTMCP = "FastMCP proxy"
_MOUNTED = "FastMCP mount"


def run(effort: Effort = Effort(), figures: Sequence[str] = ()) -> list[Bar]:  # noqa: B008 - it is frozen
    # On a busy machine the process that computes longer also waits longer: ratios of p50 grow with the load.
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        return [bar for name in figures or FIGURES for bar in FIGURES[name](Path(folder), effort)]


def over_stdio(home: Path, effort: Effort) -> list[Bar]:
    """Measure the CPU time of the gateway and its child together, and the latency of a single client."""
    command = echo("stdio", "1")
    starts = {
        OURS: lambda: rookery(home, {"echo": command}),
        _NPM: lambda: npm_proxy(home, command),
        _PYPI: lambda: pypi_proxy(home, command),
        _FASTMCP: lambda: fastmcp(home, [command]),
    }
    with ExitStack() as stack:
        targets = make_targets(start_gateways(stack, starts, effort), lambda gateway: ("echo", gateway.single_server))
        warm = warm_up(targets, effort, _has_child)
        crowd = measure_by_turns(warm, CLIENTS, effort)
        alone = measure_by_turns(warm, 1, effort)
    return [
        compare_with_best("gateway.stdio.cpu.npm", crowd, [_NPM], "cpu", 5.0),
        compare_with_best("gateway.stdio.cpu.pypi", crowd, [_PYPI], "cpu", 10.0),
        compare_with_best("gateway.stdio.cpu.fastmcp", crowd, [_FASTMCP], "cpu", 15.0),
        compare_with_best("gateway.stdio.p50.one", alone, [_NPM, _PYPI, _FASTMCP], "p50", 2.0),
    ]


def over_http(home: Path, effort: Effort) -> list[Bar]:
    """Measure the CPU time of the gateway alone; the server behind it is not a child of it."""
    with ExitStack() as stack:
        url = stack.enter_context(echo_over_http(home))
        starts = {OURS: lambda: rookery(home, {"echo": url}), _FASTMCP: lambda: fastmcp(home, [url])}
        targets = make_targets(start_gateways(stack, starts, effort), lambda gateway: ("echo", gateway.single_server))
        crowd = measure_by_turns(warm_up(targets, effort), CLIENTS, effort)
    return [compare_with_best("gateway.http.cpu.fastmcp", crowd, [_FASTMCP], "cpu", 10.0)]


def http_path(home: Path, effort: Effort) -> list[Bar]:
    """Compare a call to a remote server with one to a local one, through the same daemon: its own CPU time alone."""
    name, wanted = "gateway.http.path", 2.0
    if not effort.ours:
        return [Bar(name, None, "<=", wanted, "density.http.path")]
    with ExitStack() as stack:
        url = stack.enter_context(echo_over_http(home))
        gateway = stack.enter_context(rookery(home, {"near": echo("stdio", "1"), "far": url}))
        targets = {
            f"{server} {era}": Target(gateway, era, f"{server}{gateway.separator}echo", gateway.all_servers)
            for era in gateway.eras
            for server in ("far", "near")
        }
        results = measure_by_turns(warm_up(targets, effort), CLIENTS, effort)
    worst = max(ratio(results, f"far {era}", f"near {era}", "own_cpu") for era in gateway.eras)
    return [Bar(name, worst, "<=", wanted, "density.http.path")]


def many_tools(home: Path, effort: Effort) -> list[Bar]:
    """Measure the latency of a single client for a list of a thousand tools, and for a call of one of them."""
    command = echo("stdio", str(_MANY_TOOLS))
    names = [f"s{number}" for number in range(_MANY_SERVERS)]
    starts = {
        OURS: lambda: rookery(home, dict.fromkeys(names, command)),
        _MOUNTED: lambda: fastmcp(home, [command] * len(names)),
    }
    with ExitStack() as stack:
        gateways = start_gateways(stack, starts, effort)
        lists = make_targets(gateways, lambda gateway: ("tools/list", gateway.all_servers))
        listing = measure_by_turns(warm_up(lists, effort, _lists_all), 1, effort)
        calls = make_targets(
            gateways, lambda gateway: (f"{names[-1]}{gateway.separator}echo_{_MANY_TOOLS - 1}", gateway.all_servers)
        )
        calling = measure_by_turns(warm_up(calls, effort, _has_child), 1, effort)
    return [
        compare_with_best("gateway.many.list.p50", listing, [_MOUNTED], "p50", 100.0),
        compare_with_best("gateway.many.call.p50", calling, [_MOUNTED], "p50", 5.0),
    ]


def sick_servers(home: Path, effort: Effort) -> list[Bar]:
    """Measure whether servers that hang, exit or send invalid data delay the others."""
    name = "gateway.sick.listed"
    starts = {"side by side": lambda: side_by_side(home)}
    if effort.ours:
        starts[OURS] = lambda: through_rookery(home)
    try:
        results = take_turns(starts, rounds=effort.rounds, warm_ups=1)
    except TROUBLE as error:
        skip(OURS, error)
        return [Bar(name, None, "<=", 1.5)]
    print(f"side by side: the slowest healthy server connects in {typical(results, 'side by side', 'seconds'):.3f} s")
    return [Bar(name, ratio(results, OURS, "side by side", "seconds") if effort.ours else None, "<=", 1.5)]


FIGURES = {"stdio": over_stdio, "http": over_http, "path": http_path, "many": many_tools, "sick": sick_servers}


def _has_child(target: Target, answer: str) -> None:
    """Raise unless the server is a child of the gateway, so that its CPU time counts as the gateway's."""
    words = [child.cmdline() for child in psutil.Process(target.gateway.running.pid).children(recursive=True)]
    if not any("stdio" in command for command in words):
        raise RuntimeError("the server does not run below the gateway, so that its CPU time would not count")


def _lists_all(target: Target, answer: str) -> None:
    listed = json.loads(answer[answer.index("{") :])["result"]["tools"]
    if (count := sum("echo" in tool["name"] for tool in listed)) != _MANY_SERVERS * _MANY_TOOLS:
        raise RuntimeError(f"{count} tools are listed at once, not {_MANY_SERVERS * _MANY_TOOLS}")


def _main(words: Sequence[str]) -> int:
    usual = Effort()
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}; all by default")
    parser.add_argument("--only-peers", action="store_true", help="without Rookery: no bar can be reached")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="at least 2 (%(default)s)")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="a target and round (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=usual.warm_up, help="seconds a target (%(default)s)")
    options = parser.parse_args(words)
    if unknown := [name for name in options.figures if name not in FIGURES]:
        parser.error(f"there is no figure {unknown[0]!r}")
    if options.rounds < 2:
        parser.error("one round has no spread")
    bars = run(Effort(options.rounds, options.seconds, options.warm_up, not options.only_peers), options.figures)
    print(*bars, sep="\n")
    return 0 if all(bar.ok for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
