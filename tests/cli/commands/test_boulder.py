"""`rookery boulder` without agents: switches of projects and workspaces, the log, and refusals."""

import json
from pathlib import Path

from rookery.system.ids import project_id
from tests.support.cli.user import at_a_terminal
from tests.support.daemon.jobs import as_child
from tests.support.daemon.process import Daemon, rookery
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository


def typed(*words: str, cwd: Path) -> tuple[int, str]:
    """By the owner, at a terminal."""
    with at_a_terminal("boulder", *words, cwd=cwd) as person:
        return person.ends(), person.text


@requirement("boulder.control.actions", "boulder.enforce.idle")
def test_the_owner_switches_boulder_for_projects_and_workspaces_and_it_is_logged(daemon: Daemon) -> None:
    app = make_repository(Path.home() / "src" / "app")
    assert rookery("project", "add", str(app)).returncode == 0
    empty = rookery("boulder", "status", cwd=app)
    assert empty.returncode == 0 and empty.stdout == "" and "no session" in empty.stderr
    state = json.loads(rookery("boulder", "status", "--json", cwd=app).stdout)
    assert (state["status"], state["iteration"], state["sessions"], state["budget"]) == ("OFF", 0, {}, 5)
    assert rookery("config", "get", "boulder.idle_seconds").stdout == "30.0\n"

    assert typed("on", "--project", "app", "--check", "todos", "--check", "plan:PLAN.md", cwd=app)[0] == 0
    assert typed("on", "--workspace", ".", cwd=app)[0] == 0
    code, told = typed("off", "--workspace", "@main", cwd=app)
    assert code == 0 and f"boulder is off for the workspace {app}" in told
    log = json.loads(rookery("boulder", "log", "--json", cwd=app).stdout)
    assert [(one["what"], one["who"], one["why"]) for one in log] == [
        ("on", "owner", f"for the project {project_id(app)}, checks: todos, plan:PLAN.md"),
        ("on", "owner", f"for the workspace {app}"),
        ("off", "owner", f"for the workspace {app}"),
    ]
    assert json.loads(rookery("boulder", "log", "--limit", "1", "--json", cwd=app).stdout) == log[-1:]
    table = rookery("boulder", "log", cwd=app).stdout
    assert "WHY" in table and "plan:PLAN.md" in table


@requirement("boulder.control.actions")
def test_agents_switch_nothing_on_and_what_makes_no_sense_is_refused(daemon: Daemon) -> None:
    app = make_repository(Path.home() / "src" / "app")
    assert rookery("project", "add", str(app)).returncode == 0
    refused = rookery("boulder", "on", "--project", "app", cwd=app, env=as_child(daemon))
    assert refused.returncode == 4 and "started by Rookery" in refused.stderr
    assert rookery("boulder", "log", "--json", cwd=app).stdout.strip() == "[]"
    for words, code, told in (
        (("on",), 2, "give a session"),
        (("off", "--workspace", "@main", "--project", "app"), 2, "give a session"),
        (("on", "--project", "app", "--budget", "-1"), 2, "--budget"),
        (("pause",), 2, "SESSION"),
        (("pause", "."), 3, "no open session"),
        (("log", "--limit", "0"), 2, "--limit"),
        (("status", "nowhere"), 3, "nowhere"),
    ):
        done = rookery("boulder", *words, cwd=app)
        assert (done.returncode, told in done.stderr) == (code, True), (words, done)
    for words, told in (
        (("on", "--project", "nothing"), "there is no project"),
        (("on", "--project", "app", "--check", "everything"), "not a check of boulder"),
        (("pause", "ses_none"), "no session"),
    ):
        code, seen = typed(*words, cwd=app)
        assert code in (1, 2, 3) and told in seen, words
