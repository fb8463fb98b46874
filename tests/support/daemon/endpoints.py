"""Workspaces with MCP servers on their own ports, and requests to them."""

import http.client
import json
import socket
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.cli.workspaces import told
from tests.support.daemon.process import Daemon, HttpResponse, rookery, up

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}'


@contextmanager
def start_daemon(*settings: str) -> Generator[Daemon]:
    """Run a daemon with these settings, and stop it in order at the end."""
    daemon = up(*(word for one in settings for word in ("--set", one)))
    try:
        yield daemon
    finally:
        assert rookery("down").returncode == 0


def mcp(name: str, cwd: Path) -> dict[str, Any]:
    """Return the record of a workspace's MCP server."""
    return told("show", name, cwd=cwd)["mcp"]


def token_of(daemon: Daemon, name: str) -> str:
    """Return the token of the workspace with this git folder."""
    with closing(sqlite3.connect(daemon.state / "rookery.db")) as db:
        rows: list[tuple[str, str]] = db.execute("SELECT workspace, token FROM workspace_tokens").fetchall()
    return {Path(workspace).name: token for workspace, token in rows}[name]


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> HttpResponse:
    """Send one request to a port, with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return HttpResponse(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def is_free(port: int) -> bool:
    """Return whether the port is free and can be bound."""
    with socket.socket() as trial:
        if trial.connect_ex(("127.0.0.1", port)) == 0:
            return False
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(("127.0.0.1", port))
        trial.listen()
    return True


def listens(pid: int, port: int) -> bool:
    """Return whether this process listens there. A port that it has freed may be used by another test."""
    found = psutil.Process(pid).net_connections("inet")
    return port in {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN}


@contextmanager
def hold_port(port: int) -> Generator[None]:
    """Hold this port, as another program would."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        held.listen()
        yield


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}


def call(id_: int | str, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


HELLO = call(
    1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
)


def initialize(daemon: Daemon, token: str) -> HttpResponse:
    return daemon.http("POST", "/mcp", HELLO, token=token, headers=JSON)


def create(daemon: Daemon, token: str, name: str) -> Any:
    """Return the result of `workspace_create`, or its error."""
    session = initialize(daemon, token).headers["mcp-session-id"]
    headers = JSON | {"Mcp-Session-Id": session}
    answer = daemon.http(
        "POST",
        "/mcp",
        call(2, "tools/call", name="workspace_create", arguments={"name": name, "wait": True}),
        token=token,
        headers=headers,
    )
    text = answer.body.decode()
    result = json.loads(text[text.index("{") :])["result"]
    told = result["structuredContent"]
    return told["error"] if result.get("isError") else told
