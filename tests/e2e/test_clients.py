"""Real clients, with the config that Rookery wrote for them, show it as connected."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.suite import NODE
from tests.support.house import SECONDS, House, rookery
from tests.support.npm import fetched
from tests.support.opencode import installed
from tests.support.opencode_home import OpenCodeHome
from tests.support.requirements import requirement

CLAUDE_CODE = {"@anthropic-ai/claude-code": "2.1.325"}
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
def test_opencode_shows_rookery_as_connected(house: House, tmp_path: Path, transport: str) -> None:
    home = OpenCodeHome.make(tmp_path / "opencode")
    install("opencode", transport, {"XDG_CONFIG_HOME": str(home.config.parent)})
    found = installed()
    env = {**home.environment(), "PATH": found.search_path, "ROOKERY_TOKEN": house.token}
    shown = run([str(found.opencode), "mcp", "list"], env, tmp_path)
    assert "rookery" in shown
    assert "connected" in shown and "failed" not in shown
    del env["ROOKERY_TOKEN"]
    without = run([str(found.opencode), "mcp", "list"], env, tmp_path)
    assert ("failed" in without or "needs auth" in without) == (transport == "http")


@requirement("client.real.connected")
@pytest.mark.parametrize("transport", ["http", "bridge"])
def test_claude_code_shows_rookery_as_connected(house: House, tmp_path: Path, transport: str) -> None:
    install("claude-code", transport)
    claude = fetched("claude-code", CLAUDE_CODE) / ".bin" / "claude"
    search_path = os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]])
    env = {"HOME": os.environ["HOME"], "PATH": search_path, "ROOKERY_TOKEN": house.token, **QUIET}
    shown = run([str(claude), "mcp", "list"], env, tmp_path)
    (line,) = [line for line in shown.splitlines() if line.startswith("rookery:")]
    assert line.endswith("Connected")
    # It keeps a great deal more in that file than servers, and what it has put there stays.
    before = json.loads((Path.home() / ".claude.json").read_text())
    install("claude-code", "bridge" if transport == "http" else "http")
    after = json.loads((Path.home() / ".claude.json").read_text())
    assert before.keys() == after.keys() and len(before) > 1
    assert {key for key in before if before[key] != after[key]} == {"mcpServers"}
