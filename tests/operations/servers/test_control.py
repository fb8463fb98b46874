"""The routes for MCP servers, with the real daemon."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.daemon.events import Reader
from tests.support.daemon.jobs import as_child
from tests.support.daemon.process import Daemon, HttpResponse, rookery, unused_port, up
from tests.support.mcp.client import PROGRAMS
from tests.support.mcp.project_servers import make_checkout
from tests.support.requirements import requirement

ODD = [sys.executable, str(PROGRAMS / "odd_server.py")]
SECRET = "hush-hush-0123456789"
VERBS = ("connect", "disconnect", "enable", "disable", "debug")

# Sends one request over the socket from the process that runs it, and tells the status and the answer.
ASK = """
import json, sys
from rookery.daemon_client.connection import connect
link = connect()
status = link.request(sys.argv[1], sys.argv[2], sys.argv[3].encode())
print(json.dumps([status, json.loads(link.read())]))
"""


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


def ask(daemon: Daemon, method: str, path: str, body: Any = None) -> HttpResponse:
    data = json.dumps(body).encode() if body is not None else None
    return daemon.http(method, path, data, headers={"Content-Type": "application/json"} if data else None)


def speak(daemon: Daemon, method: str, **params: Any) -> Any:
    """One request to the app-wide endpoint."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    headers = {"Content-Type": "application/json", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    headers |= {"Mcp-Name": params["name"]} if "name" in params else {}
    return daemon.http("POST", "/mcp", json.dumps(body).encode(), headers=headers).json()["result"]


def add(daemon: Daemon, name: str, **config: Any) -> HttpResponse:
    return ask(daemon, "POST", "/api/mcp", {"name": name, "config": config})


def defined(**servers: Any) -> Path:
    """The user's own file, with these servers."""
    file = Path(os.environ["HOME"]) / ".config" / "rookery" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"servers": servers}))
    return file


def code_of(answer: HttpResponse) -> tuple[int, str]:
    return answer.status, answer.json()["error"]["code"]


@requirement("hub.api.add", "hub.api.list")
def test_adding_a_server_at_run_time_connects_it_and_returns_its_record(daemon: Daemon) -> None:
    assert ask(daemon, "GET", "/api/mcp").json() == {}
    added = add(daemon, "odd", command=ODD)
    assert added.status == 201
    assert added.json()["odd"]["status"] == "connected"
    assert added.json()["odd"]["tools"] == 3
    assert ask(daemon, "GET", "/api/mcp").json() == added.json()


@requirement("hub.api.add", "hub.status.failed")
def test_a_server_that_does_not_connect_is_in_the_record_with_its_error(daemon: Daemon) -> None:
    added = add(daemon, "dead", type="local", command=["/nowhere/at-all"])
    assert added.status == 201
    assert added.json()["dead"]["status"] == "failed"
    assert "/nowhere/at-all was not found" in added.json()["dead"]["error"]


