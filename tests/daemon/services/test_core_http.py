"""The HTTP server of the real daemon: authentication, and attacks on it."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import psutil
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from rookery.api import app as api
from rookery.operations.table import make_unbound_operations
from tests.support.cli.user import user
from tests.support.cli.workspaces import app, made
from tests.support.daemon.foreground import read_daemon
from tests.support.daemon.process import Daemon, kill, rookery, unused_port, up
from tests.support.requirements import requirement

# The routes are made for a house that is not needed before one of them is called.
APP = cast(Starlette, api.build_app(cast(api.AppServices, Mock(operations=make_unbound_operations()))))
ROUTES = [
    *(
        (method, re.sub(r"{\w+}", "x", route.path))
        for route in APP.routes
        if isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"HEAD"})
    ),
    ("GET", "/"),
    ("POST", "/mcp"),
    ("POST", "/w/x/y/mcp"),
    ("GET", "/sse"),
    ("GET", "/ws"),
    ("POST", "/messages"),
    ("GET", "/socket.io/"),
    ("POST", "/socket.io/"),
    ("GET", "/no/such/route"),
]
JSON = {"Content-Type": "application/json"}
SOCKET_CLIENT = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.settimeout(20)
client.connect(sys.argv[1])
client.sendall(b'GET /api/status HTTP/1.0\\r\\n\\r\\n')
sys.stdout.buffer.write(client.recv(100))
"""


def test_the_routes_that_are_attacked_are_those_of_the_app() -> None:
    assert {("GET", "/api/status"), ("POST", "/api/daemon/stop"), ("DELETE", "/api/workspaces/x/x")} <= set(ROUTES)
    assert len(ROUTES) > 40


@requirement("house.auth.cross-site")
def test_a01_a_foreign_host_is_refused_on_every_route(daemon: Daemon) -> None:
    for method, path in ROUTES:
        for host in (f"evil.test:{daemon.port}", "evil.test", "127.0.0.1", f"127.0.0.1.evil.test:{daemon.port}", ""):
            answer = daemon.http(method, path, headers={"Host": host})
            assert answer.status == 421, (method, path, host)
    assert daemon.http("GET", "/api/health", headers={"Host": f"localhost:{daemon.port}"}).status == 200


@requirement("house.auth.cross-site")
def test_a02_a_foreign_origin_is_refused_on_every_route(daemon: Daemon) -> None:
    for method, path in ROUTES:
        for origin in ("https://evil.test", "null", "http://localhost.evil.test", "http://127.0.0.1.evil.test:80"):
            answer = daemon.http(method, path, headers={"Origin": origin})
            assert answer.status == 403, (method, path, origin)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
    own = daemon.http("GET", "/api/status", headers={"Origin": f"http://127.0.0.1:{daemon.port}"})
    assert own.status == 200 and not [name for name in own.headers if name.startswith("access-control-")]


@requirement("house.auth.token")
def test_a03_every_route_but_health_asks_for_the_token(daemon: Daemon) -> None:
    for method, path in ROUTES:
        if path == "/api/health":
            continue
        for token in (None, "", "wrong", daemon.token[:-1], daemon.token + "x"):
            sent = "Bearer " if token == "" else token
            query = f"{path}?token={daemon.token}&access_token={daemon.token}"
            answer = daemon.http(method, query, token=sent)
            assert answer.status == 401, (method, path, token)
            assert daemon.token not in answer.body.decode()
    basic = {"Authorization": f"Basic {daemon.token}"}
    assert daemon.http("GET", "/api/status", token=None, headers=basic).status == 401
    assert daemon.http("GET", "/api/status").status == 200


