"""The real Gemini CLI connects with the configuration that Rookery wrote for it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conformance.suite import NODE
from tests.support.cli.workspaces import app, made
from tests.support.daemon.endpoints import token_of
from tests.support.daemon.process import SECONDS, Daemon, rookery
from tests.support.npm.packages import fetched
from tests.support.requirements import requirement

GEMINI = {"@google/gemini-cli": "0.61.0"}
# Bringing it for the first time takes minutes.
BRINGING = 400


def listed(folder: Path, token: str | None) -> str:
    """The line about Rookery of `gemini mcp list`, which it prints on stderr."""
    gemini = str(fetched("gemini", GEMINI) / ".bin" / "gemini")
    env = {"HOME": os.environ["HOME"], "PATH": os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]])}
    env |= {"ROOKERY_TOKEN": token} if token is not None else {}
    done = subprocess.run(
        [gemini, "mcp", "list"],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    (line,) = [line for line in told.splitlines() if " rookery: " in line]
    return line


@requirement("client.real.connected")
@pytest.mark.timeout(BRINGING)
@pytest.mark.parametrize("transport", ["http", "bridge"])
def test_gemini_cli_shows_rookery_as_connected_in_a_folder_that_it_trusts(daemon: Daemon, transport: str) -> None:
    checkout = app(Path.home() / "app")
    made("fix", "--no-agent", cwd=checkout)
    words = ("--workspace", "fix", "--transport", transport)
    done = rookery("client", "install", "gemini", *words, cwd=checkout)
    assert done.returncode == 0, done.stderr
    assert "trusts" in done.stderr
    token = token_of(daemon, "fix")
    assert listed(checkout, token).endswith("Disabled")
    (Path.home() / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(checkout): "TRUST_FOLDER"}))
    assert listed(checkout, token).endswith("- Connected")
    assert listed(checkout, None).endswith("- Disconnected" if transport == "http" else "- Connected")
