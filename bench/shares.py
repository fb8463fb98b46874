"""The latency of the owner's requests while a workspace's token uses all of its shares, against an idle daemon."""

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
from .loads import HANDSHAKE, MODERN, open_load
from .servers import Running, Server, running

_ROOKERY = str(Path(sys.executable).with_name("rookery"))
# Calls stay parked for one round, and are gone in the next one.
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
# A tool for which the user is asked first, so that each call of it is parked.
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
# A call that writes a file, and its clients; and the clients that send bodies which take long to read.
_WRITE = json.dumps(
    {"name": "workspace_set_metadata", "arguments": {"key": "note", "value": "x" * 1000}, "expected": "null"}
)
_WRITERS, _SENDERS = 20, 8
_BODIES = Path(__file__).parent / "peers" / "bodies.py"


def run() -> list[Bar]:
    with (
        tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder,
        _started(Path(folder)) as (daemon, owner, token),
    ):
        targets = {
            "alone": lambda: _measured(daemon.port, owner),
            "attacked": lambda: _attacked(daemon.port, owner, token),
            "one": lambda: _flooded(daemon, owner, token, 1),
            "crowd": lambda: _flooded(daemon, owner, token, _CROWD),
            "writes": lambda: _flooded(daemon, owner, token, _WRITERS, _WRITE),
            "chunks": lambda: _burdened(daemon.port, owner, token, "chunks"),
            "objects": lambda: _burdened(daemon.port, owner, token, "objects"),
        }
        results = take_turns(targets, rounds=7, warm_ups=1)

    def compare(load: str) -> float:
        return ratio(results, load, "alone", "seconds")

    return [
        Bar("shares.owner.p50", compare("attacked"), "<=", _WANTED, requirement=_ROW),
        Bar("shares.owner.flood", compare("one"), "<=", _WANTED, requirement=_ROW),
        Bar("shares.owner.crowd", compare("crowd"), "<=", _WANTED, requirement=_ROW),
        Bar("shares.owner.writes", compare("writes"), "<=", _WANTED, requirement=_ROW),
        Bar("shares.owner.chunks", compare("chunks"), "<=", _WANTED, requirement=_ROW),
        Bar("shares.owner.objects", compare("objects"), "<=", _WANTED, requirement=_ROW),
    ]


@contextlib.contextmanager
def _started(folder: Path) -> Generator[tuple[Running, str, str]]:
    """Start a daemon with one workspace; yield the daemon, the owner's token and the workspace's."""
    home, state = folder / "home", folder / "state"
    config = home / ".config" / "rookery" / "mcp.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"servers": {}, "permission": {_ASKS: "ask"}}))
    env = user_environment(home, ROOKERY_HOME=str(state), ROOKERY_AGENTS_START="use")
    with running(Server(_DAEMON, "/api/health", home, env)) as daemon:
        token = _workspace(home, env)
        yield daemon, (state / "token").read_text().strip(), token


def _workspace(home: Path, env: dict[str, str]) -> str:
    """Create a workspace and return its token."""
    app = home / "app"
    subprocess.run(["git", "init", "-q", "-b", "main", str(app)], check=True, env=env)
    subprocess.run(["git", *_PERSON, "-C", str(app), "commit", "-q", "--allow-empty", "-m", "one"], check=True, env=env)
    subprocess.run([_ROOKERY, "ws", "create", "one", "--no-agent"], cwd=app, env=env, check=True, capture_output=True)
    result = subprocess.run([_ROOKERY, "ws", "token", "one"], cwd=app, env=env, check=True, capture_output=True)
    return result.stdout.decode().strip()


def _measured(port: int, owner: str) -> Sample:
    """Return the p50 of requests, each on a connection of its own."""
    waited: list[float] = []
    for _ in range(_ASKED):
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/api/projects", headers={"Authorization": f"Bearer {owner}"})
        response = connection.getresponse()
        response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"the owner got status {response.status}")
        waited.append(time.perf_counter() - began)
    return {"seconds": statistics.median(waited)}


def _attacked(port: int, owner: str, token: str) -> Sample:
    with _attack(port, token):
        return _measured(port, owner)


def _burdened(port: int, owner: str, token: str, kind: str) -> Sample:
    """Measure while clients send bodies that take long to read."""
    argv = [sys.executable, "-P", str(_BODIES), str(port), token, kind, str(_SENDERS)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        return _measured(port, owner)
    finally:
        process.kill()
        process.communicate()


def _flooded(daemon: Running, owner: str, token: str, clients: int, what: str = "initialize") -> Sample:
    """Measure while this many clients make handshakes, or call a tool, as fast as they get responses."""
    with open_load(daemon, HANDSHAKE, clients, token, what) as load:
        assert load.process.stdin is not None
        load.process.stdin.write("60s\n")
        load.process.stdin.flush()
        return _measured(daemon.port, owner)


@contextlib.contextmanager
def _attack(port: int, token: str) -> Generator[None]:
    """Hold streams, incomplete requests, silent connections, a large body, sessions and parked calls."""
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
            body = abandoned.getresponse().read()
            if b"input_required" not in body and b"too-many-questions" not in body:
                raise RuntimeError(f"a call was not parked: {body!r}")
        abandoned.close()
        send(f"POST /mcp HTTP/1.1\r\nContent-Length: {60_000_001}", b" " * 60_000_000)
        for _ in range(_STREAMS):
            send("GET /sse HTTP/1.1")
        for _ in range(_REQUESTS):
            send("POST /mcp HTTP/1.1\r\nContent-Length: 9")
        for _ in range(_SILENT):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        yield