@requirement("hub.api.add")
@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("x", {}, "neither a command nor a url"),
        ("x", {"url": "ftp://example.com/"}, "http:// or https://"),
        ("x", {"url": "http://"}, "http:// or https://"),
        ("x", {"command": []}, "a program"),
        ("a/b", {"command": ["true"]}, "control character"),
        ("", {"command": ["true"]}, "is empty"),
        ("a\x1b[2Jb", {"command": ["true"]}, "control character"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_added(
    daemon: Daemon, name: str, config: dict[str, Any], said: str
) -> None:
    refused = add(daemon, name, **config)
    assert code_of(refused) == (400, "invalid-input")
    assert said in refused.json()["error"]["message"]
    assert ask(daemon, "GET", "/api/mcp").json() == {}


@requirement("hub.api.list", "hub.status.directory", "hub.status.values")
def test_the_record_is_of_the_workspace_that_is_named_or_else_app_wide(daemon: Daemon, tmp_path: Path) -> None:
    app = make_checkout(tmp_path / "app")
    project = json.loads(rookery("project", "add", str(app), "--json").stdout)["id"]
    assert add(daemon, "everywhere", command=ODD).status == 201
    assert ask(daemon, "GET", "/api/mcp").json().keys() == {"everywhere"}
    for named in (str(app), f"{project}/@main"):
        found = ask(daemon, "GET", f"/api/mcp?workspace={quote(named, safe='')}").json()
        assert {name: one["status"] for name, one in found.items()} == {
            "tools": "needs_approval",
            "everywhere": "pending",
        }
        assert found["tools"]["workspace"] == str(app)
    assert code_of(ask(daemon, "GET", "/api/mcp?workspace=/nowhere")) == (404, "workspace-not-found")


@requirement("hub.api.list")
def test_the_path_mcp_itself_speaks_mcp_only(daemon: Daemon) -> None:
    listed = ask(daemon, "GET", "/mcp")
    assert listed.status in (400, 405, 406)
    assert "jsonrpc" in listed.json()
    assert ask(daemon, "POST", "/mcp", {"name": "odd", "config": {"command": ODD}}).status == 400
    assert ask(daemon, "GET", "/api/mcp").json() == {}


@requirement("hub.api.control")
def test_connect_disconnect_disable_and_enable_each_change_the_status_with_an_event(daemon: Daemon) -> None:
    assert ask(daemon, "GET", "/api/mcp").json() == {}
    news = Reader(daemon, "/api/events")
    defined(odd={"command": ODD})
    assert ask(daemon, "GET", "/api/mcp/odd").json()["status"] == "pending"
    for verb, status in (
        ("connect", "connected"),
        ("disconnect", "stopped"),
        ("connect", "connected"),
        ("disable", "disabled"),
        ("enable", "pending"),
    ):
        done = ask(daemon, "POST", f"/api/mcp/odd/{verb}")
        assert (done.status, done.json()["status"]) == (200, status), verb
    assert ask(daemon, "DELETE", "/api/mcp/odd").status == 200
    seen: list[str] = []
    while "removed" not in seen:
        event = news.next()
        assert event is not None
        if event["event"].startswith("mcp."):
            assert event["data"].get("server", "odd") == "odd"
            seen += [event["data"]["status"]] if event["event"] == "mcp.status" else []
            seen += ["removed"] if event["event"] == "mcp.removed" else []
    news.close()
    # Defined, then as it was told to.
    connected = ["pending", "connected"]
    assert seen == ["pending", *connected, "stopped", *connected, "disabled", "pending", "removed"]


@requirement("hub.api.control")
@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_name_is_not_found(daemon: Daemon, verb: str) -> None:
    assert code_of(ask(daemon, "POST", f"/api/mcp/nobody/{verb}")) == (404, "server-not-found")
    assert code_of(ask(daemon, "GET", "/api/mcp/nobody")) == (404, "server-not-found")
    assert code_of(ask(daemon, "DELETE", "/api/mcp/nobody")) == (404, "server-not-found")


@requirement("hub.api.control")
def test_what_was_added_at_run_time_is_removed_with_its_process(daemon: Daemon) -> None:
    add(daemon, "odd", command=ODD)
    assert ask(daemon, "DELETE", "/api/mcp/odd").json()["removed"] == "odd"
    assert ask(daemon, "GET", "/api/mcp").json() == {}
    assert code_of(ask(daemon, "DELETE", "/api/mcp/odd")) == (404, "server-not-found")


COMMENTED = """{
  // what I use
  "servers": {
    "keep": {"command": ["true"]}, // every day
    /* not sure */ "odd": {"command": ["false"]},
  },
}
"""


@requirement("hub.api.control", "hub.cli.add")
def test_an_entry_is_written_to_and_taken_from_its_file_with_comments_kept(daemon: Daemon) -> None:
    file = defined()
    file.write_text(COMMENTED)
    taken = ask(daemon, "PUT", "/api/mcp/odd", {"config": {"command": ODD}})
    assert code_of(taken) == (409, "server-exists")
    assert file.read_text() == COMMENTED
    put = ask(daemon, "PUT", "/api/mcp/odd", {"config": {"command": ODD}, "force": True})
    assert put.status == 201
    assert (put.json()["file"], put.json()["record"]["status"]) == (str(file), "pending")
    assert ask(daemon, "POST", "/api/mcp/odd/connect").json()["status"] == "connected"
    assert ask(daemon, "POST", "/api/mcp/odd/disable").json()["status"] == "disabled"
    assert ask(daemon, "DELETE", "/api/mcp/odd").json() == {"removed": "odd", "source": f"{file}:5"}
    assert ask(daemon, "GET", "/api/mcp").json().keys() == {"keep"}
    assert "// what I use" in file.read_text()
    assert "// every day" in file.read_text()
    again = ask(daemon, "PUT", "/api/mcp/odd", {"config": {"command": ODD}})
    assert again.json()["record"]["status"] == "pending", "the old switch is gone with the old entry"


@pytest.mark.parametrize(
    ("client", "file", "local", "remote"),
    [
        (
            "opencode",
            "opencode.json",
            {"type": "local", "command": ["run", "it"], "environment": {"A": "b"}},
            {"type": "remote", "url": "http://x.invalid/mcp", "headers": {"K": "v"}},
        ),
        (
            "claude",
            ".mcp.json",
            {"command": "run", "args": ["it"], "env": {"A": "b"}},
            {"type": "http", "url": "http://x.invalid/mcp", "headers": {"K": "v"}},
        ),
    ],
)
def test_an_entry_has_the_shape_of_the_program_that_the_file_is_for(
    daemon: Daemon, tmp_path: Path, client: str, file: str, local: Any, remote: Any
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "app")], check=True, timeout=30)
    app = (tmp_path / "app").resolve()
    assert rookery("project", "add", str(app)).returncode == 0
    where = f"?workspace={quote(str(app), safe='')}"
    entries = {
        "near": {"command": ["run", "it"], "environment": {"A": "b"}},
        "far": {"url": "http://x.invalid/mcp", "headers": {"K": "v"}},
    }
    for name, config in entries.items():
        body = {"config": config, "place": "project", "client": client}
        put = ask(daemon, "PUT", f"/api/mcp/{name}{where}", body)
        assert put.json()["file"] == str(app / file)
        assert put.json()["record"]["status"] == "needs_approval"
    found = json.loads((app / file).read_text())
    assert (found.get("mcp") or found.get("mcpServers")) == {"near": local, "far": remote}