@requirement("house.auth.token", "house.log.format")
def test_a03_the_token_is_in_no_argument_no_log_and_no_environment(daemon: Daemon) -> None:
    daemon.http("GET", f"/api/status?token={daemon.token}", token=None)
    daemon.http("GET", f"/{daemon.token}")
    for process in [psutil.Process(daemon.pid), *psutil.Process(daemon.pid).children(recursive=True)]:
        assert daemon.token not in " ".join(process.cmdline())
        assert daemon.token not in str(process.environ())
    for path in (daemon.state / "logs").iterdir():
        assert daemon.token not in path.read_text()
    assert (daemon.state / "token").stat().st_mode & 0o777 == 0o600


@requirement("house.auth.cross-site")
def test_a04_no_answer_lets_another_origin_read(daemon: Daemon) -> None:
    asked = {"Origin": "https://evil.test", "Access-Control-Request-Method": "POST"}
    for _, path in ROUTES:
        for headers in (asked, {"Access-Control-Request-Method": "POST"}):
            answer = daemon.http("OPTIONS", path, headers=headers)
            assert answer.status >= 400
            assert not [name for name in answer.headers if name.startswith("access-control-")]


@requirement("house.auth.cross-site")
def test_a_post_that_a_web_page_could_send_unasked_is_refused(daemon: Daemon) -> None:
    for path in (path for method, path in ROUTES if method == "POST"):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            if (path, kind) != (
                "/socket.io/",
                "text/plain",
            ):  # which its own clients send, and no page can with a token
                answer = daemon.http("POST", path, b"{}", headers={"Content-Type": kind})
                assert answer.status == 415, (path, kind)
    assert daemon.http("GET", "/api/health").status == 200


@requirement("house.bind.loopback")
def test_a08_only_the_loopback_address_is_bound(daemon: Daemon) -> None:
    bound = [one.laddr for one in psutil.Process(daemon.pid).net_connections("inet") if one.status == "LISTEN"]
    assert [(one.ip, one.port) for one in bound] == [("127.0.0.1", daemon.port)]


@requirement("house.bind.port")
def test_the_port_is_remembered_and_taken_again(state: Path) -> None:
    port = unused_port()
    assert up("--port", str(port)).port == port
    assert rookery("down").returncode == 0
    second = up()
    assert second.port == port
    kill(second.pid)
    assert up().port == port
    assert rookery("down").returncode == 0


@requirement("house.bind.conflict", "house.bind.port")
def test_a09_a_squatter_on_the_remembered_port_is_left_alone(state: Path) -> None:
    first = up("--port", str(unused_port()))
    assert rookery("down").returncode == 0
    with socket.create_server(("127.0.0.1", first.port)) as squatter:
        second = up()
        assert second.port != first.port
        assert second.http("GET", "/api/health").json()["instance"] == second.runtime["instance"]
        assert any(str(first.port) in one["message"] for one in second.log() if one["level"] == "warning")
        assert rookery("status", "--json").returncode == 0
        squatter.setblocking(False)
        with pytest.raises(BlockingIOError):
            squatter.accept()
    assert rookery("down").returncode == 0


@requirement("house.bind.conflict")
def test_a09_a_port_that_was_asked_for_and_is_taken_is_an_error_that_names_it(state: Path) -> None:
    port = unused_port()
    with socket.create_server(("127.0.0.1", port)):
        done = rookery("up", "-d", "--port", str(port))
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert not (state / "daemon.json").exists()
    assert up("--port", str(port)).port == port
    assert rookery("down").returncode == 0


def test_a09_a_squatter_on_the_same_port_of_ipv6_gets_no_request_of_ours(daemon: Daemon) -> None:
    try:
        squatter = socket.create_server(("::1", daemon.port), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"no IPv6 loopback here: {error}")
    with squatter:
        assert daemon.runtime["url"].startswith("http://127.0.0.1:")
        assert rookery("status", "--json").returncode == 0
        squatter.setblocking(False)
        with pytest.raises(BlockingIOError):
            squatter.accept()


def say(one: socket.socket, data: bytes) -> None:
    """Unless its time is over already, as it may be on a slow machine."""
    with suppress(ConnectionError):
        one.sendall(data)


