"""What a repository would run in its workspaces: shown in full, and approved once by content for all of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.system.ids import project_id
from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, run, told as ws_told
from tests.support.daemon.events import Reader
from tests.support.daemon.process import Daemon, rookery
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.project_servers import SERVER, define, local, was_started
from tests.support.requirements import requirement
from tests.support.workspaces.service import commit, git, make_repository

SETUP = {
    ".rookery/config.toml": '[workspace]\nsetup = "sh tools/setup.sh; rm -rf cache"\n',
    "tools/setup.sh": "echo done > prepared\n",
    ".gitignore": "prepared\n",
}


def waiting() -> list[dict[str, Any]]:
    return json.loads(rookery("guard", "list", "--json").stdout)["waiting"]


def approve(name: str, cwd: Path) -> str:
    """What a person is shown who says yes."""
    with at_a_terminal("guard", "approve", name, cwd=cwd) as person:
        seen = person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0, person.text
    return seen


@requirement("guard.approve.repo", "ws.create.barrier")
def test_a_setup_command_is_shown_whole_and_its_approval_prepares_what_waited(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app", SETUP)
    # It waits already: adding the project has approved nothing of it.
    assert [(one["kind"], one["state"]) for one in waiting()] == [("setup", "new")]
    assert run("create", "task", cwd=checkout).returncode != 0
    shown = ws_told("show", "task", cwd=checkout)
    assert (shown["state"], shown["code"]) == ("failed", "needs-approval")
    assert [one["reason"] for one in shown["attention"]] == ["needs-approval"]
    workspace = Path(shown["path"])
    assert not (workspace / "prepared").exists()
    (one,) = waiting()
    assert (one["name"], one["place"], one["content"]) == ("setup", str(checkout), "sh tools/setup.sh; rm -rf cache")
    assert one["files"].keys() == {"tools/setup.sh"}
    events = Reader(daemon, "/api/events")
    # From inside the workspace: the approval is kept for the main checkout, and holds for all of its workspaces.
    seen = approve("setup", workspace)
    assert "setup (setup, 1 of 1) is new" in seen and f"project: {checkout}\n" in seen
    assert f"runs in: {one['folder']}\n" in seen and "tools/setup.sh sha256 " in seen
    assert "command, which runs in each new workspace:\n    sh tools/setup.sh; rm -rf cache\n" in seen
    assert "warning: deletes files (rm -r or -f)" in seen
    assert events.until("workspace.ready")["data"]["name"] == "task"
    events.close()
    assert (workspace / "prepared").read_text() == "done\n"
    assert waiting() == [] and ws_told("show", "task", cwd=checkout)["attention"] == []
    second = run("create", "second", cwd=checkout)
    assert second.returncode == 0, second.stderr
    assert (Path(second.stdout.strip()) / "prepared").exists()


@requirement("guard.approve.repo")
def test_ignored_files_that_a_setup_command_creates_need_no_new_approval(daemon: Daemon, tmp_path: Path) -> None:
    command = "mkdir -p .venv/bin; echo 'echo ran >> log' > .venv/bin/tool; sh .venv/bin/tool"
    setup = {".rookery/config.toml": f'[workspace]\nsetup = "{command}"\n', ".gitignore": ".venv\nlog\n"}
    checkout = app(tmp_path / "app", setup)
    approve("setup", checkout)
    made = run("create", "task", cwd=checkout)
    assert made.returncode == 0, made.stderr
    again = run("prepare", "task", cwd=checkout)
    assert again.returncode == 0, again.stderr
    assert (Path(made.stdout.strip()) / "log").read_text() == "ran\nran\n"


@requirement("guard.approve.repo")
def test_c10_another_script_behind_the_same_command_waits_again_and_only_where_it_is(
    daemon: Daemon, tmp_path: Path
) -> None:
    checkout = app(tmp_path / "app", SETUP)
    approve("setup", checkout)
    git(checkout, "switch", "-q", "-c", "evil")
    commit(checkout, "tools/setup.sh", "echo evil > prepared\n")
    git(checkout, "switch", "-q", "main")
    bad = run("create", "bad", "--base", "evil", cwd=checkout)
    assert bad.returncode != 0 and "rookery guard approve setup" in bad.stderr
    workspace = Path(ws_told("show", "bad", cwd=checkout)["path"])
    (one,) = waiting()
    assert (one["state"], one["folder"], one["place"]) == ("changed", str(workspace), str(checkout))
    assert not (workspace / "prepared").exists()
    good = run("create", "good", cwd=checkout)
    assert good.returncode == 0, good.stderr
    with at_a_terminal("guard", "revoke", "setup", cwd=checkout) as person:
        assert person.ends() == 0, person.text
    assert run("create", "later", cwd=checkout).returncode != 0


@requirement("guard.approve.repo")
def test_e20_programs_of_a_repositorys_git_config_run_only_once_they_are_approved(
    daemon: Daemon, tmp_path: Path
) -> None:
    checkout = app(tmp_path / "app", {".gitattributes": "*.x filter=loud\n", "a.x": "plain\n"})
    git(checkout, "config", "filter.loud.smudge", "tr a-z A-Z")
    ran = tmp_path / "ran"
    hooks = [checkout / ".git" / "hooks" / name for name in ("post-checkout", "reference-transaction", "fsmonitor")]
    for hook in hooks:
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {hook.name} >> {ran}\n")
        hook.chmod(0o755)
    git(checkout, "config", "core.fsmonitor", str(hooks[-1]))
    ran.unlink(missing_ok=True)
    quiet = run("create", "quiet", cwd=checkout)
    assert quiet.returncode == 0, quiet.stderr
    assert ws_told("list", cwd=checkout)[1]["status"]["isDirty"] is False
    ws_told("diff", "quiet", cwd=checkout)
    assert run("rm", "quiet", cwd=checkout).returncode == 0 and run("restore", "quiet", cwd=checkout).returncode == 0
    assert not ran.exists(), ran.read_text()
    git(checkout, "status")
    assert "fsmonitor" in ran.read_text(), "it would not have run anyway"
    git(checkout, "config", "--unset", "core.fsmonitor")
    assert (Path(quiet.stdout.strip()) / "a.x").read_text() == "plain\n"
    assert [(one["kind"], one["name"]) for one in waiting()] == [("git-config", "git-config")]
    seen = approve("git-config", checkout)
    assert "programs that git would run:\n    filter.loud.smudge=tr a-z A-Z\n" in seen
    loud = run("create", "loud", cwd=checkout)
    assert (Path(loud.stdout.strip()) / "a.x").read_text() == "PLAIN\n"


async def _status(gateway: Gateway, workspace: Path, *, connect: bool = True) -> str:
    if connect:
        await gateway.rest("POST", f"/api/mcp/tools/connect?workspace={workspace}")
    return (await gateway.rest("GET", f"/api/mcp?workspace={workspace}"))[1]["tools"]["status"]


async def _approve(gateway: Gateway, digest: str) -> None:
    subject = next(one for one in await gateway.service.list_waiting() if one.digest == digest)
    await gateway.approvals.approve(subject, digest)
    await gateway.service.on_approvals_changed(subject.key)


@requirement("guard.approve.config")
@pytest.mark.anyio
async def test_approval_of_a_server_covers_the_same_content_in_every_workspace() -> None:
    folder = make_repository(Path.home() / "src" / "app", {"server.py": SERVER, ".gitignore": "started\n"})
    define(folder, tools=local())
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "servers")
    async with start_gateway(None, folder) as gateway:
        made = [await gateway.workspaces.create(project_id(folder), name) for name in ("same", "other")]
        same, other = [(await gateway.workspaces.wait_until_prepared(one)).path for one in made]
        define(other, tools=local(env={"LEVEL": "9"}))
        assert [await _status(gateway, one) for one in (folder, same, other)] == ["needs_approval"] * 3
        found = await gateway.service.list_waiting()
        assert {one.place for one in found} == {str(folder)} and len({one.digest for one in found}) == 2
        first = next(one for one in found if one.folder == str(same))
        await _approve(gateway, first.digest)
        assert [await _status(gateway, one) for one in (folder, same, other)] == [
            "connected",
            "connected",
            "needs_approval",
        ]
        assert was_started(folder) and was_started(same) and not was_started(other)
        (left,) = await gateway.service.list_waiting()
        assert await gateway.approvals.state(left) == "changed"
        await _approve(gateway, left.digest)
        assert [await _status(gateway, one) for one in (folder, same, other)] == ["connected"] * 3
        caller = await gateway.caller(f"/w/{project_id(folder)}/other/mcp")
        assert "result" in await caller.call("tools__echo")
