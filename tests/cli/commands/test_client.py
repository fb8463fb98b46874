"""`rookery client`, as its user runs it."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rookery.clients.registry import CLIENTS
from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.endpoints import JSON, ask, bearer, mcp, token_of
from tests.support.daemon.process import ROOKERY, Daemon, rookery
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository


@requirement("client.print.http")
def test_what_is_printed_is_the_config_alone_and_the_rest_is_narration(daemon: Daemon) -> None:
    done = rookery("client", "print", "claude-code")
    assert done.returncode == 0
    entry = {"type": "http", "url": f"http://127.0.0.1:{daemon.port}/mcp"}
    entry |= {"headers": {"Authorization": "Bearer ${ROOKERY_TOKEN}"}}
    assert json.loads(done.stdout) == {"mcpServers": {"rookery": entry}}
    assert f"this goes into {Path.home() / '.claude.json'}" in done.stderr
    assert exported(done.stderr) == daemon.token


def exported(narration: str) -> str:
    """What is in ROOKERY_TOKEN for whoever does what was said."""
    (line,) = [line for line in narration.splitlines() if "export" in line]
    said = [f"PATH={ROOKERY.parent}:$PATH", line.partition(": ")[2], "printenv ROOKERY_TOKEN"]
    return subprocess.run(["sh", "-c", " && ".join(said)], capture_output=True, text=True, check=True).stdout.strip()


@requirement("client.print.nine")
@pytest.mark.parametrize("scope", ["user", "project"])
def test_no_secret_is_printed_or_written_for_any_client(daemon: Daemon, scope: str) -> None:
    checkout = make_repository(Path.home() / "src" / "app")
    seen = ""
    for id_, one in CLIENTS.items():
        for transport in one.transports:
            words = (id_, "--transport", transport, "--scope", scope, "--json")
            done = rookery("client", "install", *words, cwd=checkout)
            if scope == "project" and not one.project_files:
                assert done.returncode == 2
                assert "has no file for a single project" in done.stderr
                continue
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert (told["client"], told["transport"]) == (id_, transport)
            assert told["change"] in ("made", "changed")
            assert Path(told["file"]).is_relative_to(checkout if scope == "project" else Path.home())
            seen += done.stdout + done.stderr + Path(told["file"]).read_text()
    assert len(seen) > 1000
    assert daemon.token not in seen


@requirement("client.print.options")
def test_a_workspace_is_aimed_at_over_both_transports(daemon: Daemon) -> None:
    checkout = app(Path.home() / "src" / "app")
    made("fix/login", "--no-agent", cwd=checkout)
    shown = rookery("client", "print", "cursor", "--workspace", "fix/login", "--transport", "http", cwd=checkout)
    port = mcp("fix/login", checkout)["port"]
    assert json.loads(shown.stdout)["mcpServers"]["rookery"]["url"] == f"http://127.0.0.1:{port}/mcp"
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    # What it says to do gives a token that opens this workspace, and nothing else.
    token = exported(shown.stderr)
    assert token not in (daemon.token, "") and token not in shown.stdout + shown.stderr
    assert ask(port, "POST", "/mcp", body, **JSON, **bearer(token)).status == 200
    assert daemon.http("GET", "/api/status", token=token).status == 403
    shown = rookery("client", "print", "cursor", "--workspace", "fix/login", "--transport", "bridge", cwd=checkout)
    entry = json.loads(shown.stdout)["mcpServers"]["rookery"]
    assert entry["command"] == str(ROOKERY)
    said = subprocess.run(
        [entry["command"], *entry["args"]],
        input=body + b"\n",
        env={"PATH": "/usr/bin:/bin", **entry["env"]},
        cwd="/",
        capture_output=True,
        check=True,
    )
    assert json.loads(said.stdout)["result"]["serverInfo"]["name"] == "rookery"


@requirement("hub.find.tool")
def test_a_client_may_be_given_the_search_for_tools_instead_of_their_list(daemon: Daemon) -> None:
    shown = rookery("client", "print", "cursor", "--mode", "search", "--transport", "http")
    url: str = json.loads(shown.stdout)["mcpServers"]["rookery"]["url"]
    assert url == f"http://127.0.0.1:{daemon.port}/mcp?mode=search"
    meta = "io.modelcontextprotocol"
    about: dict[str, Any] = {f"{meta}/protocolVersion": "2026-07-28", f"{meta}/clientCapabilities": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": about}}).encode()
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", **JSON, **bearer(daemon.token)}
    answer = ask(daemon.port, "POST", "/mcp?mode=search", body, **headers)
    shown = rookery("client", "print", "cursor", "--mode", "search", "--transport", "bridge")
    entry = json.loads(shown.stdout)["mcpServers"]["rookery"]
    said = subprocess.run([entry["command"], *entry["args"]], input=body + b"\n", capture_output=True, check=True)
    for told in (answer.body, said.stdout):
        names = [one["name"] for one in json.loads(told)["result"]["tools"]]
        assert names == ["hub_find_tool", "hub_call_tool"]


@requirement("client.print.options")
def test_a_workspace_without_a_server_is_not_aimed_at_over_http(daemon: Daemon) -> None:
    checkout = app(Path.home() / "src" / "app")
    made("fix", "--no-agent", cwd=checkout)
    ws("close", "fix", cwd=checkout)
    done = rookery("client", "install", "cursor", "--workspace", "fix", "--transport", "http", cwd=checkout)
    assert (done.returncode, done.stdout) == (2, "")
    assert "fix is closed" in done.stderr and "rookery ws open app-" in done.stderr
    assert not (Path.home() / ".cursor").exists()
    # Over the bridge, which is the default of a program that is started from a desktop.
    bridged = rookery("client", "install", "cursor", "--workspace", "fix", cwd=checkout)
    assert bridged.returncode == 0, bridged.stderr


def test_the_token_of_a_workspace_is_printed_where_it_is_asked_for(daemon: Daemon) -> None:
    checkout = app(Path.home() / "src" / "app")
    path = made("fix", "--no-agent", cwd=checkout)
    token = ws("token", cwd=path).strip()
    assert json.loads(ws("token", "fix", "--json", cwd=checkout)) == {"token": token}
    assert token == token_of(daemon, "fix")
    assert token not in ws("show", "--json", cwd=path) + str(daemon.log())


@requirement("client.install.edit")
def test_install_with_print_shows_file_and_snippet_and_changes_nothing(daemon: Daemon) -> None:
    done = rookery("client", "install", "codex", "--print")
    path, _, text = done.stdout.partition("\n\n")
    assert path == str(Path.home() / ".codex" / "config.toml")
    assert text.startswith("[mcp_servers.rookery]\n")
    assert not Path(path).parent.exists()


@requirement("client.install.edit")
def test_install_tells_what_it_did_and_where_the_old_file_is() -> None:
    path = Path.home() / ".config" / "zed" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('// mine\n{"theme": "dark"}\n')
    done = rookery("client", "install", "zed", "--no-start")
    assert done.stdout == f"rookery is written: {path}\n"
    assert f"backup of the previous file: {path}.before-rookery" in done.stderr
    assert path.read_text().startswith('// mine\n{"theme": "dark", "context_servers"')
    again = rookery("client", "install", "zed", "--no-start")
    assert again.stdout == f"rookery is already present: {path}\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("print nope", 2, "claude-desktop"),
        ("print zed --transport http", 2, "use --transport bridge"),
        ("print zed --name 'a b'", 2, "choose another --name"),
        ("print codex --no-start", 5, "no daemon is running"),
        ("install vscode --scope project", 3, "in no git repository"),
    ],
)
def test_what_cannot_be_done_is_told_with_what_to_do(words: str, code: int, told: str) -> None:
    done = rookery("client", *shlex.split(words))
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr


@requirement("client.install.edit")
@pytest.mark.parametrize("there", [True, False])
def test_a_file_of_a_project_that_leads_out_of_it_is_neither_written_nor_copied(tmp_path: Path, there: bool) -> None:
    checkout = make_repository(Path.home() / "src" / "app")
    mine = tmp_path / "mine.json"
    if there:
        mine.write_text('{"secret": "mine"}')
    (checkout / ".mcp.json").symlink_to(mine)
    done = rookery("client", "install", "claude-code", "--scope", "project", "--transport", "bridge", cwd=checkout)
    assert done.returncode != 0
    assert "outside the project" in done.stderr
    assert (mine.read_text() == '{"secret": "mine"}') if there else not mine.exists()
    assert [one.name for one in checkout.iterdir() if "mcp.json" in one.name] == [".mcp.json"]
