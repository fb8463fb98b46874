"""How long ten agents take to be ready when their workspaces are opened at once, against ten bare `opencode serve`."""

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
# Nobody on the network is asked for anything, in either case.
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
        found = _measure(opencode, Path(folder))
    return [Bar(f"agents.{name}", found[name], "<=", wanted) for name, wanted in WANTED.items()]


def _measure(opencode: Path, folder: Path) -> dict[str, float]:
    app = _repository(folder / "app")
    places = [_worktree(app, folder / "trees" / _name(number)) for number in range(_AGENTS)]
    path = os.pathsep.join([str(opencode.parent), os.environ["PATH"]])
    env = user_environment(folder, PATH=path, ROOKERY_HOME=str(folder / "state"), ROOKERY_AGENTS_VERSION="path")
    env |= _OFFLINE
    with running(Server(_DAEMON, "/api/health", app, env)) as one:
        house = _House(one.pid, one.port, (folder / "state" / "token").read_text().strip())
        house.ask("POST", "/api/projects", {"path": str(app)})
        # OpenCode sets its data folder up; the daemon imports what agents need.
        house.open(1)
        house.close(1)
        empty = house.memory()
        heavy: list[float] = []

        def ours() -> Sample:
            took = house.open(_AGENTS)
            heavy.append(house.memory())
            house.close(_AGENTS)
            return {"seconds": took}

        targets = {"bare": lambda: {"seconds": _bare(opencode, places, env)}, "ready": ours}
        taken = take_turns(targets, rounds=_ROUNDS, warm_ups=1)
    each = [(one - empty) / _AGENTS / _MB for one in heavy]
    print(
        f"memory.mb: the daemon with none {empty / _MB:.1f}; each agent adds {', '.join(f'{one:.2f}' for one in each)}"
    )
    return {"ready.seconds": ratio(taken, "ready", "bare", "seconds"), "memory.mb": max(each)}


@dataclass(frozen=True)
class _House:
    """The daemon under measurement."""

    pid: int
    port: int
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with contextlib.closing(self._send(method, path, body)) as connection:
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path} got {answer.status}: {text!r}")
            return json.loads(text)

    def open(self, count: int) -> float:
        """Open so many at once; how long it took until the last agent was ready."""
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
        """Of the daemon, and of whatever it runs that is not OpenCode, once all of them have come to rest."""
        daemon = psutil.Process(self.pid)
        ends = time.perf_counter() + _REST_SECONDS
        while self._busy(daemon) and time.perf_counter() < ends:
            pass
        ours = [one for one in daemon.children(recursive=True) if one.name() != "opencode"]
        return sum(one.memory_full_info().pss for one in [daemon, *ours])

    def _busy(self, daemon: psutil.Process) -> bool:
        """Whether daemon and agents together take more than half a core, in one second."""
        pids = [daemon.pid, *(one.pid for one in daemon.children() if one.name() == "opencode")]
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


def _bare(opencode: Path, places: Sequence[Path], env: Mapping[str, str]) -> float:
    """So many at once, with nothing of ours; how long it took until the last one said that it listens."""
    argv = [str(opencode), "serve", "--hostname", "127.0.0.1", "--port", "0", "--print-logs"]
    began = time.perf_counter()
    with contextlib.ExitStack() as ended, selectors.DefaultSelector() as outputs:

        def start(place: Path) -> None:
            process = ended.enter_context(_started(argv, place, env))
            assert process.stdout is not None
            outputs.register(process.stdout, selectors.EVENT_READ, (place, process.stdout))

        for place in places:
            start(place)
        again = 2
        while outputs.get_map():
            ready = outputs.select(_SECONDS)
            if not ready:
                raise RuntimeError(f"OpenCode does not listen after {_SECONDS} s")
            for key, _ in ready:
                place, output = key.data
                line = output.readline()
                if line and not _LISTENING.search(line):
                    continue
                outputs.unregister(output)
                if not line:
                    # About one start of fifty ends at once; Rookery tries again too.
                    again -= 1
                    if again < 0:
                        raise RuntimeError("OpenCode ends before it listens")
                    start(place)
        return time.perf_counter() - began


@contextlib.contextmanager
def _started(argv: Sequence[str], place: Path, env: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        argv,
        cwd=place,
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


def _worktree(app: Path, place: Path) -> Path:
    """A workspace that is not open yet."""
    _git(app, "worktree", "add", "-q", "--no-track", "-b", place.name, str(place), "main")
    return place


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *_PERSON, "-C", str(folder), *words], check=True, timeout=60)
