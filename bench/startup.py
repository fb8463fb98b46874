"""The start-up times of the command line and the daemon, against minimal programs on the same libraries."""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from .harness import Bar, Sample, compare, cpu_of, user_environment
from .servers import Server, get, running

WANTED = {
    "help.cpu": 1.3,
    "status.cpu": 1.6,
    "daemon.cpu": 2.5,
    "daemon.healthy": 2.5,
    "daemon.rss": 2.0,
}

_ROOKERY = str(Path(sys.executable).with_name("rookery"))
_CLICK = [sys.executable, "-c", "import click"]
_DAEMON = [sys.executable, "-P", "-m", "rookery.daemon", "serve", "--set", "http.port={port}"]
_BARE = """
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

async def health(request):
    return PlainTextResponse("ok")

uvicorn.run(Starlette(routes=[Route("/health", health)]), host="127.0.0.1", port={port})
"""


def run() -> list[Bar]:
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        home = Path(folder)
        env = user_environment(home, ROOKERY_HOME=str(home / "state"))
        daemon = Server(_DAEMON, "/api/health", home, env)
        bare = Server([sys.executable, "-P", "-c", _BARE], "/health", home, env)
        ratios = compare_commands(daemon) | compare_starts(daemon, bare) | compare_memory(daemon, bare)
    return [Bar(f"startup.{name}", ratios[name], "<=", wanted) for name, wanted in WANTED.items()]


def compare_commands(daemon: Server) -> dict[str, float]:
    def cpu(argv: Sequence[str]) -> Sample:
        return {"cpu": cpu_of(argv, cwd=daemon.cwd, env=daemon.env)}

    with running(daemon):
        targets = {
            "click": lambda: cpu(_CLICK),
            "help": lambda: cpu([_ROOKERY, "--help"]),
            # Starts no second daemon if this one has ended.
            "status": lambda: cpu([_ROOKERY, "status", "--json", "--no-start"]),
        }
        return compare(targets, "click", rounds=30, repeats=3)


def compare_starts(daemon: Server, bare: Server) -> dict[str, float]:
    def start(server: Server) -> Sample:
        with running(server) as process:
            return {"cpu": process.cpu, "healthy": process.wall}

    return compare({"bare": lambda: start(bare), "daemon": lambda: start(daemon)}, "bare", rounds=15, repeats=2)


def compare_memory(daemon: Server, bare: Server) -> dict[str, float]:
    def idle(server: Server) -> Sample:
        with running(server) as process:
            for _ in range(20):
                get(process.port, server.health)
            time.sleep(1)
            return {"rss": psutil.Process(process.pid).memory_info().rss}

    return compare({"bare": lambda: idle(bare), "daemon": lambda: idle(daemon)}, "bare", rounds=4, warm_ups=1)
