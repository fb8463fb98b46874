"""`rookery plugin` and the approval of plugins with a real daemon, run by a person and by an agent."""

import json
import os
from pathlib import Path
from typing import Any

from rookery.system.process.table import MARKER
from tests.support.cli.user import at_a_terminal
from tests.support.daemon.jobs import as_child
from tests.support.daemon.process import Daemon, rookery
from tests.support.plugins.project import in_plugins, ran, source
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

ADD = "@plugin.action('add')\ndef add(args, house):\n    return {'sum': args['a'] + args['b']}\n"


def plugins() -> dict[str, str]:
    found: list[dict[str, Any]] = json.loads(rookery("plugin", "list", "--json").stdout)
    return {one["name"]: one["status"] for one in found if one["name"] != "boulder"}


def added_by_a_person(app: Path) -> None:
    with at_a_terminal("project", "add", str(app)) as person:
        assert person.ends() == 0, person.text


@requirement("guard.approve.plugins")
def test_c23_a_process_that_rookery_started_cannot_approve_a_plugin_in_any_way(daemon: Daemon, tmp_path: Path) -> None:
    assert MARKER in os.environ, "what a test starts looks as if Rookery had"
    app = make_repository(tmp_path / "app", {in_plugins("notify.py"): source(), "justfile": "test:\n  @echo\n"})
    assert rookery("project", "add", str(app)).returncode == 0
    assert plugins() == {"notify": "needs_approval"} and ran() == []
    with at_a_terminal("guard", "approve", "notify.py", cwd=app, env={MARKER: "instance.1"}) as agent:
        agent.reads("[y/N] ")
        agent.types("y\n")
        assert agent.ends() == 4 and "was started by Rookery" in agent.text
    # What an agent forgets and adds again is no more trusted than before.
    assert rookery("project", "remove", app.name).returncode == 0
    assert rookery("project", "add", str(app)).returncode == 0
    assert plugins() == {"notify": "needs_approval"} and ran() == []
    with at_a_terminal("guard", "approve", "notify.py", cwd=app) as person:
        seen = person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0, person.text
    assert "the code of a plugin, which runs in Rookery itself" in seen
    assert all(line in seen for line in source().splitlines() if line)
    assert plugins() == {"notify": "loaded"} and ran() == ["notify-1.0"]


@requirement("plugin.list.all", "plugin.state.get", "plugin.action.trigger", "guard.approve.plugins")
def test_plugins_of_a_users_own_project_are_loaded_listed_and_can_be_used(daemon: Daemon, tmp_path: Path) -> None:
    files = {in_plugins("notify.py"): source(more=ADD), in_plugins("broken.py"): "import sys\nsys.exit('gone')\n"}
    app = make_repository(tmp_path / "app", files)
    added_by_a_person(app)
    assert plugins() == {"notify": "loaded", "broken": "failed"}
    shown = rookery("plugin", "list").stdout.splitlines()
    assert shown[0].split() == ["NAME", "OF", "STATUS", "VERSION", "WHERE", "WHAT"]
    (broken,) = [line for line in shown if line.startswith("broken")]
    assert "SystemExit: gone" in broken
    assert json.loads(rookery("plugin", "state", "notify").stdout) == {"version": "1.0", "scope": "None"}
    assert rookery("plugin", "state", "notify", "version").stdout == '"1.0"\n'
    assert {one["plugin"] for one in json.loads(rookery("plugin", "state", "--json").stdout)} == {"boulder", "notify"}
    wrong = rookery("plugin", "state", "notify", "volume")
    assert wrong.returncode == 2 and "there are: version; scope" in wrong.stderr
    refused = rookery("plugin", "action", "notify", "add", "a=1", "b=2", env=as_child(daemon))
    assert refused.returncode == 4 and "was started by Rookery" in refused.stderr
    with at_a_terminal("plugin", "action", "notify", "add", '{"a": 1, "b": 2}', "--json") as person:
        assert person.ends() == 0 and '"sum": 3' in person.text
    over_tcp = daemon.http(
        "POST",
        "/api/plugins/notify/actions/add",
        json.dumps({"args": {"a": "x", "b": "y"}}).encode(),
        headers={"Content-Type": "application/json"},
    )
    assert over_tcp.json() == {"result": {"sum": "xy"}}
    # A daemon that was started anew has them again, without asking.
    assert rookery("down").returncode == 0
    assert rookery("up", "-d").returncode == 0
    assert plugins() == {"notify": "loaded", "broken": "failed"}
    daemon.refresh()
