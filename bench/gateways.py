"""The measured gateways: Rookery as a user runs it, and each peer with its cheapest options."""

import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .harness import user_environment
from .installs import from_npm, from_pypi, versions_of
from .loads import ERAS, HANDSHAKE, MODERN
from .servers import Running, Server, running

NPM_VERSION = "6.7.19"
PYPI_VERSION = "0.13.0"
# The newer one could not be resolved for a while: it required a package that was not released yet.
FASTMCP_VERSIONS = ("4.1.4", "4.1.2")

_PEERS = Path(__file__).parent / "peers"
_ECHO = [sys.executable, "-P", str(_PEERS / "echo.py")]
_ROOKERY = str(Path(sys.executable).with_name("rookery"))
_SECONDS = 60.0

# A URL, or the words of a command.
Upstream = str | Sequence[str]


@dataclass(frozen=True)
class Gateway:
    """A running gateway. `single_server` is the path to its first server alone, `all_servers` that to all."""

    running: Running
    eras: Sequence[str] = ERAS
    token: str = "none-is-required"
    single_server: str = "/mcp"
    all_servers: str = "/mcp"
    separator: str = "_"


def echo(*words: str) -> list[str]:
    """Return the command of an upstream; see peers/echo.py."""
    return [*_ECHO, *words]


@contextlib.contextmanager
def echo_over_http(home: Path) -> Generator[str]:
    """Run an upstream in a process tree of its own, and yield its URL."""
    with running(Server(echo("http", "{port}", "1"), "/", home, user_environment(home))) as server:
        yield f"http://127.0.0.1:{server.port}/mcp"


@contextlib.contextmanager
def rookery(
    home: Path,
    upstreams: Mapping[str, Upstream],
    variables: Mapping[str, str] = MappingProxyType({}),
    permission: Mapping[str, str] = MappingProxyType({}),
) -> Generator[Gateway]:
    """Run the real daemon on a repository of its own, by default with its default settings and no rules for tools."""
    with tempfile.TemporaryDirectory(dir=home, prefix="rookery-") as folder:
        base = Path(folder)
        config, state, project = base / "config", base / "state", base / "project"
        env = user_environment(base, ROOKERY_HOME=str(state), XDG_CONFIG_HOME=str(config), **variables)
        (config / "rookery").mkdir(parents=True)
        entries = {name: _entry(upstream) for name, upstream in upstreams.items()}
        written = {"servers": entries, "permission": dict(permission)}
        (config / "rookery" / "mcp.json").write_text(json.dumps(written), encoding="utf-8")
        subprocess.run(["git", "init", "--quiet", str(project)], check=True, env=env)
        argv = [_ROOKERY, "up", str(project), "--port", "{port}"]
        with running(Server(argv, "/api/health", base, env)) as process:
            result = subprocess.run(
                [_ROOKERY, "status", "--json", "--no-start"], check=True, env=env, capture_output=True, timeout=_SECONDS
            )
            id_ = json.loads(result.stdout)["projects"][0]["id"]
            token = (state / "token").read_text(encoding="utf-8").strip()
            bare = f"/w/{id_}/@main/s/{next(iter(upstreams))}/mcp"
            yield Gateway(process, ERAS, token, bare, "/mcp", "__")


def _entry(upstream: Upstream) -> dict[str, Any]:
    if isinstance(upstream, str):
        return {"type": "http", "url": upstream}
    command, *args = upstream
    return {"command": command, "args": args}


@contextlib.contextmanager
def npm_proxy(home: Path, command: Sequence[str]) -> Generator[Gateway]:
    argv = from_npm("mcp-proxy", NPM_VERSION, "dist/bin/mcp-proxy.mjs")
    argv += ["--host", "127.0.0.1", "--port", "{port}", "--server", "stream", "--no-eventStore", "--", *command]
    with running(Server(argv, "/ping", home, user_environment(home))) as process:
        yield Gateway(process)


@contextlib.contextmanager
def pypi_proxy(home: Path, command: Sequence[str]) -> Generator[Gateway]:
    """Run the proxy from PyPI, which supports only the handshake era."""
    folder = from_pypi("mcp-proxy", [PYPI_VERSION])
    print(f"PyPI mcp-proxy: {versions_of(folder, 'mcp-proxy', 'mcp')}", flush=True)
    argv = [str(folder / "mcp-proxy"), "--port", "{port}", "--log-level", "WARNING", "--", *command]
    with running(Server(argv, "/status", home, user_environment(home))) as process:
        yield Gateway(process, [HANDSHAKE])


@contextlib.contextmanager
def fastmcp(home: Path, upstreams: Sequence[Upstream]) -> Generator[Gateway]:
    folder = from_pypi("fastmcp", FASTMCP_VERSIONS, "uvloop", "httptools")
    print(f"FastMCP: {versions_of(folder, 'fastmcp', 'mcp')}", flush=True)
    words = [upstream if isinstance(upstream, str) else json.dumps(upstream) for upstream in upstreams]
    argv = [str(folder / "python"), "-P", str(_PEERS / "fastmcp_gateway.py"), "{port}", *words]
    with running(Server(argv, "/api/health", home, user_environment(home))) as process:
        yield Gateway(process)


def list_names(gateway: Gateway) -> set[str]:
    """Return the names of all tools that a gateway lists at this moment."""
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
        line.request("POST", gateway.all_servers, body, headers)
        response = line.getresponse()
        body = response.read()
    if response.status != 200:
        raise RuntimeError(f"tools/list: {response.status} {body[:200]!r}")
    return {tool["name"] for tool in json.loads(body)["result"]["tools"]}
