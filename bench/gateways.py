"""The gateways under measurement: ours as a user runs it, and each peer as cheap as its own options make it."""

import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .harness import user_environment
from .installs import from_npm, from_pypi, versions_of
from .loads import ERAS, HANDSHAKE, MODERN
from .servers import Running, Server, running

NPM_VERSION = "6.7.19"
PYPI_VERSION = "0.13.0"
# The later one could not be resolved for a while: it asked for a package that was not out yet.
FASTMCP_VERSIONS = ("4.1.4", "4.1.2")

_PEERS = Path(__file__).parent / "peers"
_ECHO = [sys.executable, "-P", str(_PEERS / "echo.py")]
_ROOKERY = str(Path(sys.executable).with_name("rookery"))
_SECONDS = 60.0

# A URL, or the words of a command.
Upstream = str | Sequence[str]


@dataclass(frozen=True)
class Gateway:
    """One that runs. `one` is where its first server is under bare names, `all` where every server is."""

    running: Running
    eras: Sequence[str] = ERAS
    token: str = "none-is-asked-for"
    one: str = "/mcp"
    all: str = "/mcp"
    separator: str = "_"


def echo(*words: str) -> list[str]:
    """The command of an upstream; see peers/echo.py."""
    return [*_ECHO, *words]


@contextlib.contextmanager
def echo_over_http(home: Path) -> Generator[str]:
    """An upstream in a process tree of its own; its URL."""
    with running(Server(echo("http", "{port}", "1"), "/", home, user_environment(home))) as one:
        yield f"http://127.0.0.1:{one.port}/mcp"


@contextlib.contextmanager
def rookery(home: Path, upstreams: Mapping[str, Upstream]) -> Generator[Gateway]:
    """The real daemon on a repository of its own, with everything on that it always has on."""
    with tempfile.TemporaryDirectory(dir=home, prefix="rookery-") as folder:
        base = Path(folder)
        config, state, project = base / "config", base / "state", base / "project"
        env = user_environment(base, ROOKERY_HOME=str(state), XDG_CONFIG_HOME=str(config))
        (config / "rookery").mkdir(parents=True)
        entries = {name: _entry(upstream) for name, upstream in upstreams.items()}
        (config / "rookery" / "mcp.json").write_text(json.dumps({"servers": entries}), encoding="utf-8")
        subprocess.run(["git", "init", "--quiet", str(project)], check=True, env=env)
        argv = [_ROOKERY, "up", str(project), "--port", "{port}"]
        with running(Server(argv, "/api/health", base, env)) as one:
            told = subprocess.run(
                [_ROOKERY, "status", "--json", "--no-start"], check=True, env=env, capture_output=True, timeout=_SECONDS
            )
            id_ = json.loads(told.stdout)["projects"][0]["id"]
            token = (state / "token").read_text(encoding="utf-8").strip()
            bare = f"/w/{id_}/@main/s/{next(iter(upstreams))}/mcp"
            yield Gateway(one, ERAS, token, bare, "/mcp", "__")


def _entry(upstream: Upstream) -> dict[str, Any]:
    if isinstance(upstream, str):
        return {"type": "http", "url": upstream}
    command, *args = upstream
    return {"command": command, "args": args}


@contextlib.contextmanager
def npm_proxy(home: Path, command: Sequence[str]) -> Generator[Gateway]:
    argv = from_npm("mcp-proxy", NPM_VERSION, "dist/bin/mcp-proxy.mjs")
    argv += ["--host", "127.0.0.1", "--port", "{port}", "--server", "stream", "--no-eventStore", "--", *command]
    with running(Server(argv, "/ping", home, user_environment(home))) as one:
        yield Gateway(one)


@contextlib.contextmanager
def pypi_proxy(home: Path, command: Sequence[str]) -> Generator[Gateway]:
    """It knows the handshake alone."""
    folder = from_pypi("mcp-proxy", [PYPI_VERSION])
    print(f"PyPI mcp-proxy: {versions_of(folder, 'mcp-proxy', 'mcp')}", flush=True)
    argv = [str(folder / "mcp-proxy"), "--port", "{port}", "--log-level", "WARNING", "--", *command]
    with running(Server(argv, "/status", home, user_environment(home))) as one:
        yield Gateway(one, [HANDSHAKE])


@contextlib.contextmanager
def fastmcp(home: Path, upstreams: Sequence[Upstream]) -> Generator[Gateway]:
    folder = from_pypi("fastmcp", FASTMCP_VERSIONS, "uvloop", "httptools")
    print(f"FastMCP: {versions_of(folder, 'fastmcp', 'mcp')}", flush=True)
    words = [one if isinstance(one, str) else json.dumps(one) for one in upstreams]
    argv = [str(folder / "python"), "-P", str(_PEERS / "fastmcp_gateway.py"), "{port}", *words]
    with running(Server(argv, "/api/health", home, user_environment(home))) as one:
        yield Gateway(one)


def list_names(gateway: Gateway) -> set[str]:
    """The names of all tools that a gateway lists at this moment."""
    about = {"protocolVersion": MODERN, "clientInfo": {"name": "bench", "version": "1"}, "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    headers = {
        "authorization": f"Bearer {gateway.token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/list",
    }
    line = http.client.HTTPConnection("127.0.0.1", gateway.running.port, timeout=_SECONDS)
    with contextlib.closing(line):
        line.request("POST", gateway.all, body, headers)
        response = line.getresponse()
        answer = response.read()
    if response.status != 200:
        raise RuntimeError(f"tools/list: {response.status} {answer[:200]!r}")
    return {tool["name"] for tool in json.loads(answer)["result"]["tools"]}
