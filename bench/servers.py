"""HTTP servers under measurement: start each in its own session, wait until it is healthy, and stop it."""

import contextlib
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .harness import cpu_so_far

_HOST = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_PAUSE_SECONDS = 0.001
_TAIL_BYTES = 4000


@dataclass(frozen=True)
class Server:
    """A server to start. `{port}` in `argv` is replaced by its port; `health` is its health route."""

    argv: Sequence[str]
    health: str
    cwd: Path
    env: Mapping[str, str]


@dataclass(frozen=True)
class Running:
    """A healthy server, and the seconds and CPU seconds until it was healthy."""

    pid: int
    port: int
    wall: float
    cpu: float


@contextlib.contextmanager
def running(server: Server) -> Generator[Running]:
    """Run the server until the end of the block; yield once it is healthy."""
    port = free_port()
    argv = [word.replace("{port}", str(port)) for word in server.argv]
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv,
            cwd=server.cwd,
            env=server.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            _wait_until_healthy(process, port, server.health, output)
            wall = time.perf_counter() - began
            yield Running(process.pid, port, wall, cpu_so_far(process.pid))
        finally:
            _end(process)


def get(port: int, path: str) -> bytes:
    """Send one request on a new connection. Return the whole response; raise OSError unless its status is 200."""
    with socket.create_connection((_HOST, port), timeout=_START_SECONDS) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nhost: {_HOST}:{port}\r\nconnection: close\r\n\r\n".encode())
        response = b"".join(iter(lambda: line.recv(65_536), b""))
    if not response.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"GET {path} got {response[:80]!r}")
    return response


def free_port() -> int:
    """Return a free port, below those that systems assign to clients.

    A client that repeatedly connects to a free port of its own range may connect to itself, and then holds the port
    that the server is about to bind.
    """
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((_HOST, port))
            return port
    raise OSError("none of 100 ports is free")


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, path: str, output: IO[bytes]) -> None:
    ends = time.perf_counter() + _START_SECONDS
    while True:
        try:
            get(port, path)
            return
        except OSError as error:
            if process.poll() is not None or time.perf_counter() > ends:
                output.seek(0)
                tail = output.read().decode(errors="replace")[-_TAIL_BYTES:]
                raise RuntimeError(f"{process.args!r} did not become healthy: {error}\n{tail}") from error
        time.sleep(_PAUSE_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
