"""The `rookery mcp` commands for servers of the running daemon."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_main import HEAVY, imported_by
from tests.support.cli.user import user
from tests.support.daemon.foreground import on_a_terminal, wait_for_line
from tests.support.daemon.process import Daemon, HttpResponse, rookery, up
from tests.support.gateway.gateway import worktree
from tests.support.mcp.client import PROGRAMS
from tests.support.npm.mcp_servers import everything_at_a_port
from tests.support.requirements import requirement

SHOWY = [sys.executable, str(PROGRAMS / "showy_server.py")]
SECRET = "hush-hush-0123456789"

pytestmark = requirement("hub.cli.verbs")


def define(file: Path | None = None, **servers: Any) -> Path:
    file = file or Path(os.environ["HOME"]) / ".config" / "rookery" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"servers": servers}, indent=2))
    return file


def rows(text: str) -> list[list[str]]:
    return [re.split(r"  +", line.rstrip()) for line in text.splitlines()]


@pytest.fixture
def app(daemon: Daemon, tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path / "app")], check=True, timeout=30)
    assert rookery("project", "add", str(tmp_path / "app")).returncode == 0
    return (tmp_path / "app").resolve()


@requirement("hub.cli.failed")
def test_servers_are_listed_with_how_they_are_and_where_they_come_from(daemon: Daemon, app: Path) -> None:
    define(good={"command": SHOWY}, off={"command": SHOWY, "enabled": False}, dead={"command": ["/nowhere/at-all"]})
    define(app / ".rookery" / "mcp.json", good={"command": SHOWY}, new={"url": "http://127.0.0.1:9/mcp"})
    assert user("mcp", "connect", "good").returncode == 0
    assert user("mcp", "connect", "dead").returncode == 1
    assert rows(user("mcp", "list").stdout) == [
        ["NAME", "STATUS", "TOOLS", "SCOPE", "SOURCE"],
        ["good", "connected", "7", "workspace", "~/.config/rookery/mcp.json:3"],
        ["off", "disabled", "0", "workspace", "~/.config/rookery/mcp.json:9"],
        [
            *("dead", "failed", "0", "workspace", "~/.config/rookery/mcp.json:16"),
            "cannot start dead: /nowhere/at-all was not found",
        ],
    ]
    (app / "sub").mkdir()
    here = rows(user("mcp", "list", "--all", cwd=app / "sub").stdout)
    assert here[1] == ["good", "needs_approval", "0", "workspace", ".rookery/mcp.json:3"]
    assert here[2] == ["good", "shadowed", "~/.config/rookery/mcp.json:3"]
    assert here[3] == ["new", "needs_approval", "0", "app", ".rookery/mcp.json:9"]
    assert {row[0] for row in here[4:]} == {"off", "dead"}
    assert rows(user("mcp", "list", "--global", cwd=app).stdout)[1][1] == "connected"


def test_a_checkout_that_is_no_project_is_told_of(daemon: Daemon, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "other")], check=True, timeout=30)
    done = user("mcp", "list", cwd=tmp_path / "other")
    assert done.stdout == "no servers yet: rookery mcp add\n"
    assert "rookery project add" in done.stderr


def test_one_server_is_shown_without_secrets(daemon: Daemon) -> None:
    define(far={"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": SECRET}}, showy={"command": SHOWY})
    user("mcp", "connect", "showy")
    shown = user("mcp", "get", "showy").stdout
    assert "status     connected (2025-11-25)" in shown
    assert "source     ~/.config/rookery/mcp.json:9 (rookery)" in shown
    assert '"command": [' in shown
    for more in ([], ["--json"]):
        far = user("mcp", "get", "far", *more)
        assert far.returncode == 0
        assert "(hidden)" in far.stdout and SECRET not in far.stdout
    missing = user("mcp", "get", "nobody")
    assert missing.returncode == 3
    assert "there is no MCP server 'nobody'" in missing.stderr


@requirement("hub.cli.failed")
def test_what_a_dead_server_wrote_to_stderr_is_shown_with_a_remedy(daemon: Daemon) -> None:
    define(dead={"command": [sys.executable, "-c", "import sys; sys.exit('no luck today')"]})
    done = user("mcp", "connect", "dead")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith('rookery: MCP server "dead" failed: ')
    assert "rookery mcp debug dead" in done.stderr
    assert "    no luck today" in user("mcp", "get", "dead").stdout
    told = user("mcp", "connect", "dead", "--json")
    assert json.loads(told.stderr.splitlines()[-1])["error"]["code"] == "upstream-failed"


@requirement("hub.cli.failed")
def test_a_server_that_wants_to_know_who_calls_is_told_of_with_how_to_sign_in(daemon: Daemon) -> None:
    code = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_POST(self): self.send_response(401); self.send_header('Content-Length', '0'); self.end_headers()\n"
        "    do_GET = do_POST\n"
        "    def log_message(self, *a): pass\n"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), H); print(s.server_port, flush=True); s.serve_forever()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        define(locked={"url": f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"})
        done = user("mcp", "connect", "locked")
        server.kill()
    assert done.returncode == 3
    assert 'MCP server "locked" requires a sign-in: ' in done.stderr
    assert "(sign in: rookery mcp login locked)" in done.stderr


def test_a_server_is_disconnected_and_connected(daemon: Daemon) -> None:
    define(showy={"command": SHOWY})
    assert user("mcp", "connect", "showy").stdout == "showy is connected (2025-11-25), 7 tools\n"
    assert user("mcp", "disconnect", "showy").stdout == "showy is stopped\n"
    assert json.loads(user("mcp", "connect", "showy", "--json").stdout)["status"] == "connected"


@requirement("hub.filter.switch")
def test_servers_and_tools_are_switched_for_a_workspace_or_for_all_and_stay_so(daemon: Daemon, app: Path) -> None:
    define(showy={"command": SHOWY}, other={"command": SHOWY})
    assert user("mcp", "disable", "showy", cwd=app).stdout == "disabled showy in this workspace\n"
    assert user("mcp", "disable", "other", "--tool", "f*", "--level", "app").stdout == "disabled other/f* everywhere\n"
    assert user("mcp", "enable", "other", "--tool", "fails", cwd=app).returncode == 0
    refused = user("mcp", "disable", "other", "--level", "project")
    assert refused.returncode == 2
    assert rookery("down").returncode == 0
    up()
    assert json.loads(user("mcp", "list", "--json", cwd=app).stdout)["showy"]["status"] == "disabled"
    assert json.loads(user("mcp", "list", "--json").stdout)["showy"]["status"] == "pending"
    met = user("mcp", "tools", "showy", cwd=app)
    assert met.returncode == 1
    assert 'MCP server "showy" is disabled (rookery mcp enable showy)' in met.stderr
    assert user("mcp", "call", "other", "fails").returncode == 1
    assert "the call was refused" in user("mcp", "call", "other", "fails").stderr
    assert "it went wrong" in user("mcp", "call", "other", "fails", cwd=app).stdout
    assert user("mcp", "enable", "showy", cwd=app).returncode == 0
    assert user("mcp", "tools", "showy", cwd=app).returncode == 0


@requirement("hub.filter.switch")
def test_a_server_is_switched_for_all_workspaces_of_a_project_or_for_one_client(daemon: Daemon, app: Path) -> None:
    define(showy={"command": SHOWY})
    beside = worktree(app, "beside")
    told = user("mcp", "disable", "showy", "--level", "project", cwd=app)
    assert told.stdout == "disabled showy in this project\n"
    assert json.loads(user("mcp", "list", "--json", cwd=beside).stdout)["showy"]["status"] == "disabled"
    assert json.loads(user("mcp", "list", "--json").stdout)["showy"]["status"] == "pending"
    assert user("mcp", "connect", "showy").returncode == 0
    mine, other = (open_session(daemon) for _ in range(2))
    # Where their ids can be seen, as the help says.
    clients = json.loads(user("status", "--json").stdout)["daemon"]["clients"]
    assert {one["session"] for one in clients} == {mine, other}
    shown = {"name": "t", "version": "1", "revision": "2025-11-25", "workspace": None, "path": "/mcp"}
    assert clients[0] == {"session": mine, **shown}
    assert "rookery status --json" in " ".join(user("mcp", "disable", "--help").stdout.split())
    words = ["--session", mine, "--tool", "f*"]
    assert user("mcp", "disable", "showy", *words).stdout == "disabled showy/f* in this session\n"
    assert "showy__fails" not in tools_of(daemon, mine) and "showy__kinds" in tools_of(daemon, mine)
    assert "showy__fails" in tools_of(daemon, other)
    assert user("mcp", "enable", "showy", *words).returncode == 0
    assert "showy__fails" in tools_of(daemon, mine)
    nobody = user("mcp", "disable", "showy", "--session", "nobody")
    assert nobody.returncode == 3 and "rookery status --json" in nobody.stderr
    assert user("mcp", "disable", "showy", "--session", mine, "--level", "app").returncode == 2


def open_session(daemon: Daemon) -> str:
    """Open a session of a client of the handshake era."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return speak(daemon, "initialize", about).headers["mcp-session-id"]


