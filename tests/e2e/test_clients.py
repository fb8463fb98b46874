"""Real clients connect with the configuration that Rookery wrote for them."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.suite import NODE
from tests.support.daemon.process import SECONDS, Daemon, rookery
from tests.support.npm.packages import fetched
from tests.support.opencode.home import OpenCodeHome
from tests.support.opencode.process import installed
from tests.support.requirements import requirement

CLAUDE_CODE = {"@anthropic-ai/claude-code": "2.1.325"}
CODEX = {"@openai/codex": "0.166.0"}
INSPECTOR = {"@modelcontextprotocol/inspector": "2.12.0"}
# Bringing it for the first time takes minutes.
BRINGING = 400

# It asks for nothing but what it was told to connect to.
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}


def run(command: list[str], env: Mapping[str, str], cwd: Path) -> str:
    done = subprocess.run(
        command,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def install(client: str, transport: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = rookery("client", "install", client, "--transport", transport, "--json", env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@requirement("client.real.connected")
@pytest.mark.parametrize("transport", ["http", "bridge"])
def test_opencode_shows_rookery_as_connected(daemon: Daemon, tmp_path: Path, transport: str) -> None:
    home = OpenCodeHome.make(tmp_path / "opencode")
    install("opencode", transport, {"XDG_CONFIG_HOME": str(home.config.parent)})
    found = installed()
    env = {**home.environment(), "PATH": found.search_path, "ROOKERY_TOKEN": daemon.token}
    shown = run([str(found.opencode), "mcp", "list"], env, tmp_path)
    assert "rookery" in shown
    assert "connected" in shown and "failed" not in shown
    del env["ROOKERY_TOKEN"]
    without = run([str(found.opencode), "mcp", "list"], env, tmp_path)
    assert ("failed" in without or "needs auth" in without) == (transport == "http")


def with_node() -> dict[str, str]:
    return {"HOME": os.environ["HOME"], "PATH": os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]])}


@requirement("client.real.connected")
@pytest.mark.timeout(BRINGING)
@pytest.mark.parametrize("transport", ["http", "bridge"])
def test_claude_code_shows_rookery_as_connected(daemon: Daemon, tmp_path: Path, transport: str) -> None:
    install("claude-code", transport)
    claude = fetched("claude-code", CLAUDE_CODE) / ".bin" / "claude"
    env = {**with_node(), "ROOKERY_TOKEN": daemon.token, **QUIET}
    shown = run([str(claude), "mcp", "list"], env, tmp_path)
    (line,) = [line for line in shown.splitlines() if line.startswith("rookery:")]
    assert line.endswith("Connected")
    # It keeps a great deal more in that file than servers, and what it has put there stays.
    before = json.loads((Path.home() / ".claude.json").read_text())
    install("claude-code", "bridge" if transport == "http" else "http")
    after = json.loads((Path.home() / ".claude.json").read_text())
    assert before.keys() == after.keys() and len(before) > 1
    assert {key for key in before if before[key] != after[key]} == {"mcpServers"}


@requirement("client.real.connected")
@pytest.mark.timeout(BRINGING)
def test_codex_lists_rookery_over_both_transports(daemon: Daemon, tmp_path: Path) -> None:
    codex = [str(fetched("codex", CODEX) / ".bin" / "codex"), "mcp", "list", "--json"]
    ways: dict[str, dict[str, Any]] = {}
    for transport in ("http", "bridge"):
        told = install("codex", transport)
        shown = run(codex, with_node(), tmp_path)
        (found,) = json.loads(shown[shown.index("[\n") : shown.rindex("]") + 1])
        assert (found["name"], found["enabled"]) == ("rookery", True)
        ways[transport] = found["transport"]
        assert told["entry"].items() <= {**found["transport"], "tool_timeout_sec": found["tool_timeout_sec"]}.items()
    assert ways["http"]["bearer_token_env_var"] == "ROOKERY_TOKEN"
    assert ways["bridge"]["type"] == "stdio"


@requirement("client.real.connected")
@pytest.mark.timeout(BRINGING)
@pytest.mark.parametrize("transport", ["http", "bridge"])
def test_the_inspector_lists_and_calls_tools(daemon: Daemon, tmp_path: Path, transport: str) -> None:
    config = json.loads(rookery("client", "print", "cursor", "--transport", transport).stdout)
    entry = config["mcpServers"]["rookery"]
    if transport == "http":
        # It expands nothing, so it is given what Cursor would make of the placeholder.
        entry["headers"] = {"Authorization": f"Bearer {daemon.token}"}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(config))
    inspector = [str(fetched("inspector", INSPECTOR) / ".bin" / "mcp-inspector"), "--cli"]
    inspector += ["--config", str(file), "--server", "rookery", "--method"]
    env = {**with_node(), "MCP_INSPECTOR_SECRET_STORE": "memory"}
    assert "workspace_get_status" in run([*inspector, "tools/list"], env, tmp_path)
    called = run([*inspector, "tools/call", "--tool-name", "project_list"], env, tmp_path)
    assert '"result": []' in called
