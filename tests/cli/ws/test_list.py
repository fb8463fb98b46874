"""`rookery ws list` for people: at 80 columns, and live."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.mcp.test_group import SHOWY, define
from tests.support.cli.tables import LONG, WITHOUT_SESSIONS, show_tables
from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.process import Daemon, rookery, up
from tests.support.requirements import requirement
from tests.support.workspaces.service import commit, git, make_repository

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def misconfigured() -> Iterator[Daemon]:
    """A daemon that has a problem to tell of, in many words."""
    file = Path(os.environ["HOME"]) / ".config" / "rookery" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'{LONG} = "{LONG}"\n')
    yield up()
    assert rookery("down").returncode == 0


@requirement("house.table.width")
def test_every_table_fits_80_columns_and_shows_who_needs_the_user(misconfigured: Daemon, state: Path) -> None:
    files = {
        "a-file-whose-name-is-so-long/that-no-table-of-80-columns/can-hold-it-in-one-line/so-it-goes-on.txt": "x\n",
        ".mcp.json": '{"mcpServers": {"a-server-with-quite-a-long-name": {"command": "/no/such/program/anywhere"}}}',
    }
    define(None, **{"another-server-with-quite-a-long-name": {"command": SHOWY}})
    project = app(state / "src" / "application-with-a-name", files)
    path = made(LONG, cwd=project)
    (path / next(iter(files))).write_text("changed\n")
    subprocess.run(["git", "branch", "東京の-branch"], cwd=project, check=True)
    gone = made("moved-away", "--branch", "東京の-branch", cwd=project)
    ws("meta", "set", "note", "waits for review " * 8, "-w", LONG, cwd=project)
    made("deleted", cwd=project)
    ws("rm", "deleted", "--yes", cwd=project)
    commit(made("merged-and-deleted", cwd=project), "work")
    git(project, "merge", "-q", "merged-and-deleted")
    gone.rename(state / "elsewhere")
    assert (
        rookery("project", "add", str(make_repository(state / "src" / f"another-application-{LONG}"))).returncode == 0
    )
    # A record for the audit.
    assert rookery("config", "set", "log.level", "debug").returncode == 0
    shown = show_tables(WITHOUT_SESSIONS, project)
    # What does not fit goes on in the next line, and nothing of it is lost.
    said = json.loads(rookery("status", "--json").stdout)["daemon"]
    for text in (said["url"], said["mcp_url"], *said["problems"]):
        assert "".join(text.split()) in "".join(shown["status",].split())
    assert len(said["problems"][0]) > 80 and said["problems"][0] in rookery("status").stdout
    # Scripts get everything, each row in a line.
    words = ("ws", "list", "--project", project.name)
    whole = rookery(*words, cwd=project).stdout
    rows = [line.split()[:2] for line in whole.splitlines()[2:]]
    assert rows == [[LONG, LONG], ["merged-and-deleted"] * 2, ["moved-away", "東京の-branch"]]
    # All of what is wrong stands in its column, in as many lines as it takes.
    needs = whole.splitlines()[4].rpartition("  ")[2]
    assert len(needs) > 20
    with at_a_terminal(*words, cwd=project, size=(80, 24)) as person:
        assert person.ends() == 0
    head, *lines = person.text.splitlines()
    column = head.index("NEEDS YOU")
    assert "".join(line[column:] for line in lines).replace(" ", "") == needs.replace(" ", "")
