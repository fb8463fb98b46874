"""`rookery mcp check`, as a user and a build run it."""

import json
import sys

from tests.cli.mcp.test_group import define
from tests.support.cli.user import user
from tests.support.daemon.process import Daemon
from tests.support.mcp.client import PROGRAMS
from tests.support.requirements import requirement

SHOWY = [sys.executable, str(PROGRAMS / "showy_server.py")]


@requirement("hub.find.tool")
def test_servers_are_judged_for_people_and_for_builds_and_the_exit_code_tells(daemon: Daemon) -> None:
    assert "no servers" in user("mcp", "check").stdout
    define(good={"command": SHOWY}, dead={"command": ["/nowhere/at-all"]})
    done = user("mcp", "check")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "ERA", "TOOLS", "TOKENS", "MS"]
    assert lines[1].split()[:4] == ["good", "reachable", "2025-11-25", "7"]
    assert any(line.startswith("✗ dead: cannot start dead") and "[unreachable]" in line for line in lines)
    assert "1 error," in lines[-1] and "in search mode (?mode=search)" in lines[-1]
    done = user("mcp", "check", "good", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], [one["name"] for one in found["servers"]]) == (0, True, ["good"])
    assert user("mcp", "check", "nobody").returncode == 3
    # The same two numbers stand under the list of tools, with each server's cost before them.
    told = user("mcp", "tools").stdout
    assert f"{found['list_tokens']:,} tokens in list mode, {found['search_tokens']:,} in search mode" in told
    assert "good: 7 tools, about" in told