def tools_of(daemon: Daemon, session: str) -> set[str]:
    return {tool["name"] for tool in speak(daemon, "tools/list", {}, session).json()["result"]["tools"]}


def speak(daemon: Daemon, method: str, params: dict[str, Any], session: str | None = None) -> HttpResponse:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    return daemon.http("POST", "/mcp", body, headers=headers | ({"Mcp-Session-Id": session} if session else {}))


@requirement("hub.cli.failed")
def test_tools_are_listed_with_what_each_costs_and_servers_that_failed_are_named(daemon: Daemon) -> None:
    define(showy={"command": SHOWY, "tools": {"nasty": False}}, dead={"command": ["/nowhere/at-all"]})
    done = user("mcp", "tools")
    assert done.returncode == 0
    table = rows(done.stdout)
    tools: list[dict[str, Any]] = json.loads(user("mcp", "tools", "--json").stdout)
    shown = [tool for tool in tools if tool["shown"]]
    total = sum(tool["tokens"] for tool in shown)
    assert table[0] == [f"showy: 6 tools, about {total} tokens (1 hidden)"]
    assert table[2][1:] == ["kinds", f"~{shown[0]['tokens']}", "Tells what it got."]
    assert table[1][1:3] == ["nasty", "hidden"]
    size = len(json.dumps(shown[0]["definition"], separators=(",", ":")))
    assert shown[0]["tokens"] == pytest.approx(size / 4, rel=0.2)
    assert shown[0]["name"] == "showy__kinds"
    assert 'MCP server "dead" failed: cannot start dead' in done.stderr
    one = user("mcp", "tools", "dead")
    assert one.returncode == 1
    assert 'MCP server "dead" failed: ' in one.stderr


