"""The files by which a running daemon is found: the owner's token and daemon.json."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from rookery.system import places, processes
from rookery.system.errors import RookeryError
from rookery.system.files import read_secret, write_secret
from rookery.system.ids import new_token


class Runtime(msgspec.Struct, frozen=True):
    """What `daemon.json` says. `instance` is the nonce that `GET /api/health` answers too."""

    pid: int
    started: str
    url: str
    mcp_url: str
    socket: str
    token_file: str
    version: str
    instance: str


def owner_token(state: Path) -> str:
    """The owner's token, made on the first start and kept."""
    path = places.token_file(state)
    found = read_secret(path)
    if found is not None and (token := found.decode("ascii", "replace").strip()):
        return token
    token = new_token()
    write_secret(path, token.encode() + b"\n")
    return token


def write_runtime(state: Path, runtime: Runtime) -> None:
    write_secret(places.runtime_file(state), msgspec.json.format(msgspec.json.encode(runtime), indent=1) + b"\n")


def describe_running(state: Path, holder: str) -> RookeryError:
    """The answer to a second start."""
    try:
        runtime = msgspec.json.decode(places.runtime_file(state).read_bytes(), type=Runtime)
        running = f"pid {runtime.pid} at {runtime.url}, since {runtime.started}"
    except (OSError, msgspec.DecodeError):
        running = holder or "pid unknown"
    return RookeryError(
        "already-running",
        f"a daemon is running on {state} already ({running})",
        "stop it with `rookery down`, or set ROOKERY_HOME to run another one",
    )


def lock_note(phase: Literal["starting", "running", "stopping"]) -> str:
    """What the lock file says; `rookery down` reads pid and phase from it where the socket cannot be reached."""
    return f"pid {os.getpid()} started {processes.started(os.getpid())} {phase}"
