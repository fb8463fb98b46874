"""The doctor checks the entries for Rookery in the files of clients."""

import json
import os
from pathlib import Path

from rookery.daemon.doctor.clients import ClientPorts, client_checks
from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.process import Daemon, rookery
from tests.support.requirements import requirement

INSTALLED = ("zed", "codex", "cursor", "vscode", "opencode")


def rows(port: int | None, **env: str) -> dict[str, tuple[str, str]]:
    return {one.id: (one.status, one.summary) for one in client_checks(ClientPorts(port, {}), {**os.environ, **env})}


@requirement("client.real.connected")
def test_what_was_installed_is_found_again_and_what_it_lacks_is_told(daemon: Daemon) -> None:
    for one in INSTALLED:
        assert rookery("client", "install", one, "--name", "rk").returncode == 0
    told = json.loads(rookery("doctor", "--json").stdout)["checks"]
    shown = {row["id"]: row["status"] for row in told if row["id"].startswith("client ")}
    assert shown == {
        "client cursor": "ok",
        "client vscode": "ok",
        "client codex": "warning",
        "client zed": "ok",
        "client opencode": "warning",
    }
    # What an entry for Rookery lacks is told there, and not of a server that Rookery would start.
    (servers,) = [row for row in told if row["id"] == "servers"]
    assert (servers["status"], servers["summary"]) == ("ok", "none defined")
    assert {status for status, _ in rows(daemon.port, ROOKERY_TOKEN="x").values()} == {"ok"}
    assert "needs ROOKERY_TOKEN" in rows(daemon.port)["client codex"][1]
    moved = rows(daemon.port + 1, ROOKERY_TOKEN="x")
    assert f"the daemon listens on port {daemon.port + 1}" in moved["client opencode"][1]


def test_a_bridge_that_is_gone_and_a_broken_file_are_told() -> None:
    zed = Path.home() / ".config" / "zed" / "settings.json"
    zed.parent.mkdir(parents=True)
    zed.write_text('{"context_servers": {"a": {"command": "/gone/rookery", "args": ["bridge"]}, "b": 1, "c": {}}}')
    gemini = Path.home() / ".gemini" / "settings.json"
    gemini.parent.mkdir()
    gemini.write_text('{\n"mcpServers": {"x": \n')
    found = rows(None)
    assert found["client zed"] == ("warning", f"a in {zed} runs /gone/rookery, which does not exist")
    assert found["client gemini"][0] == "warning"
    assert "line" in found["client gemini"][1]


def test_files_without_rookery_have_no_row() -> None:
    path = Path.home() / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"db": {"url": "http://127.0.0.1:9000/mcp"}, "x": {"command": "y"}}}')
    assert rows(1) == {}


def test_an_entry_for_a_workspace_is_right_while_that_is_open(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    made("fix", "--no-agent", cwd=checkout)
    done = rookery("client", "install", "cursor", "--workspace", "fix", "--transport", "http", cwd=checkout)
    assert done.returncode == 0, done.stderr

    def row() -> dict[str, str]:
        told = json.loads(rookery("doctor", "--json", env={"ROOKERY_TOKEN": "x"}).stdout)["checks"]
        return next(one for one in told if one["id"] == "client cursor")

    assert row()["status"] == "ok"
    ws("close", "fix", cwd=checkout)
    assert row()["status"] == "warning" and "that workspace is closed" in row()["summary"]
