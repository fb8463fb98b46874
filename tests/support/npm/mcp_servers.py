"""MCP servers from npm, pinned."""

import os
import select
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.suite import NODE
from tests.support.daemon.process import unused_port
from tests.support.npm.packages import SECONDS, fetched

VERSION = "2026.8.31"

# Without this one tool of `everything` would fetch a page from the internet.
OFFLINE = {"GZIP_ALLOWED_DOMAINS": "nowhere.invalid"}


def installed(name: str) -> Path:
    """Return the folder of the package `server-<name>`."""
    package = f"@modelcontextprotocol/server-{name}"
    return fetched(name, {package: VERSION}) / package


def on_the_path(*names: str) -> str:
    """Return a PATH with node and the commands of these servers, as after `npm install -g`."""
    commands = [str(installed(name).parents[1] / ".bin") for name in names]
    return os.pathsep.join([*commands, str(NODE / "bin"), os.environ["PATH"]])


@contextmanager
def everything_at_a_port() -> Generator[str]:
    """Run `server-everything` over Streamable HTTP, and yield its address."""
    port = unused_port()
    process = subprocess.Popen(
        [str(NODE / "bin" / "node"), str(installed("everything") / "dist" / "index.js"), "streamableHttp"],
        env={"PATH": os.environ["PATH"], "PORT": str(port), **OFFLINE},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    with process:
        try:
            ready, _, _ = select.select([process.stderr], [], [], SECONDS)
            assert ready and b"listening" in process.stderr.readline()
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
