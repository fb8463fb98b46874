"""A real daemon and the real command line, as a user runs them."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOKERY = Path(sys.executable).with_name("rookery")
SECONDS = 60


@dataclass
class HttpResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def rookery(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, in the environment of the test."""
    return subprocess.run(
        [ROOKERY, *words],
        env=os.environ | dict(env or {}),
        cwd=cwd or os.environ["HOME"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@dataclass
class Daemon:
    """One running daemon."""

    state: Path
    runtime: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def pid(self) -> int:
        return self.runtime["pid"]

    @property
    def port(self) -> int:
        return int(self.runtime["url"].rpartition(":")[2])

    @property
    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    def refresh(self) -> "Daemon":
        self.runtime = json.loads((self.state / "daemon.json").read_text())
        return self

    def http(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        token: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Send a request over TCP, with the owner's token by default, without one for None."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        sent = {"Authorization": f"Bearer {self.token if token == '' else token}"} if token is not None else {}
        try:
            connection.request(method, path, body, sent | dict(headers or {}))
            answer = connection.getresponse()
            return HttpResponse(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.state / "logs" / "daemon.jsonl").read_text().splitlines()]


def up(*words: str, env: Mapping[str, str] | None = None) -> Daemon:
    done = rookery("up", "-d", *words, env=env)
    assert done.returncode == 0, done.stderr
    return Daemon(Path((env or {}).get("ROOKERY_HOME") or os.environ["ROOKERY_HOME"])).refresh()


def unused_port() -> int:
    """Return a port that no other test uses: outside the ranges of the daemon and of the system."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as made:
            try:
                made.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def wait_dead(pid: int, seconds: float = SECONDS) -> None:
    """Wait until the process has ended; a zombie counts as ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    try:
        ready, _, _ = select.select([handle], [], [], seconds)
        assert ready, f"process {pid} is still alive after {seconds} s"
    finally:
        os.close(handle)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)
