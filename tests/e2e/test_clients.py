"""Real clients, with the config that Rookery wrote for them, show it as connected."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.house import SECONDS, House, rookery
from tests.support.opencode import installed
from tests.support.opencode_home import OpenCodeHome
from tests.support.requirements import requirement

INSPECTOR_VERSION = "1.0.0"


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