def heard(one: socket.socket) -> bytes:
    try:
        return one.recv(4096)
    except ConnectionError:
        return b""


@requirement("house.limits.requests")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a10_five_hundred_slow_clients_keep_nobody_waiting(state: Path, loop: str) -> None:
    daemon = up("--set", "limits.header_seconds=2", "--set", "limits.body_seconds=2", "--set", f"daemon.loop={loop}")
    before = psutil.Process(daemon.pid).memory_info().rss
    slow = [daemon.connect() for _ in range(500)]
    try:
        for number, one in enumerate(slow):
            if number % 2:
                say(one, b"GET /api/status HTTP/1.1\r\nHost: 127.0")
            else:
                head = f"POST /api/projects HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n"
                head += f"Authorization: Bearer {daemon.token}\r\nContent-Type: application/json\r\n"
                say(one, f"{head}Content-Length: 100\r\n\r\n{{".encode())
        for _ in range(5):
            for one in slow[:50]:
                say(one, b" ")
            assert daemon.http("GET", "/api/status").status == 200
        assert rookery("status", "--no-start").returncode == 0
        first = [heard(one) for one in slow]
        assert all(answer == b"" or answer.startswith(b"HTTP/1.1 408 ") for answer in first)
    finally:
        for one in slow:
            one.close()
    assert psutil.Process(daemon.pid).memory_info().rss - before < 50_000_000
    assert daemon.http("GET", "/api/status").status == 200
    assert rookery("down").returncode == 0


@requirement("house.limits.requests")
def test_a_hundred_megabytes_of_unfinished_head_are_not_swallowed(daemon: Daemon) -> None:
    before = psutil.Process(daemon.pid).memory_info().rss
    with daemon.connect() as one:
        with suppress(OSError):
            one.sendall(b"GET / HTTP/1.1\r\nHost: ")
            for _ in range(1600):
                one.sendall(b"x" * 65_536)
        with suppress(ConnectionResetError):
            assert one.recv(4096).startswith(b"HTTP/1.1 431 ")
    assert psutil.Process(daemon.pid).memory_info().rss - before < 20_000_000


@requirement("house.cli.autostart")
def test_the_unix_socket_needs_no_token(daemon: Daemon) -> None:
    words = [sys.executable, "-c", SOCKET_CLIENT, daemon.runtime["socket"]]
    assert subprocess.run(words, capture_output=True, check=True, timeout=30).stdout.startswith(b"HTTP/1.1 200")


@requirement("house.cli.autostart")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_the_unix_socket_admits_no_other_user(daemon: Daemon) -> None:
    """Let another user reach the socket itself: the peer's uid must be what stops him."""
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip("no interpreter that another user can run")
    daemon.state.parent.chmod(0o755)
    daemon.state.chmod(0o755)
    Path(daemon.runtime["socket"]).chmod(0o666)
    words = [python, "-c", SOCKET_CLIENT, daemon.runtime["socket"]]
    done = subprocess.run(words, capture_output=True, user=65534, env={}, cwd="/", timeout=30, check=False)
    assert b"200" not in done.stdout
    assert 'rookery_http_refused_total{reason="foreign-uid"} 1' in daemon.http("GET", "/metrics").body.decode()


