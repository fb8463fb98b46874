"""The cost of an MCP call on Rookery's wire, against the official SDK and against a minimal Starlette app."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from .harness import Bar, Sample, compare, cpu_of, ratio, take_turns, typical, user_environment
from .loads import ERAS, HANDSHAKE, MODERN, Load, measure_calls, open_load
from .servers import Running, Server, get, running

_TOKEN = "the-token-of-this-bench"

_CLIENTS = 16
_CALLS = 600
_CALLS_ALONE = 400
_SESSIONS = 2000
_WARM_UP_SESSIONS = 500
_IDLE_SECONDS = 6.0

_PEERS = Path(__file__).parent / "peers"
_HEALTH = "/api/health"


def run() -> list[Bar]:
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        home = Path(folder)
        figures = (compare_calls, compare_latency, weigh_sessions, compare_imports)
        return [bar for figure in figures for bar in figure(home)]


def compare_calls(home: Path) -> list[Bar]:
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(running(_server(home, "ours", _TOKEN, "1800")))
        bare = stack.enter_context(running(_server(home, "bare")))
        lowlevel = stack.enter_context(running(_server(home, "sdk", "lowlevel")))
        mcpserver = stack.enter_context(running(_server(home, "sdk", "mcpserver")))
        spoken = {f"ours {era}": (ours, era) for era in ERAS} | {f"bare {era}": (bare, era) for era in ERAS}
        spoken |= {
            f"sdk lowlevel {HANDSHAKE}": (lowlevel, HANDSHAKE),
            f"sdk MCPServer {MODERN}": (mcpserver, MODERN),
        }
        loads = {name: stack.enter_context(open_load(*target, _CLIENTS, _TOKEN)) for name, target in spoken.items()}
        _check_same_answers(loads)
        results = take_turns(measure_calls(loads, _CALLS), rounds=12, repeats=4)
    for name in loads:
        cpu, seconds = (typical(results, name, figure) for figure in ("cpu", "seconds"))
        print(f"{name}: {cpu * 1e6:.1f} us of CPU a call, {1 / seconds:.0f} calls/s", flush=True)
    worst = max((f"ours {era}" for era in ERAS), key=lambda name: typical(results, name, "cpu"))
    best = min((name for name in loads if name.startswith("sdk")), key=lambda name: typical(results, name, "cpu"))
    to_bare = [ratio(results, f"ours {era}", f"bare {era}", "cpu") for era in ERAS]
    return [
        Bar("wire.cpu.sdk", ratio(results, best, worst, "cpu"), ">=", 5.0),
        Bar("wire.cpu.bare", max(to_bare), "<=", 1.25),
    ]


def compare_latency(home: Path) -> list[Bar]:
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(running(_server(home, "ours", _TOKEN, "1800")))
        bare = stack.enter_context(running(_server(home, "bare")))
        spoken = {f"{name} {era}": (server, era) for era in ERAS for name, server in (("ours", ours), ("bare", bare))}
        loads = {name: stack.enter_context(open_load(*target, 1, _TOKEN)) for name, target in spoken.items()}
        results = take_turns(measure_calls(loads, _CALLS_ALONE), rounds=12, repeats=4)
    to_bare = [ratio(results, f"ours {era}", f"bare {era}", "p50") for era in ERAS]
    return [Bar("wire.p50.one", max(to_bare), "<=", 1.5)]


def weigh_sessions(home: Path) -> list[Bar]:
    """Measure the memory of an idle session, and check that all sessions end after their idle time."""
    with (
        running(_server(home, "ours", _TOKEN, str(_IDLE_SECONDS))) as process,
        open_load(process, HANDSHAKE, 1, _TOKEN, "initialize") as load,
    ):
        load.call(_WARM_UP_SESSIONS)
        before = psutil.Process(process.pid).memory_info().rss
        load.call(_SESSIONS)
        grown = psutil.Process(process.pid).memory_info().rss - before
        if (count := _sessions(process)) != _WARM_UP_SESSIONS + _SESSIONS:
            raise RuntimeError(f"{count} sessions are there, which is not what was opened")
        time.sleep(_IDLE_SECONDS + 0.5)
        # The next request of any client expires them.
        load.call(1)
        left = _sessions(process) - 1
    return [Bar("wire.sessions.bytes", grown / _SESSIONS, "<=", 20_000), Bar("wire.sessions.left", left, "<=", 0)]


def compare_imports(home: Path) -> list[Bar]:
    def importing(modules: str) -> Sample:
        return {"cpu": cpu_of([sys.executable, "-P", "-c", f"import {modules}"], cwd=home, env=user_environment(home))}

    targets = {
        "mcp": lambda: importing("mcp"),
        "wire": lambda: importing("rookery.wire.server.streamable, rookery.wire.http.listener"),
    }
    return [Bar("wire.import.cpu", compare(targets, "mcp", rounds=7)["wire.cpu"], "<=", 0.2)]


def _check_same_answers(loads: Mapping[str, Load]) -> None:
    for era in ERAS:
        ours, bare = (loads[f"{name} {era}"].call(1)["answer"] for name in ("ours", "bare"))
        if ours != bare:
            raise RuntimeError(f"the bare handler does not answer the same bytes: {ours!r} and {bare!r}")


def _sessions(process: Running) -> int:
    return int(get(process.port, _HEALTH).rpartition(b"\r\n")[2])


def _server(home: Path, name: str, *more: str) -> Server:
    argv: Sequence[str] = [sys.executable, "-P", str(_PEERS / f"{name}.py"), "{port}", *more]
    return Server(argv, _HEALTH, home, user_environment(home))
