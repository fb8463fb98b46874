"""The start of a new workspace is reported, and an existing branch is used only if it is named."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.workspaces import app as an_app, made, names, run, told
from tests.support.daemon.endpoints import create, token_of
from tests.support.daemon.process import Daemon, rookery
from tests.support.daemon.socketio import editor
from tests.support.requirements import requirement
from tests.support.workspaces.service import branches, commit, git, make_clone, make_repository

pytestmark = [requirement("ws.create.branch-said"), pytest.mark.timeout(300)]


def created(name: str, *words: str, cwd: Path) -> tuple[str, dict[str, Any]]:
    """What is said on stderr, and what `show` says of its start."""
    done = run("create", name, "--no-agent", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "only the path is on stdout"
    return done.stderr, told("show", name, cwd=cwd)["start"]


def test_it_says_at_which_commit_of_which_branch_a_workspace_begins(daemon: Daemon) -> None:
    app = make_clone(Path.home() / "app")
    there = git(app, "rev-parse", "origin/main")
    ahead = commit(app, "local")
    git(app, "tag", "v1")
    said, start = created("usual", cwd=app)
    assert f"usual begins at origin/main ({there[:12]}), the default branch of the remote" in said
    assert start == {"ref": "origin/main", "commit": there, "reason": "remote-default"}
    said, start = created("given", "--base", "v1", cwd=app)
    assert f"given begins at v1 ({ahead[:12]})" in said
    assert start == {"ref": "v1", "commit": ahead, "reason": "given"}
    # It is said, too, where HEAD is on no branch, and something else is taken.
    git(app, "checkout", "-q", "--detach")
    said, start = created("detached", cwd=app)
    assert "origin/main" in said and start["commit"] == there
    git(app, "branch", "topic", ahead)
    said, start = created("review", "--branch", "topic", cwd=app)
    assert f"review begins at topic ({ahead[:12]}), an existing branch" in said
    assert start == {"ref": "topic", "commit": ahead, "reason": "branch"}
    shown = json.loads(run("create", "json", "--no-agent", "--json", cwd=app).stdout)
    assert shown["start"] == {"ref": "origin/main", "commit": there, "reason": "remote-default"}


def test_without_a_remote_it_begins_at_head_which_may_be_on_no_branch(daemon: Daemon) -> None:
    app = make_repository(Path.home() / "app")
    here = git(app, "rev-parse", "HEAD")
    said, start = created("one", cwd=app)
    assert f"one begins at main ({here[:12]}), the branch of the main checkout" in said
    assert start == {"ref": "main", "commit": here, "reason": "head"}
    git(app, "checkout", "-q", "--detach")
    said, start = created("two", cwd=app)
    assert f"two begins at {here[:12]}, the detached HEAD" in said
    assert start == {"ref": here, "commit": here, "reason": "detached"}


def test_a_taken_branch_name_is_refused_by_every_interface_and_the_option_named(daemon: Daemon) -> None:
    app = an_app(Path.home() / "app", {"a.txt": "a\n"})
    made("one", "--no-agent", cwd=app)
    git(app, "branch", "taken")
    before = branches(app), names(app)
    done = run("create", "taken", cwd=app)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the branch taken already exists" in done.stderr and "--branch taken" in done.stderr
    answer = daemon.http("POST", "/api/workspaces", b'{"name": "taken"}', headers={"Content-Type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (409, "branch-exists")
    assert "--branch taken" in error["remedy"] and "`branch`" in error["remedy"]
    called = create(daemon, token_of(daemon, "one"), "taken")
    assert called["code"] == "branch-exists"
    assert asyncio.run(_over_socketio(daemon, app)) == "branch-exists"
    assert (branches(app), names(app)) == before
    assert made("taken", "--branch", "taken", "--no-agent", cwd=app).is_dir()
    # So is a name that is taken by a branch which a workspace had and left behind.
    assert rookery("ws", "rm", "one", "--keep-branch", cwd=app).returncode == 0
    assert run("create", "one", cwd=app).returncode == 2
    assert made("one", "--branch", "one", "--no-agent", cwd=app).is_dir()


async def _over_socketio(daemon: Daemon, app: Path) -> str:
    async with editor(daemon.runtime["url"], token_of(daemon, "one"), path=None) as ours:
        return await ours.code("create", {"name": "taken"})
