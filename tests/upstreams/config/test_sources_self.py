"""A client's entry for Rookery does not make Rookery one of its own servers."""

import json
import os
from pathlib import Path

import pytest

from tests.support.daemon.process import Daemon, rookery


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_an_entry_that_leads_back_to_rookery_is_left_out_with_a_note(daemon: Daemon, host: str) -> None:
    file = Path(os.environ["HOME"]) / ".config" / "opencode" / "opencode.json"
    file.parent.mkdir(parents=True)
    port = daemon.port
    entries = {
        "rookery": {"type": "remote", "url": f"http://{host}:{port}/mcp"},
        "one": {"type": "remote", "url": f"http://{host}:{port}/w/app-1/@main/s/x/mcp"},
        "other": {"type": "remote", "url": f"http://{host}:9/mcp"},
        "away": {"type": "remote", "url": f"http://example.invalid:{port}/mcp"},
    }
    file.write_text(json.dumps({"mcp": entries}))
    assert daemon.http("GET", "/api/mcp").json().keys() == {"other", "away"}
    told = [one["message"] for one in daemon.http("GET", "/api/problems").json() if one["note"]]
    assert told == [f'the server "{name}" is Rookery itself and is left out' for name in ("rookery", "one")]


def test_the_bridge_is_rookery_itself_too(daemon: Daemon) -> None:
    file = Path(os.environ["HOME"]) / ".config" / "opencode" / "opencode.json"
    file.parent.mkdir(parents=True)
    done = rookery("client", "install", "opencode", "--transport", "bridge")
    assert done.returncode == 0, done.stderr
    entries = json.loads(file.read_text())
    entries["mcp"]["other"] = {"type": "local", "command": ["/opt/rookery", "tools"], "enabled": False}
    file.write_text(json.dumps(entries))
    assert daemon.http("GET", "/api/mcp").json().keys() == {"other"}
