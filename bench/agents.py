"""Measure how fast ten agents are ready when their workspaces open at once, against ten bare `opencode serve`."""

import contextlib
import http.client
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from .harness import Bar, Sample, cpu_so_far, ratio, take_turns, user_environment
from .installs import NotInstalled, opencode as installed_opencode
from .servers import Server, running

WANTED = {"ready.seconds": 1.3, "memory.mb": 3.0}

_DAEMON = [sys.executable, "-P", "-m", "rookery.daemon", "serve", "--set", "http.port={port}"]
_AGENTS, _ROUNDS = 10, 3
_SECONDS, _REST_SECONDS = 300.0, 60.0
_MB = 1024 * 1024
_LISTENING = re.compile(rb"listening on http://127\.0\.0\.1:(\d+)")
# No network is used, in either case.
_OFFLINE = {
    f"OPENCODE_DISABLE_{what}": "1" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
}
_PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false")


def run() -> list[Bar]:
    try:
        opencode = installed_opencode()
    except NotInstalled as error:
        print(f"agents: {error}", flush=True)
        return [Bar(f"agents.{name}", None, "<=", wanted) for name, wanted in WANTED.items()]
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        ratios = _measure(opencode, Path(folder))
    return [Bar(f"agents.{name}", ratios[name], "<=", wanted) for name, wanted in WANTED.items()]


def _measure(opencode: Path, folder: Path) -> dict[str, float]:
    app = _repository(folder / "app")
    worktrees = [_worktree(app, folder / "trees" / _name(number)) for number in range(_AGENTS)]
    path = os.pathsep.join([str(opencode.parent), os.environ["PATH"]])
    env = user_environment(folder, PATH=path, ROOKERY_HOME=str(folder / "state"), ROOKERY_AGENTS_VERSION="path")
    env |= _OFFLINE
    with running(Server(_DAEMON, "/api/health", app, env)) as process:
        daemon = _Daemon(process.pid, process.port, (folder / "state" / "token").read_text().strip())
        daemon.ask("POST", "/api/projects", {"path": str(app)})
        # OpenCode sets up its data folder; the daemon imports what agents need.
        daemon.open(1)
        daemon.close(1)
        empty = daemon.memory()
        heavy: list[float] = []

        def ours() -> Sample:
            took = daemon.open(_AGENTS)
            heavy.append(daemon.memory())
            daemon.close(_AGENTS)
            return {"seconds": took}

        targets = {"bare": lambda: {"seconds": _bare(opencode, worktrees, env)}, "ready": ours}
        results = take_turns(targets, rounds=_ROUNDS, warm_ups=1)
    each = [(memory - empty) / _AGENTS / _MB for memory in heavy]
    added = ", ".join(f"{memory:.2f}" for memory in each)
    print(f"memory.mb: {empty / _MB:.1f} for the daemon without agents; each agent adds {added}")
    return {"ready.seconds": ratio(results, "ready", "bare", "seconds"), "memory.mb": max(each)}


@dataclass(frozen=True)
class _Daemon:
    """The daemon under measurement."""

    pid: int
    port: int
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with contextlib.closing(self._send(method, path, body)) as connection:
            response = connection.getresponse()
            text = response.read()
            if response.status >= 300:
                raise RuntimeError(f"{method} {path} got {response.status}: {text!r}")
            return json.loads(text)

    def open(self, count: int) -> float:
        """Open `count` workspaces at once. Return how long it took until the last agent was ready."""
        began = time.perf_counter()
        with contextlib.closing(self._send("GET", "/api/events")) as connection:
            stream = connection.getresponse()
            self._each("open", count)
            waiting = {_name(number) for number in range(count)}
            while waiting:
                line: bytes = stream.readline()
                if not line:
                    raise RuntimeError(f"the daemon ended before these were ready: {waiting}")
                if line.startswith(b"data: "):
                    waiting -= {_ready(json.loads(line[6:]))}
        return time.perf_counter() - began

    def close(self, count: int) -> None:
        self._each("close", count)

    def memory(self) -> float:
        """Return the memory of the daemon and of its children except OpenCode, once all of them are idle."""
        daemon = psutil.Process(self.pid)
        ends = time.perf_counter() + _REST_SECONDS
        while self._busy(daemon) and time.perf_counter() < ends:
            pass
        ours = [child for child in daemon.children(recursive=True) if child.name() != "opencode"]
        return sum(child.memory_full_info().pss for child in [daemon, *ours])

    def _busy(self, daemon: psutil.Process) -> bool:
        """Return whether daemon and agents together use more than half a core during one second."""
        pids = [daemon.pid, *(child.pid for child in daemon.children() if child.name() == "opencode")]
        before = sum(map(cpu_so_far, pids))
        time.sleep(1)
        return sum(map(cpu_so_far, pids)) - before > 0.5

    def _each(self, what: str, count: int) -> None:
        def do(number: int) -> None:
            self.ask("POST", f"/api/workspaces/app/{_name(number)}/{what}")

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(do, range(count)))

    def _send(self, method: str, path: str, body: Any = None) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        return connection


def _name(number: int) -> str:
    return f"task-{number}"


def _ready(event: dict[str, Any]) -> str | None:
    return event.get("name") if event.get("agent", {}).get("state") == "running" else None


def _bare(opencode: Path, worktrees: Sequence[Path], env: Mapping[str, str]) -> float:
    """Start one bare OpenCode per worktree. Return how long it took until the last one reported that it listens."""
    argv = [str(opencode), "serve", "--hostname", "127.0.0.1", "--port", "0", "--print-logs"]
    began = time.perf_counter()
    with contextlib.ExitStack() as ended, selectors.DefaultSelector() as outputs:

        def start(worktree: Path) -> None:
            process = ended.enter_context(_started(argv, worktree, env))
            assert process.stdout is not None
            outputs.register(process.stdout, selectors.EVENT_READ, (worktree, process.stdout))

        for worktree in worktrees:
            start(worktree)
        again = 2
        while outputs.get_map():
            ready = outputs.select(_SECONDS)
            if not ready:
                raise RuntimeError(f"OpenCode does not listen after {_SECONDS} s")
            for key, _ in ready:
                worktree, output = key.data
                line = output.readline()
                if line and not _LISTENING.search(line):
                    continue
                outputs.unregister(output)
                if not line:
                    # About one start of fifty fails immediately; Rookery retries too.
                    again -= 1
                    if again < 0:
                        raise RuntimeError("OpenCode ends before it listens")
                    start(worktree)
        return time.perf_counter() - began


@contextlib.contextmanager
def _started(argv: Sequence[str], worktree: Path, env: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        argv,
        cwd=worktree,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _repository(path: Path) -> Path:
    path.mkdir()
    (path / "README").write_text("one\n")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        _git(path, *words)
    return path


def _worktree(app: Path, worktree: Path) -> Path:
    """Create a worktree, as a workspace that is not open yet."""
    _git(app, "worktree", "add", "-q", "--no-track", "-b", worktree.name, str(worktree), "main")
    return worktree


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *_PERSON, "-C", str(folder), *words], check=True, timeout=60)
