"""`rookery guard audit` and the history of approvals, with the real daemon and its real command line."""

import csv
import json
import os
import sqlite3
import subprocess
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.system.fs import paths
from tests.support.cli.user import at_a_terminal, user
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, kill, rookery, up
from tests.support.mcp.project_servers import local, make_checkout
from tests.support.requirements import requirement

SECRET = "correct-horse-battery"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose user has a server, and denies the tool `echo_2` of another."""
    made = make_checkout(tmp_path / "app", theirs=local())
    write_user_servers(made)
    return made


def write_user_servers(checkout: Path) -> None:
    server = {"command": local()["command"], "args": [str(checkout / "server.py")]}
    config = paths.config_folder() / "mcp.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    entry = {"servers": {"mine": server, "other": server}, "permission": {"other__echo": "deny"}}
    config.write_text(json.dumps(entry))


def audit(*words: str) -> list[dict[str, Any]]:
    done = rookery("guard", "audit", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(record: dict[str, Any]) -> tuple[str, ...]:
    return record["server"], record["tool"], record["verdict"]


@requirement("guard.audit.log")
def test_it_shows_who_called_which_tool_when_and_with_what_verdict(checkout: Path, daemon: Daemon) -> None:
    assert rookery("project", "add", str(checkout)).returncode == 0
    assert rookery("mcp", "call", "mine", "echo", f"text={SECRET}", cwd=checkout).returncode == 0
    assert rookery("mcp", "call", "other", "echo", f"text={SECRET}", cwd=checkout).returncode != 0
    done = rookery("guard", "audit", "--event", "call")
    heads, first, second = done.stdout.splitlines()
    assert heads.split() == ["TIME", "EVENT", "VERDICT", "WHO", "WORKSPACE", "SERVER", "TOOL", "OR", "SUBJECT", "MS"]
    allowed, denied = first.split(), second.split()
    assert allowed[2:7] == ["call", "allowed", "owner", "app", "mine"] and allowed[7] == "echo"
    assert denied[2:4] == ["call", "denied"] and denied[-3:-1] == ["other", "echo"]
    first_record, second_record = audit("--event", "call")
    assert (first_record["principal"], first_record["workspace"]) == ("owner", str(checkout))
    assert shown(first_record) == ("mine", "echo", "allowed") and shown(second_record) == ("other", "echo", "denied")
    assert abs(first_record["time"] - (daemon.state / "daemon.json").stat().st_mtime) < 600
    # Neither in the answers nor in the files.
    assert SECRET not in done.stdout + json.dumps(audit())
    assert not [path for path in daemon.state.glob("audit*") if SECRET.encode() in path.read_bytes()]


@contextmanager
def following(*words: str) -> Generator[Iterator[dict[str, Any]]]:
    command = [ROOKERY, "guard", "audit", "--json", "--follow", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield map(json.loads, process.stdout)
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


@requirement("guard.audit.query")
def test_it_filters_follows_exports_and_verifies(checkout: Path, daemon: Daemon, tmp_path: Path) -> None:
    assert rookery("project", "add", str(checkout)).returncode == 0
    for server in ("mine", "other", "mine"):
        rookery("mcp", "call", server, "echo", "{}", cwd=checkout)
    assert rookery("config", "set", "log.level", "debug").returncode == 0
    every = audit()
    assert [record["id"] for record in every] == sorted({record["id"] for record in every})
    assert {record["event"] for record in every} == {"call", "setting"}
    assert [shown(record) for record in audit("--server", "mine")] == [("mine", "echo", "allowed")] * 2
    assert [shown(record) for record in audit("--tool", "o*/echo")] == [("other", "echo", "denied")]
    assert audit("--verdict", "denied") == audit("--tool", "o*/echo")
    assert len(audit("--workspace", "app")) == len(audit("--workspace", str(checkout))) == 3
    assert audit("--workspace", "elsewhere") == audit("--until", "1h") == audit("--since", "2999-01-01") == []
    assert audit("--since", "1h", "--until", "2999-01-01") == every
    assert audit("-n", "2") == every[-2:] and audit("--all") == every
    bad = rookery("guard", "audit", "--since", "yesterday")
    assert bad.returncode == 2 and "use an age such as 30m" in bad.stderr
    with following("--server", "mine", "-n", "1") as lines:
        assert next(lines) == audit("--server", "mine")[-1]
        rookery("mcp", "call", "other", "echo", "{}", cwd=checkout)
        rookery("mcp", "call", "mine", "echo", "[]", cwd=checkout)
        rookery("mcp", "call", "mine", "echo", '{"x": 1}', cwd=checkout)
        new = next(lines)
        assert shown(new) == ("mine", "echo", "allowed") and new["id"] > every[-1]["id"]
    every = audit()
    assert rookery("guard", "audit", "--export", str(tmp_path / "all.jsonl")).returncode == 0
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == every
    assert rookery("guard", "audit", "--export", str(tmp_path / "all.csv"), "--csv").returncode == 0
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == [record["id"] for record in every]
    assert [row["server"] for row in rows] == [record["server"] or "" for record in every]
    assert rows[0]["time"].endswith("Z")
    verified = rookery("guard", "audit", "--verify")
    assert (verified.returncode, verified.stdout) == (0, f"the audit is intact: {len(every)} records\n")
    with closing(sqlite3.connect(daemon.state / "audit.db")) as db:
        db.execute("UPDATE blocks SET records = CAST(replace(records, 'other', 'mine') AS BLOB)")
        db.commit()
    broken = rookery("guard", "audit", "--verify")
    assert broken.returncode == 1 and "records were changed, removed or inserted here" in broken.stdout


def answer(checkout: Path, *words: str) -> None:
    with at_a_terminal("guard", *words, cwd=checkout) as person:
        person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0, person.text


@requirement("guard.approve.history")
def test_the_history_tells_who_decided_what_when_and_by_which_content(checkout: Path, daemon: Daemon) -> None:
    plugin = checkout / ".rookery" / "plugins" / "greet.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("# a plugin\n")
    assert "nothing was approved" in rookery("guard", "list", "--history").stdout
    assert user("project", "add", str(checkout)).returncode == 0
    answer(checkout, "approve", "theirs")
    approved = json.loads(rookery("guard", "list", "--json").stdout)["approved"]
    digests = {entry["name"]: entry["digest"] for entry in approved}
    with at_a_terminal("guard", "revoke", "theirs", cwd=checkout) as person:
        assert person.ends() == 0, person.text
    assert rookery("project", "remove", "app").returncode == 0
    assert rookery("mcp", "tools", "mine", cwd=checkout).returncode == 0
    assert user("guard", "block", "mine", "tool:echo").returncode == 0
    pins = json.loads(user("guard", "diff", "mine", "--json").stdout)["servers"]
    (echo,) = [pin for server in pins for pin in server["pinned"] if pin["name"] == "echo" and pin["state"] == "pinned"]
    # It survives the daemon.
    kill(daemon.pid)
    up(env={"ROOKERY_HOME": os.environ["ROOKERY_HOME"]})
    history = json.loads(rookery("guard", "list", "--history", "--json").stdout)
    told = [(entry["verdict"], entry["detail"]["name"], entry["detail"]["by"]) for entry in history]
    assert told == [
        ("approved", plugin.name, "adding"),
        ("approved", "theirs", "terminal"),
        ("revoked", "theirs", "person"),
        ("revoked", plugin.name, "removing"),
        ("blocked", "echo", "person"),
    ]
    blocked = history.pop()
    assert (blocked["server"], blocked["detail"]["digest"]) == ("mine", echo["digest"].removeprefix("sha256:"))
    for entry in history:
        assert entry["detail"]["digest"] == digests[entry["detail"]["name"]]
        assert entry["detail"]["place"] == str(checkout)
        assert abs(entry["time"] - history[0]["time"]) < 600
    heads, *rows = rookery("guard", "list", "--history").stdout.splitlines()
    assert heads.split() == ["TIME", "VERDICT", "NAME", "KIND", "PROJECT", "WHO", "CONTENT"]
    assert "you, at a terminal" in rows[1] and digests["theirs"][:12] in rows[1]
    assert "by adding the project" in rows[0] and "by removing the project" in rows[3]
    assert str(checkout) in rows[2] and "mcp-server" in rows[2]


@requirement("guard.audit.record")
def test_a_refused_approval_is_a_record(checkout: Path, daemon: Daemon) -> None:
    body = {"kind": "mcp-server", "place": str(checkout), "name": "theirs", "digest": "0"}
    sent = {"Content-Type": "application/json"}
    assert daemon.http("POST", "/api/guard/approve", json.dumps(body).encode(), headers=sent).status == 403
    (record,) = audit("--event", "operation")
    assert (record["verdict"], record["detail"]["operation"], record["detail"]["name"]) == (
        "denied",
        "guard.approve",
        "theirs",
    )
    assert "only over the Unix socket" in record["detail"]["why"]