def test_what_cannot_be_written_is_refused_and_the_file_not_touched(daemon: Daemon) -> None:
    file = defined()
    file.write_text("{ broken")
    refused = ask(daemon, "PUT", "/api/mcp/odd", {"config": {"command": ODD}})
    assert code_of(refused) == (400, "invalid-input")
    assert f"{file}:1" in refused.json()["error"]["message"]
    assert file.read_text() == "{ broken"
    for body in (
        {"config": {"command": ODD}, "file": "mcp.json"},
        {"config": {"command": ODD}, "place": "user", "client": "claude"},
        {"config": {"command": ODD}, "place": "project"},
        {"config": {"url": "nowhere"}, "file": str(file.with_name("other.json"))},
    ):
        assert code_of(ask(daemon, "PUT", "/api/mcp/odd", body)) == (400, "invalid-input"), body
    assert not file.with_name("other.json").exists()


@requirement("hub.filter.switch")
def test_switches_of_servers_and_tools_survive_a_restart(daemon: Daemon) -> None:
    defined(odd={"command": ODD}, other={"command": ODD})
    assert ask(daemon, "POST", "/api/mcp/odd/disable", {}).json()["status"] == "disabled"
    assert ask(daemon, "POST", "/api/mcp/other/disable", {"tool": "[ab]"}).status == 200
    assert ask(daemon, "POST", "/api/mcp/other/disable", {"tool": "a", "level": "app"}).status == 200
    assert code_of(ask(daemon, "POST", "/api/mcp/other/disable", {"level": "workspace"})) == (400, "invalid-input")
    assert rookery("down").returncode == 0
    again = up()
    found = ask(again, "GET", "/api/mcp").json()
    assert found["odd"]["status"] == "disabled"
    assert found["other"]["status"] == "pending"
    names = {tool["name"] for tool in speak(again, "tools/list")["tools"]}
    assert {"other__b", "other__c"} <= names
    assert not {"other__a", "odd__a"} & names


