"""How long the owner waits while one workspace's token holds all that it may, against a daemon that nobody attacks."""

import contextlib
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from .harness import Bar, Sample, ratio, take_turns, user_environment
from .loads import HANDSHAKE, MODERN, loaded
from .servers import Running, Server, running

_ROOKERY = str(Path(sys.executable).with_name("rookery"))
# Calls stay parked for as long as a round takes, and are gone in the next one.
_SETTINGS = ("--set", "http.port={port}", "--set", "gateway.parked_seconds=5")
_DAEMON = [sys.executable, "-P", "-m", "rookery.daemon", "serve", *_SETTINGS]
_ROW = "house.limits.shares"
_ASKED = 200
_WANTED = 1.5
_JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false")
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
# A tool that its user is asked about first, so that each call of it is parked.
_ASKS = "workspace_get_metadata"
_META = "io.modelcontextprotocol/"
_PARKED: dict[str, object] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": _ASKS,
        "arguments": {},
        "_meta": {
            f"{_META}protocolVersion": MODERN,
            f"{_META}clientInfo": {"name": "bench", "version": "1"},
            f"{_META}clientCapabilities": {"elicitation": {"form": {}}},
        },
    },
}
_NAMED = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": _ASKS}
# More than one token may have of each.
_STREAMS, _REQUESTS, _SILENT, _SESSIONS, _CALLS = 100, 100, 600, 500, 40
_CROWD = 100


def run() -> list[Bar]:
    with (
        tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder,
        _started(Path(folder) / "ours") as (daemon, owner, token),
        _started(Path(folder) / "other") as (other, _, other_token),
    ):
        targets = {
            "alone": lambda: _measured(daemon.port, owner),
            "attacked": lambda: _attacked(daemon.port, owner, token),
            # A flood takes a core for its clients and one for the daemon that it meets: measure both apart.
            "beside": lambda: _flooded(other, other_token, 1, daemon, owner),
            "one": lambda: _flooded(daemon, token, 1, daemon, owner),
            "crowd": lambda: _flooded(daemon, token, _CROWD, daemon, owner),
        }
        taken = take_turns(targets, rounds=7, warm_ups=1)
    held, crowd = ratio(taken, "attacked", "alone", "seconds"), ratio(taken, "crowd", "one", "seconds")
    flooded = ratio(taken, "one", "beside", "seconds")
    ratio(taken, "one", "alone", "seconds")
    return [
        Bar("shares.owner.p50", held, "<=", _WANTED, requirement=_ROW),
        Bar("shares.owner.flood", flooded, "<=", _WANTED, requirement=_ROW),
        Bar("shares.owner.crowd", crowd, "<=", _WANTED, requirement=_ROW),
    ]


@contextlib.contextmanager
def _started(folder: Path) -> Generator[tuple[Running, str, str]]:
    """Start a daemon with one workspace; the daemon, the owner's token and the workspace's."""
    home, state = folder / "home", folder / "state"
    config = home / ".config" / "rookery" / "mcp.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"servers": {}, "permission": {_ASKS: "ask"}}))
    env = user_environment(home, ROOKERY_HOME=str(state), ROOKERY_AGENTS_START="use")
    with running(Server(_DAEMON, "/api/health", home, env)) as daemon:
        token = _workspace(home, env)
        yield daemon, (state / "token").read_text().strip(), token


def _workspace(home: Path, env: dict[str, str]) -> str:
    """Make a workspace; its token."""
    app = home / "app"
    subprocess.run(["git", "init", "-q", "-b", "main", str(app)], check=True, env=env)
    subprocess.run(["git", *_PERSON, "-C", str(app), "commit", "-q", "--allow-empty", "-m", "one"], check=True, env=env)
    subprocess.run([_ROOKERY, "ws", "create", "one", "--no-agent"], cwd=app, env=env, check=True, capture_output=True)
    told = subprocess.run([_ROOKERY, "ws", "token", "one"], cwd=app, env=env, check=True, capture_output=True)
    return told.stdout.decode().strip()


def _measured(port: int, owner: str) -> Sample:
    """The p50 of requests, each on a connection of its own."""
    waited: list[float] = []
    for _ in range(_ASKED):
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/api/projects", headers={"Authorization": f"Bearer {owner}"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"the owner was answered {answer.status}")
        waited.append(time.perf_counter() - began)
    return {"seconds": statistics.median(waited)}


def _attacked(port: int, owner: str, token: str) -> Sample:
    with _attack(port, token):
        return _measured(port, owner)


def _flooded(flooded: Running, token: str, clients: int, daemon: Running, owner: str) -> Sample:
    """Measure `daemon` while so many clients make handshakes with `flooded` as fast as they are answered."""
    with loaded(flooded, HANDSHAKE, clients, token, "initialize") as load:
        assert load.process.stdin is not None
        load.process.stdin.write("60s\n")
        load.process.stdin.flush()
        return _measured(daemon.port, owner)


@contextlib.contextmanager
def _attack(port: int, token: str) -> Generator[None]:
    """Hold streams, requests without an end, silent connections, a large body, sessions and parked calls."""
    with contextlib.ExitStack() as stack:

        def send(head: str, body: bytes = b"") -> None:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            lines = [
                head,
                f"Host: 127.0.0.1:{port}",
                f"Authorization: Bearer {token}",
                "Content-Type: application/json",
            ]
            with contextlib.suppress(ConnectionError):
                line.sendall("\r\n".join([*lines, "", ""]).encode() + body)

        abandoned = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(_SESSIONS):
            abandoned.request("POST", "/mcp", json.dumps(_HELLO), _JSON | {"Authorization": f"Bearer {token}"})
            abandoned.getresponse().read()
        for _ in range(_CALLS):
            abandoned.request(
                "POST", "/mcp", json.dumps(_PARKED), _JSON | _NAMED | {"Authorization": f"Bearer {token}"}
            )
            told = abandoned.getresponse().read()
            if b"input_required" not in told and b"too-many-questions" not in told:
                raise RuntimeError(f"a call was not parked: {told!r}")
        abandoned.close()
        send(f"POST /mcp HTTP/1.1\r\nContent-Length: {60_000_001}", b" " * 60_000_000)
        for _ in range(_STREAMS):
            send("GET /sse HTTP/1.1")
        for _ in range(_REQUESTS):
            send("POST /mcp HTTP/1.1\r\nContent-Length: 9")
        for _ in range(_SILENT):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        yield
