"""Approval in advance, by digest, for machines without a user at a terminal."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rookery.system.ids import project_id
from tests.support.cli.machine import Machine
from tests.support.cli.user import at_a_terminal, user, user_environment
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, rookery
from tests.support.mcp.caller import Caller, Message, words
from tests.support.mcp.project_servers import SERVER, local
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = requirement("guard.approve.unattended")

FILES = {
    "justfile": "import 'more.just'\nmod docs\n\ntest:\n  @echo tested\n",
    "more.just": "more:\n  @echo more\n",
    "docs.just": "build:\n  @echo built\n",
    "opencode.json": '{"username": "somebody"}\n',
    ".rookery/plugins/quiet.py": "from rookery.plugins import Plugin\nplugin = Plugin('quiet', version='1')\n",
    ".rookery/config.toml": '[workspace]\nsetup = "sh tools/setup.sh"\n',
    "tools/setup.sh": "echo done > prepared\n",
    ".mcp.json": json.dumps({"mcpServers": {"tools": local()}}),
    "server.py": SERVER,
    ".gitignore": "prepared\nstarted\n",
}
ALL = [
    ("justfile", "justfile"),
    ("mcp-server", "tools"),
    ("opencode-config", "opencode-config"),
    ("plugin", "quiet.py"),
    ("setup", "setup"),
]
LINE = re.compile(r"(sha256:[0-9a-f]{64})  (\S+) (\S+)")
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "unattended.md"


@pytest.fixture
def ci(tmp_path: Path) -> Iterator[Machine]:
    """A machine with a clone of the project, on which nothing runs yet."""
    machine = Machine(tmp_path / "ci")
    yield machine
    done = machine.run("down")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def digests(tmp_path: Path, ci: Machine) -> Iterator[str]:
    """What a developer has approved at a terminal, as `rookery guard digest` prints it; the clone is made of that."""
    checkout = make_repository(tmp_path / "developer", FILES)
    try:
        assert user("project", "add", cwd=checkout).returncode == 0
        with at_a_terminal("guard", "approve", cwd=checkout) as person:
            for _ in json.loads(user("guard", "list", "--json").stdout)["waiting"]:
                person.reads("[y/N] ")
                person.types("y\n")
            assert person.ends() == 0, person.text
        git(tmp_path, "clone", "-q", str(checkout), str(ci.checkout))
        printed = user("guard", "digest", cwd=checkout)
        assert printed.returncode == 0 and printed.stderr == "", printed.stderr
        yield printed.stdout
    finally:
        assert user("down").returncode == 0


def kinds(listed: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((one["kind"], one["name"]) for one in listed)


async def run_task(ci: Machine) -> Message:
    daemon = Daemon(ci.folder / "state").refresh()
    headers = {"Authorization": f"Bearer {daemon.token}", "X-Workspace-Path": str(ci.checkout)}
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, f"{daemon.runtime['url']}/mcp", headers=headers)
        return await caller.call("run_just_task", {"task_name": "test"})


def register_again(ci: Machine) -> None:
    """Register the project a second time, so that nothing is approved by adding it."""
    for command in (("project", "add"), ("project", "remove", project_id(ci.checkout)), ("project", "add")):
        done = ci.run(*command)
        assert done.returncode == 0, done.stderr


def test_what_has_an_approved_digest_runs_without_any_terminal(ci: Machine, digests: str) -> None:
    found = [LINE.fullmatch(line) for line in digests.splitlines()]
    assert sorted((one[2], one[3]) for one in found if one) == ALL and len(found) == len(ALL)
    file = ci.file(f"# of the developer\n\n{digests}")
    env = {"ROOKERY_APPROVALS_FILE": str(file)}
    assert ci.run("up", "-d", env=env).returncode == 0
    register_again(ci)
    listed = ci.guarded()
    assert listed["waiting"] == [] and kinds(listed["approved"]) == ALL
    assert {one["by"] for one in listed["approved"]} == {"digest"}
    lines = dict(zip(digests.split("\n"), range(3, 99), strict=False))
    wanted = {match[3]: f"{file}:{lines[match[0]]}" for match in found if match}
    assert {one["name"]: one["source"] for one in listed["approved"]} == wanted
    assert "by digest, " + wanted["setup"] in ci.run("guard", "list").stdout
    made = ci.run("ws", "create", "task", "--no-agent")
    assert made.returncode == 0, made.stderr
    assert (Path(made.stdout.strip()) / "prepared").read_text() == "done\n"
    called = ci.run("mcp", "call", "tools", "echo")
    assert called.returncode == 0 and "done" in called.stdout, called.stderr
    assert words(asyncio.run(run_task(ci))) == "tested\n"
    plugins = json.loads(ci.run("plugin", "list", "--json").stdout)
    assert [one["status"] for one in plugins if one["name"] == "quiet"] == ["loaded"]
    log = [json.loads(line)["message"] for line in (ci.folder / "state/logs/daemon.jsonl").read_text().splitlines()]
    assert any(line.startswith("approved by digest: setup setup of ") and wanted["setup"] in line for line in log)
    # It cannot be taken back here, and the message says where it can.
    revoked = ci.run("guard", "revoke", "setup")
    assert revoked.returncode != 0 and wanted["setup"] in revoked.stderr


def test_one_changed_byte_waits_and_so_does_everything_once_the_line_is_gone(ci: Machine, digests: str) -> None:
    file = ci.file(digests)
    env = {"ROOKERY_APPROVALS_FILE": str(file)}
    assert ci.run("up", "-d", env=env).returncode == 0
    register_again(ci)
    (ci.checkout / "tools/setup.sh").write_text("echo evil > prepared\n")
    (ci.checkout / "docs.just").write_text("build:\n  @echo evil\n")
    listed = ci.guarded()
    assert kinds(listed["waiting"]) == [("justfile", "justfile"), ("setup", "setup")]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one["sha256"]) for one in listed["waiting"])
    assert not any(one["sha256"] in digests for one in listed["waiting"])
    git(ci.checkout, "checkout", "-q", ".")
    assert ci.guarded()["waiting"] == []
    ci.run("down")
    file.write_text("")
    assert ci.run("up", "-d", env=env).returncode == 0
    listed = ci.guarded()
    assert kinds(listed["waiting"]) == ALL and listed["approved"] == []
    made = ci.run("ws", "create", "task", "--no-agent")
    assert made.returncode != 0 and "not approved" in made.stderr


def test_the_variable_and_the_usual_file_count_as_well(ci: Machine, digests: str) -> None:
    first, rest = digests.split("\n", 1)
    usual = ci.folder / "home/.config/rookery/approvals"
    usual.parent.mkdir(parents=True)
    usual.write_text(first)
    assert ci.run("up", "-d", env={"ROOKERY_APPROVE": rest}).returncode == 0
    register_again(ci)
    listed = ci.guarded()
    assert listed["waiting"] == [] and kinds(listed["approved"]) == ALL
    assert {one["source"] for one in listed["approved"]} == {f"{usual}:1", "variable ROOKERY_APPROVE"}


def test_what_waits_is_printed_only_if_it_is_asked_for(ci: Machine, digests: str) -> None:
    assert ci.run("up", "-d").returncode == 0
    register_again(ci)
    nothing = ci.run("guard", "digest")
    assert nothing.returncode != 0 and "omitted: setup setup: it is not approved here" in nothing.stderr
    every = ci.run("guard", "digest", "--waiting")
    assert sorted(every.stdout.splitlines()) == sorted(digests.splitlines())
    shown = json.loads(ci.run("guard", "digest", "--waiting", "--json").stdout)
    assert {one["sha256"] for one in shown} == {line.split()[0] for line in digests.splitlines()}


def test_c23_an_agent_can_not_approve_by_digest(ci: Machine, digests: str) -> None:
    given = {"ROOKERY_APPROVE": digests, "ROOKERY_APPROVALS_FILE": str(ci.file(digests))}
    # What tests start has the marker of what Rookery starts, unless it is run as a user.
    started = rookery("up", "-d", env=ci.env | given, cwd=ci.checkout)
    assert started.returncode == 0, started.stderr
    assert kinds(ci.guarded()["waiting"]) == ALL and ci.guarded()["approved"] == []
    problems = json.loads(ci.run("status", "--json").stdout)["daemon"]["problems"]
    assert any("digests are ignored" in one and "started by Rookery" in one for one in problems)
    ci.run("down")
    # Nor does it help to set the variables for a daemon that runs.
    assert ci.run("up", "-d").returncode == 0
    rookery("guard", "list", env=ci.env | given, cwd=ci.checkout)
    rookery("up", "-d", env=ci.env | given, cwd=ci.checkout)
    assert kinds(ci.guarded()["waiting"]) == ALL


def in_the_checkout(ci: Machine, text: str) -> dict[str, str]:
    path = ci.checkout / ".rookery" / "approvals"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return {"ROOKERY_APPROVALS_FILE": str(path)}


def in_a_worktree(ci: Machine, text: str) -> dict[str, str]:
    git(ci.checkout, "worktree", "add", "-q", str(ci.folder / "worktree"))
    return {"ROOKERY_APPROVALS_FILE": str(ci.file(text, "worktree/approvals"))}


def through_a_link(ci: Machine, text: str) -> dict[str, str]:
    link = ci.folder / "link"
    link.symlink_to(in_the_checkout(ci, text)["ROOKERY_APPROVALS_FILE"])
    return {"ROOKERY_APPROVALS_FILE": str(link)}


def over_a_link_in_the_checkout(ci: Machine, text: str) -> dict[str, str]:
    """A pull would decide where it leads."""
    (ci.checkout / "to").symlink_to(ci.file(text).parent)
    (ci.folder / "over").symlink_to(ci.checkout / "to")
    return {"ROOKERY_APPROVALS_FILE": str(ci.folder / "over" / ci.file(text).name)}


def a_link_in_the_checkout(ci: Machine, text: str) -> dict[str, str]:
    link = ci.checkout / "link"
    link.symlink_to(ci.file(text))
    return {"ROOKERY_APPROVALS_FILE": str(link)}


def in_a_bare_repository(ci: Machine, text: str) -> dict[str, str]:
    git(ci.folder, "init", "-q", "--bare", str(ci.folder / "bare"))
    return {"ROOKERY_APPROVALS_FILE": str(ci.file(text, "bare/approvals"))}


def writable_by_others(ci: Machine, text: str) -> dict[str, str]:
    path = ci.file(text)
    path.chmod(0o662)
    return {"ROOKERY_APPROVALS_FILE": str(path)}


def in_a_folder_writable_by_others(ci: Machine, text: str) -> dict[str, str]:
    (ci.folder / "open").mkdir()
    path = ci.file(text, "open/approvals")
    path.parent.chmod(0o770)
    return {"ROOKERY_APPROVALS_FILE": str(path)}


def a_prefix(ci: Machine, text: str) -> dict[str, str]:
    return {"ROOKERY_APPROVE": text[: len("sha256:") + 12]}


def one_digit_too_many(ci: Machine, text: str) -> dict[str, str]:
    return {"ROOKERY_APPROVE": text.split()[0] + "0"}


def another_hash(ci: Machine, text: str) -> dict[str, str]:
    return {"ROOKERY_APPROVALS_FILE": str(ci.file(text.replace("sha256:", "md5:")))}


def a_bare_digest(ci: Machine, text: str) -> dict[str, str]:
    return {"ROOKERY_APPROVALS_FILE": str(ci.file("\n" + text.replace("sha256:", "")))}


def a_missing_file(ci: Machine, text: str) -> dict[str, str]:
    return {"ROOKERY_APPROVALS_FILE": str(ci.folder / "missing")}


def a_relative_path(ci: Machine, text: str) -> dict[str, str]:
    ci.file(text)
    return {"ROOKERY_APPROVALS_FILE": "approvals"}


def a_pipe(ci: Machine, text: str) -> dict[str, str]:
    os.mkfifo(ci.folder / "pipe", 0o600)
    return {"ROOKERY_APPROVALS_FILE": str(ci.folder / "pipe")}


REFUSED: list[tuple[Callable[[Machine, str], dict[str, str]], str]] = [
    (in_the_checkout, "is inside the repository"),
    (in_a_worktree, "is inside the repository"),
    (through_a_link, "is inside the repository"),
    (a_link_in_the_checkout, "is inside the repository"),
    (over_a_link_in_the_checkout, "is inside the repository"),
    (in_a_bare_repository, "is inside the repository"),
    (writable_by_others, "can be written by others (mode 0662)"),
    (in_a_folder_writable_by_others, "can be written by others (mode 0770)"),
    (a_prefix, "ROOKERY_APPROVE: line 1 does not begin with a digest"),
    (one_digit_too_many, "ROOKERY_APPROVE: line 1 does not begin with a digest"),
    (another_hash, "line 1 does not begin with a digest"),
    (a_bare_digest, "line 2 does not begin with a digest"),
    (a_missing_file, "cannot be read: No such file or directory"),
    (a_relative_path, "ROOKERY_APPROVALS_FILE is not an absolute path: approvals"),
    (a_pipe, "cannot be read"),
]


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_what_others_could_have_written_or_is_no_digest_is_refused_with_the_reason(
    ci: Machine, given: Callable[[Machine, str], dict[str, str]], why: str
) -> None:
    make_repository(ci.checkout, {"justfile": FILES["justfile"]})
    env = given(ci, f"sha256:{'0123456789abcdef' * 4}  setup setup\n")
    refused = ci.run("up", "-d", env=env)
    assert refused.returncode != 0 and why in refused.stderr, refused.stderr
    assert ci.run("guard", "list", "--no-start").returncode == 5


def test_the_script_of_the_guide_works_as_a_step_of_ci(ci: Machine, digests: str) -> None:
    (script,) = re.findall(r"```sh\n(# Plain shell.*?)```", GUIDE.read_text(), re.DOTALL)
    env = user_environment(ci.env) | {"RUNNER_TEMP": str(ci.folder), "APPROVALS": digests}
    env["PATH"] = f"{ROOKERY.parent}:{env['PATH']}"

    def step() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script],
            cwd=ci.checkout,
            env=env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    done = step()
    assert done.returncode == 0, done.stderr
    assert re.search(r"approved +setup +setup .*by digest, ", done.stdout)
    # A change that nobody has approved does not run.
    git(ci.checkout, "branch", "-q", "-M", "main")
    (ci.checkout / "tools/setup.sh").write_text("echo evil > prepared\n")
    git(ci.checkout, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qam", "evil")
    script = script.replace("ws create nightly", "ws create --base HEAD pull-request")
    changed = step()
    ci.env["ROOKERY_HOME"] = str(ci.folder / "rookery")
    assert changed.returncode != 0 and "not approved" in changed.stderr