def test_secrets_are_hidden_in_definitions_and_in_the_servers_own_output(daemon: Daemon) -> None:
    code = "import os, sys; sys.exit('I got ' + os.environ['MY_TOKEN'])"
    defined(
        teller={
            "command": [sys.executable, "-c", code, "--api-key", SECRET, f"--token={SECRET}", "{env:HOME}"],
            "environment": {"MY_TOKEN": SECRET, "WHERE": "{env:HOME}"},
        },
        far={"url": f"http://me:{SECRET}@127.0.0.1:{unused_port()}/mcp?key={SECRET}", "headers": {"X-Auth": SECRET}},
    )
    ask(daemon, "POST", "/api/mcp/teller/connect")
    for path in ("/api/mcp/teller", "/api/mcp/far", "/api/mcp", "/api/status"):
        assert SECRET not in ask(daemon, "GET", path).body.decode(), path
    teller = ask(daemon, "GET", "/api/mcp/teller").json()
    assert set(teller["stderr"]) == {"I got [secret]"}
    written = teller["definition"]["written"]
    assert written["environment"] == {"MY_TOKEN": "(hidden)", "WHERE": "{env:HOME}"}
    assert written["command"][3:] == ["--api-key", "(hidden)", "--token=(hidden)", "{env:HOME}"]
    far = ask(daemon, "GET", "/api/mcp/far").json()["definition"]["written"]
    assert far["headers"] == {"X-Auth": "(hidden)"}
    assert far["url"].startswith("http://(hidden)@127.0.0.1:")
    assert far["url"].endswith("/mcp?key=(hidden)")


@requirement("hub.cli.verbs")
def test_debug_tries_a_second_process_of_a_server_and_lists_steps_without_secrets(daemon: Daemon) -> None:
    showy = [sys.executable, str(PROGRAMS / "showy_server.py")]
    defined(odd={"command": showy, "environment": {"MY_TOKEN": SECRET, "HOUSE": "{env:HOME}"}, "unused": 1})
    assert ask(daemon, "POST", "/api/mcp/odd/connect").json()["status"] == "connected"
    done = ask(daemon, "POST", "/api/mcp/odd/debug")
    found = done.json()
    assert SECRET not in done.body.decode()
    assert [step["what"] for step in found["steps"]] == [
        "resolve",
        "open process",
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "close process",
    ]
    assert "MY_TOKEN, HOUSE" in found["steps"][0]["told"]
    assert found["steps"][2]["told"] == "refused: no such method (-32601)"
    assert (found["connected"], found["era"], found["counts"]) == (True, "2025-11-25", {"tools": 7})
    assert found["info"]["version"] == "1"
    assert all(step["took_ms"] >= 0 for step in found["steps"])
    assert '"unused" is not used' in found["problems"][0]
    assert ask(daemon, "GET", "/api/mcp/odd").json()["status"] == "connected"


@pytest.mark.parametrize(
    ("config", "failing", "said"),
    [
        ({"command": ["/nowhere/at-all"]}, "open process", "was not found"),
        ({"command": [*ODD, "--exit", "3", f"no luck with {SECRET}"]}, "initialize", "it exited with code 3"),
        ({"command": [*ODD, "--list", "silent"], "timeouts": {"catalog": 0.2}}, "tools/list", "cancelled"),
        ({"url": "http://127.0.0.1:9/mcp"}, "server/discover", "ConnectionRefusedError"),
    ],
    ids=["no program", "ends", "no list", "no host"],
)
def test_debug_names_the_step_that_failed_and_why(
    daemon: Daemon, config: dict[str, Any], failing: str, said: str
) -> None:
    defined(odd=config | ({"environment": {"TOKEN": SECRET}} if "command" in config else {}))
    done = ask(daemon, "POST", "/api/mcp/odd/debug")
    assert SECRET not in done.body.decode()
    found = done.json()
    assert not found["connected"]
    assert found["error"]
    failed = [step for step in found["steps"] if not step["ok"] and step["what"] == failing]
    assert failed
    assert said in failed[0]["told"]


