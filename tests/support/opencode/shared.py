"""One OpenCode for all tests that need no separate process: each test has its own folder, config and model.

A start costs seconds of CPU time, and a first turn as much again; another folder on the same server costs very little.
Tests that kill OpenCode, or look at its process, start their own with `start_opencode`.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.opencode.home import OpenCodeHome
from tests.support.opencode.process import START_SECONDS, installed

PASSWORD = "only for tests"
_LISTENING = re.compile(rb"listening on (http://127\.0\.0\.1:\d+)\s")
# About one start of fifty ends at once, for no reason that it tells.
_TRIES = 2


@dataclass(frozen=True)
class SharedOpenCode:
    url: str
    # Where all that it asks of anybody else would arrive.
    proxy: socket.socket

    def configure(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Write the config for sessions in this folder, with a schema: OpenCode adds one if it is missing."""
        whole = {"$schema": "https://opencode.ai/config.json", **config}
        (folder / "opencode.json").write_text(json.dumps(whole))

    def has_asked_nobody(self) -> bool:
        try:
            self.proxy.accept()
        except BlockingIOError:
            return True
        return False


@contextlib.contextmanager
def start_shared_opencode(folder: Path) -> Generator[SharedOpenCode]:
    """Start the server without an event loop, which would have to be the same for all tests."""
    here = installed()
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        env = {
            "PATH": here.search_path,
            **OpenCodeHome.make(folder / "home").environment(),
            "OPENCODE_SERVER_PASSWORD": PASSWORD,
            "HTTP_PROXY": address,
            "HTTPS_PROXY": address,
            "NO_PROXY": "127.0.0.1",
        }
        argv = [str(here.opencode), "serve", "--hostname", "127.0.0.1", "--port", "0"]
        with (folder / "log").open("wb") as log:
            for _ in range(_TRIES):
                with subprocess.Popen(
                    argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, start_new_session=True
                ) as process:
                    try:
                        if url := _address(process):
                            yield SharedOpenCode(url, proxy)
                            return
                    finally:
                        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"OpenCode ended before it listened:\n{(folder / 'log').read_text()}")


def _address(process: "subprocess.Popen[bytes]") -> str | None:
    """Wait until it listens and return its address; None if it ends."""
    assert process.stdout is not None
    seen = b""
    while not (found := _LISTENING.search(seen)):
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        assert ready, f"OpenCode does not listen after {START_SECONDS} s; seen: {seen!r}"
        data = os.read(process.stdout.fileno(), 65_536)
        if not data:
            return None
        seen += data
    return found[1].decode()
