"""`rookery client`, as its user runs it."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from rookery.clients.known import CLIENTS
from tests.support.house import ROOKERY, House, rookery
from tests.support.requirements import requirement
from tests.support.workspaces import make_repository
from tests.support.ws import app, made


@requirement("client.print.http")
def test_what_is_printed_is_the_config_alone_and_the_rest_is_narration(house: House) -> None:
    done = rookery("client", "print", "claude-code")
    assert done.returncode == 0
    entry = {"type": "http", "url": f"http://127.0.0.1:{house.port}/mcp"}
    entry |= {"headers": {"Authorization": "Bearer ${ROOKERY_TOKEN}"}}
    assert json.loads(done.stdout) == {"mcpServers": {"rookery": entry}}
    assert f"this goes into {Path.home() / '.claude.json'}" in done.stderr
    # What it says to do works.
    (line,) = [line for line in done.stderr.splitlines() if "export" in line]
    told = subprocess.run(
        ["sh", "-c", f"{line.partition(': ')[2]} && printenv ROOKERY_TOKEN"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == house.token


@requirement("client.print.nine")
@pytest.mark.parametrize("scope", ["user", "project"])
def test_no_secret_is_printed_or_written_for_any_client(house: House, scope: str) -> None:
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
    assert house.token not in seen


@requirement("client.print.options")
def test_a_workspace_is_aimed_at_over_both_transports(house: House) -> None:
    checkout = app(Path.home() / "src" / "app")
    made("fix/login", "--no-agent", cwd=checkout)
    shown = rookery("client", "print", "cursor", "--workspace", "fix/login", cwd=checkout)
    url = json.loads(shown.stdout)["mcpServers"]["rookery"]["url"]
    path = url.removeprefix(f"http://127.0.0.1:{house.port}")
    assert path.startswith("/w/app-") and path.endswith("/fix%2Flogin/mcp")
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    assert house.http("POST", path, body, headers=headers).status == 200
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


@requirement("client.install.edit")
def test_install_with_print_shows_file_and_snippet_and_changes_nothing(house: House) -> None:
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
    assert f"as it was before: {path}.before-rookery" in done.stderr
    assert path.read_text().startswith('// mine\n{"theme": "dark", "context_servers"')
    again = rookery("client", "install", "zed", "--no-start")
    assert again.stdout == f"rookery is there already: {path}\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("print nope", 2, "claude-desktop"),
        ("print zed --transport http", 2, "use --transport bridge"),
        ("print zed --name 'a b'", 2, "choose another --name"),
        ("print cursor --no-start", 5, "no daemon is running"),
        ("install vscode --scope project", 3, "in no git repository"),
    ],
)
def test_what_cannot_be_done_is_told_with_what_to_do(words: str, code: int, told: str) -> None:
    done = rookery("client", *shlex.split(words))
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