def test_debug_starts_nothing_that_waits_for_approval(daemon: Daemon, tmp_path: Path) -> None:
    app = make_checkout(tmp_path / "app")
    assert rookery("project", "add", str(app)).returncode == 0
    refused = ask(daemon, "POST", f"/api/mcp/tools/debug?workspace={quote(str(app), safe='')}")
    assert code_of(refused) == (409, "needs-approval")
    assert not (app / "started").exists()


def test_a_rule_that_makes_no_sense_is_told_with_its_file_and_line(daemon: Daemon) -> None:
    file = defined()
    file.write_text('{\n  "servers": {},\n  "permission": {"github__*": "alow"}\n}\n')
    (found,) = ask(daemon, "GET", "/api/problems").json()
    assert (found["file"], found["line"]) == (str(file), 3)
    assert "'github__*' cannot be 'alow'; it is denied" in found["message"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/mcp", {"name": "mine", "config": {"command": ["true"]}}),
        ("PUT", "/api/mcp/mine", {"config": {"command": ["true"]}}),
        ("POST", "/api/mcp/odd/enable", {}),
        ("DELETE", "/api/mcp/odd", {}),
        ("POST", "/api/mcp/odd/disconnect", {}),
        ("POST", "/api/mcp/odd/debug", {}),
    ],
)
def test_c23_what_rookery_started_cannot_give_itself_other_servers_over_the_socket(
    daemon: Daemon, method: str, path: str, body: Any
) -> None:
    defined(odd={"command": ODD, "enabled": False})
    argv = [sys.executable, "-c", ASK, method, path, json.dumps(body)]
    env = os.environ | as_child(daemon)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    status, told = json.loads(done.stdout)
    assert (status, told["error"]["code"]) == (403, "forbidden")
    assert "started by Rookery" in told["error"]["message"]
    found = ask(daemon, "GET", "/api/mcp").json()
    assert {name: one["status"] for name, one in found.items()} == {"odd": "disabled"}


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/mcp"), ("PUT", "/api/mcp/odd"), ("DELETE", "/api/mcp/odd")]
)
def test_s8_no_route_that_changes_servers_works_without_the_owners_token(
    daemon: Daemon, method: str, path: str
) -> None:
    body = json.dumps({"name": "mine", "config": {"command": ["true"]}}).encode()
    kind = {"Content-Type": "application/json"}
    assert daemon.http(method, path, body, token=None, headers=kind).status == 401
    assert daemon.http(method, path, body, token="rk_guess", headers=kind).status == 401


@requirement("hub.servers.tool")
def test_a_client_can_ask_which_servers_there_are(daemon: Daemon) -> None:
    opencode = Path(os.environ["HOME"]) / ".config" / "opencode" / "opencode.json"
    opencode.parent.mkdir(parents=True)
    opencode.write_text(json.dumps({"mcp": {"odd": {"type": "local", "command": ["false"]}}}))
    mine = defined(odd={"command": ODD}, dead={"command": ["/nowhere/at-all"]})
    assert ask(daemon, "POST", "/api/mcp/odd/connect").status == 200
    assert ask(daemon, "POST", "/api/mcp/dead/connect").status == 200
    found = speak(daemon, "tools/call", name="hub_list_servers", arguments={})["structuredContent"]["servers"]
    assert found == [
        {
            "name": "odd",
            "status": "connected",
            "error": None,
            "tools": 3,
            "source": f"{mine}:1",
            "shadowed": False,
            "scope": "workspace",
            "era": "2025-11-25",
        },
        {
            "name": "dead",
            "status": "failed",
            "error": "cannot start dead: /nowhere/at-all was not found",
            "tools": 0,
            "source": f"{mine}:1",
            "shadowed": False,
            "scope": "workspace",
            "era": None,
        },
        {
            "name": "odd",
            "status": "disabled",
            "error": None,
            "tools": 0,
            "source": f"{opencode}:1",
            "shadowed": True,
            "scope": "workspace",
            "era": None,
        },
    ]


def test_problems_are_told_with_file_and_line(daemon: Daemon) -> None:
    file = defined()
    file.write_text('{"servers": {\n  "x": {"comand": ["true"]}\n}}')
    told = ask(daemon, "GET", "/api/problems").json()
    assert [(one["file"], one["line"], one["server"]) for one in told][:1] == [(str(file), 2, "x")]