@requirement("house.api.health")
def test_health_needs_no_token_and_metrics_are_prometheus_text(daemon: Daemon) -> None:
    health = daemon.http("GET", "/api/health", token=None)
    assert health.status == 200
    assert health.json()["status"] == "ok"
    metrics = daemon.http("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    lines = metrics.body.decode().splitlines()
    assert 'rookery_http_requests_total{status="200"} 1' in lines
    assert all(re.fullmatch(r"[a-z_]+(\{[^}]*\})? [0-9.e+-]+", line) for line in lines if not line.startswith("#"))


@requirement("house.status.shape")
def test_both_faces_answer_the_same_status(daemon: Daemon) -> None:
    over_http = daemon.http("GET", "/api/status").json()
    over_cli = json.loads(rookery("status", "--json").stdout)
    for one in (over_http, over_cli):
        assert one["daemon"].pop("uptime_s") >= 0
    assert over_http == over_cli
    assert set(over_cli) == {"daemon", "projects", "workspaces", "servers"}
    assert over_cli["daemon"]["pid"] == daemon.pid
    assert over_cli["daemon"]["mcp_url"] == f"http://127.0.0.1:{daemon.port}/mcp"


@requirement("house.status.shape", "house.log.format")
def test_status_has_every_field_for_a_project_with_a_workspace_and_a_server(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    made("feature", cwd=checkout)
    assert "the entry stays in the file" in user("mcp", "add", "none", "--", "true").stderr
    report = json.loads(rookery("status", "--json", cwd=checkout).stdout)
    assert report["daemon"].keys() >= {"pid", "url", "mcp_url", "uptime_s", "version"}
    (project,) = report["projects"]
    assert project.keys() >= {"id", "name", "path"} and project["path"] == str(checkout)
    assert [workspace["name"] for workspace in report["workspaces"]] == ["@main", "feature"]
    for workspace in report["workspaces"]:
        fields = ("project", "name", "path", "branch", "main", "state", "status", "agent", "mcp")
        assert workspace.keys() >= set(fields)
        assert workspace["project"] == project["id"]
        assert workspace["status"].keys() >= {"isDirty", "unmergedCommits", "agent"}
        assert workspace["status"]["agent"] == {"type": "none", "counts": {"idle": 0, "busy": 0, "total": 0}}
        assert workspace["agent"].keys() >= {"state", "port", "pid", "error"}
        assert workspace["mcp"].keys() >= {"server_running", "port", "url", "connected_clients", "tools", "last_error"}
    assert {tool["name"] for tool in report["workspaces"][1]["mcp"]["tools"]} >= {"read_file", "workspace_get_status"}
    assert all(tool.keys() >= {"name", "description", "parameters"} for tool in report["workspaces"][1]["mcp"]["tools"])
    server = next(server for server in report["servers"] if server["name"] == "none")
    fields = ("name", "workspace", "status", "error", "tools", "source", "shadowed", "scope", "era")
    assert server.keys() >= set(fields)
    assert (server["status"], server["scope"]) == ("failed", "workspace") and server["error"]
    # The log tells of it, and of nothing else, with the loggers of MCP.
    told = [one for one in daemon.log() if one["logger"].startswith("rookery.mcp.")]
    assert any("none" in one["message"] for one in told)
    assert {one["logger"] for one in daemon.log()} - {one["logger"] for one in told} >= {"rookery.daemon"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "path"),
        (b"{", "the request is invalid"),
        (b'{"path": 3}', "path"),
        (b'{"path": "relative"}', "not an absolute path"),
        (b'{"path": "/", "more": 1}', "more"),
        (b'{"path": "\xff"}', "the request is invalid"),
    ],
)
def test_bad_input_gets_400_with_what_is_wrong(daemon: Daemon, body: bytes, words: str) -> None:
    answer = daemon.http("POST", "/api/projects", body, headers=JSON)
    assert answer.status == 400
    assert answer.json()["error"]["code"] == "invalid-input"
    assert words in answer.json()["error"]["message"]


def test_a_folder_that_is_no_repository_gets_404(daemon: Daemon) -> None:
    answer = daemon.http("POST", "/api/projects", b'{"path": "/no/such/folder"}', headers=JSON)
    assert answer.status == 404
    assert answer.json()["error"]["code"] == "repository-not-found"
    assert answer.json()["error"]["remedy"]


def test_unknown_routes_and_methods_are_json_errors(daemon: Daemon) -> None:
    assert daemon.http("GET", "/nope").json()["error"]["code"] == "route-not-found"
    assert daemon.http("DELETE", "/api/status").json()["error"]["code"] == "method-not-allowed"
    assert read_daemon(daemon.state).pid == daemon.pid
