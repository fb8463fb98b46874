"""MCP servers from npm, pinned, as their users have them."""

import os
import select
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.suite import NODE
from tests.support.daemon.process import quiet_port
from tests.support.npm.packages import SECONDS, fetched

VERSION = "2026.8.31"

# Without this one tool of `everything` would fetch a page from the internet.
OFFLINE = {"GZIP_ALLOWED_DOMAINS": "nowhere.invalid"}


def installed(name: str) -> Path:
    """Where the package `server-<name>` lies."""
    package = f"@modelcontextprotocol/server-{name}"
    return fetched(name, {package: VERSION}) / package


def on_the_path(*names: str) -> str:
    """A PATH with node and with the commands of these servers, as `npm install -g` would leave it."""
    commands = [str(installed(name).parents[1] / ".bin") for name in names]
    return os.pathsep.join([*commands, str(NODE / "bin"), os.environ["PATH"]])


@contextmanager
def everything_at_a_port() -> Generator[str]:
    """`server-everything` over Streamable HTTP; its address."""
    port = quiet_port()
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
