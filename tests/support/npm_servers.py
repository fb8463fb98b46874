"""MCP servers from npm, pinned, as their users have them."""

import fcntl
import os
import select
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.suite import NODE, with_node
from tests.support.house import quiet_port

VERSION = "2026.8.31"
SECONDS = 300

# Without this one tool of `everything` would fetch a page from the internet.
OFFLINE = {"GZIP_ALLOWED_DOMAINS": "nowhere.invalid"}


def folder_of(name: str) -> Path:
    """Each in a folder of its own: npm takes away what it was not just asked for."""
    return Path(sys.prefix) / name


def installed(name: str) -> Path:
    """Where the package `server-<name>` lies, fetched once, whoever else wants it at the same time."""
    folder = folder_of(name)
    package = folder / "node_modules" / "@modelcontextprotocol" / f"server-{name}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (package / f".installed-{VERSION}").exists():
            npm = [str(NODE / "bin" / "node"), str(NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
            quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
            wanted = f"@modelcontextprotocol/server-{name}@{VERSION}"
            command = [*npm, "install", *quiet, "--prefix", str(folder), wanted]
            subprocess.run(command, check=True, timeout=SECONDS, env=with_node())
            (package / f".installed-{VERSION}").touch()
    return package


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
