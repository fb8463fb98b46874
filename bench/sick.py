"""Twenty servers at once, three of which cannot be connected: the time until the others are listed."""

import contextlib
import json
import selectors
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from .gateways import echo, list_names, rookery
from .harness import Sample, user_environment
from .loads import HANDSHAKE

_SICK = ("hang", "exit", "garbage")
_HEALTHY = 17
# The slowest server waits this long before it reads; the others less, in even steps.
_SLOWEST_SECONDS = 1.0
_SECONDS = 60.0
_PAUSE_SECONDS = 0.005


def _commands() -> dict[str, list[str]]:
    """Return the commands, the sick ones first: a gateway that connects one after the other meets them first."""
    steps = range(1, _HEALTHY + 1)
    healthy = {f"s{step:02}": echo("stdio", "1", str(_SLOWEST_SECONDS * step / _HEALTHY)) for step in steps}
    return {kind: echo(kind) for kind in _SICK} | healthy


def through_rookery(home: Path) -> Sample:
    """Return the seconds from the first listing, which starts the servers, until all healthy ones are listed."""
    commands = _commands()
    wanted = {f"{name}__echo" for name in commands if name not in _SICK}
    with rookery(home, commands) as gateway:
        began = time.perf_counter()
        while missing := wanted - list_names(gateway):
            if time.perf_counter() - began > _SECONDS:
                raise RuntimeError(f"{len(missing)} of {len(wanted)} healthy servers are not listed")
            time.sleep(_PAUSE_SECONDS)
        return {"seconds": time.perf_counter() - began}


def side_by_side(home: Path) -> Sample:
    """Return the seconds until the slowest healthy server is connected, without a gateway.

    All are started at once, so that the machine is as busy as behind the gateway.
    """
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages).encode()
    began = time.perf_counter()
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        waiting: dict[str, bytes] = {}
        for name, command in _commands().items():
            log = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=user_environment(home)
            )
            stack.callback(_end, process)
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(lines)
                process.stdin.flush()
            if name not in _SICK:
                waiting[name] = b""
                selector.register(process.stdout, selectors.EVENT_READ, (name, process.stdout))
        while waiting:
            ready = selector.select(_SECONDS)
            if not ready:
                raise RuntimeError(f"{len(waiting)} healthy servers do not respond")
            for key, _ in ready:
                name, output = key.data
                data = output.read1()
                if not data:
                    raise RuntimeError(f"{name} has ended")
                waiting[name] += data
                if b'"tools":[' in waiting[name]:
                    del waiting[name]
                    selector.unregister(output)
        return {"seconds": time.perf_counter() - began}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(BrokenPipeError):
        process.communicate()
