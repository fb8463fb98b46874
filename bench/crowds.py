"""Many clients at once on the ports of many workspaces: does any client wait much longer than the others?"""

import contextlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from .harness import Bar, user_environment
from .loads import MODERN, Load, open_load
from .servers import Running, Server, running

_ROOKERY = str(Path(sys.executable).with_name("rookery"))
_WORKSPACES, _CLIENTS, _ROUNDS = 8, 50, 3
_SECONDS, _WARM_UP_SECONDS = 10.0, 2.0
_TIMEOUT = 120.0


def crowd(tree: Path) -> list[Bar]:
    """Compare the clients of each port with each other, while the clients of all ports are active."""
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="rookery-") as folder:
        base = Path(folder)
        state, project = base / "state", base / "project"
        env = user_environment(base, ROOKERY_HOME=str(state), XDG_CONFIG_HOME=str(base / "config"))
        _repository(project)
        argv = [_ROOKERY, "up", str(project), "--port", "{port}"]
        with contextlib.ExitStack() as stack:
            daemon = stack.enter_context(running(Server(argv, "/api/health", base, env)))
            for number in range(_WORKSPACES):
                _rookery(project, env, "ws", "create", f"task{number}", "--no-agent")
            token = (state / "token").read_text(encoding="utf-8").strip()
            ports = _ports(project, env)
            tool = {"name": "read_file", "arguments": {"path": "README"}, "expected": "Some words"}
            loads = [
                stack.enter_context(
                    open_load(Running(daemon.pid, port, 0, 0), MODERN, _CLIENTS, token, json.dumps(tool))
                )
                for port in ports
            ]
            _at_once(loads, _WARM_UP_SECONDS)
            rounds = [_at_once(loads, _SECONDS) for _ in range(_ROUNDS)]
    calls = sum(port["calls"] for ports in rounds for port in ports)
    worst = [max(port["slowest"] / port["fastest"] for port in ports) for ports in rounds]
    print(f"crowd: {calls} calls; slowest to fastest p50 of a port in each round: {worst}", flush=True)
    return [Bar("files.crowd.p50", median(worst), "<=", 3.0)]


def _ports(project: Path, env: dict[str, str]) -> list[int]:
    """Return the ports of the worktrees. The main checkout has a port only if it was opened."""
    status = json.loads(_rookery(project, env, "status", "--json"))
    ports = [workspace["mcp"]["port"] for workspace in status["workspaces"] if not workspace["main"]]
    if len(ports) != _WORKSPACES or not all(ports):
        raise RuntimeError(f"unexpected ports of {_WORKSPACES} workspaces: {ports}")
    return ports


def _at_once(loads: list[Load], seconds: float) -> list[dict[str, Any]]:
    def call(load: Load) -> dict[str, Any]:
        return load.call(seconds)

    with ThreadPoolExecutor(len(loads)) as threads:
        return list(threads.map(call, loads))


def _repository(path: Path) -> None:
    path.mkdir()
    (path / "README").write_text("Some words\n" * 20)
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false"]
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "one")):
        subprocess.run([*git, *words], cwd=path, check=True, timeout=_TIMEOUT)


def _rookery(project: Path, env: dict[str, str], *words: str) -> str:
    argv = [_ROOKERY, *words, "--no-start"]
    return subprocess.run(
        argv, cwd=project, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT
    ).stdout