def test_several_servers_are_summed_up(daemon: Daemon) -> None:
    define(one={"command": SHOWY}, two={"command": SHOWY})
    *_, whole, _, costs = user("mcp", "tools").stdout.splitlines()
    assert whole.startswith("total: 14 tools, about ") and whole.removeprefix("total: 14 tools, ") in costs


def test_debug_shows_each_step_for_local_and_remote_servers(daemon: Daemon) -> None:
    with everything_at_a_port() as url:
        dies = {"command": [*SHOWY, "--dies"]}
        define(showy={"command": SHOWY, "environment": {"TOKEN": SECRET}}, far={"url": url}, dead=dies)
        near, far = user("mcp", "debug", "showy"), user("mcp", "debug", "far")
    assert (near.returncode, far.returncode) == (0, 0), near.stderr + far.stderr
    assert SECRET not in near.stdout
    for step in ("resolve", "open process", "server/discover", "initialize", "tools/list"):
        assert re.search(rf"^✓ +[\d.]+ ms +\+[\d.]+  {step}", near.stdout, re.MULTILINE), step
    assert "protocol 2025-11-25" in near.stdout
    assert "offers   7 tools" in near.stdout
    assert "open Streamable HTTP" in far.stdout
    dead = user("mcp", "debug", "dead")
    assert dead.returncode == 1
    assert "✗" in dead.stdout and "dying" in dead.stdout


def test_a_server_is_taken_out_of_its_file_and_the_one_behind_it_takes_its_place(daemon: Daemon, app: Path) -> None:
    mine = define(showy={"command": SHOWY}, keep={"command": SHOWY})
    theirs = define(app / ".rookery" / "mcp.json", showy={"command": ["false"]})
    done = user("mcp", "remove", "showy", cwd=app)
    assert done.stdout == f"removed showy ({theirs}:3)\n"
    assert json.loads(theirs.read_text()) == {"servers": {}}
    assert json.loads(user("mcp", "list", "--json", cwd=app).stdout)["showy"]["source"] == f"{mine}:3"
    assert json.loads(user("mcp", "remove", "showy", "--json").stdout)["removed"] == "showy"
    assert set(json.loads(mine.read_text())["servers"]) == {"keep"}
    assert user("mcp", "remove", "showy").returncode == 3


def test_status_shows_each_server_once(daemon: Daemon, app: Path) -> None:
    define(showy={"command": SHOWY}, far={"url": "http://127.0.0.1:9/mcp"})
    user("mcp", "list", cwd=app)
    user("mcp", "connect", "showy", cwd=app)
    shown = [row for row in rows(rookery("status").stdout) if row[0] in ("SERVER", "showy", "far")]
    assert shown == [
        ["SERVER", "STATUS", "TOOLS", "IN"],
        ["showy", "connected", "7", "app"],
        ["far", "pending", "0"],
    ]
    user("mcp", "connect", "showy")
    assert [row for row in rows(rookery("status").stdout) if row[0] == "showy"] == [["showy", "connected", "7", "app"]]


def test_the_commands_import_nothing_heavy(daemon: Daemon) -> None:
    define(showy={"command": SHOWY})
    user("mcp", "connect", "showy")
    for words in (["mcp", "list"], ["mcp", "tools", "showy"], ["mcp", "call", "showy", "kinds"]):
        assert not imported_by(*words) & (HEAVY - {"logging"}), words


@requirement("house.cli.exit")
def test_without_a_daemon_and_without_a_start_the_exit_code_is_5() -> None:
    for words in (["list"], ["tools"], ["call", "a", "b"], ["add", "a", "--", "true"], ["get", "a"]):
        assert rookery("mcp", words[0], "--no-start", *words[1:]).returncode == 5, words


def test_on_a_terminal_long_lines_are_cut_and_what_is_wrong_stands_out(daemon: Daemon) -> None:
    define(showy={"command": SHOWY}, dead={"command": ["/nowhere/at-all"]})
    user("mcp", "connect", "dead")
    with on_a_terminal("mcp", "list") as (_, ours):
        assert b"\x1b[31mdead" in wait_for_line(ours, b"was not found")
