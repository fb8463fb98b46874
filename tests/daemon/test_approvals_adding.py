"""Approval by adding a project: once, with an intact store, by the user, and listed."""

import asyncio
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rookery.system.ids import project_id
from tests.support.cli.user import at_a_terminal, user
from tests.support.daemon.process import Daemon, rookery
from tests.support.mcp.caller import Caller, Message, failure, words
from tests.support.requirements import requirement
from tests.support.store import take_migrations_back
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio

FILES = {
    "justfile": "test:\n  @echo tested\n",
    "opencode.json": '{"username": "somebody"}\n',
    ".opencode/plugin/loud.js": "export const Loud = async () => ({})\n",
    ".rookery/plugins/quiet.py": "from rookery.plugins import Plugin\nplugin = Plugin('quiet', version='1')\n",
    ".rookery/config.toml": '[workspace]\nsetup = "echo done > prepared"\n',
    ".gitignore": "prepared\n",
}
CHANGED = {
    "justfile": "test:\n  @echo evil\n",
    ".opencode/plugin/loud.js": "export const Evil = async () => ({})\n",
    ".rookery/plugins/quiet.py": "EVIL = True\n" + FILES[".rookery/plugins/quiet.py"],
    ".rookery/config.toml": '[workspace]\nsetup = "echo evil > prepared"\n',
}
# What the first registration approves, and what waits for a person in any case.
BY_ADDING = [("justfile", "justfile"), ("opencode-config", "opencode-config"), ("plugin", "quiet.py")]
ALL = [*BY_ADDING, ("setup", "setup")]
SAID = "approved by adding the project: "


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A repository that is not registered yet; no daemon runs, and none is left."""
    yield make_repository(tmp_path / "app", FILES)
    done = user("down")
    assert done.returncode == 0, done.stderr


def guarded() -> dict[str, list[dict[str, Any]]]:
    return json.loads(user("guard", "list", "--json").stdout)


def kinds(listed: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((one["kind"], one["name"]) for one in listed)


def change(checkout: Path) -> None:
    for name, text in CHANGED.items():
        (checkout / name).write_text(text)


def approve_all(checkout: Path) -> None:
    """A person looks at everything that waits, and says yes."""
    with at_a_terminal("guard", "approve", cwd=checkout) as person:
        for _ in guarded()["waiting"]:
            person.reads("[y/N] ")
            person.types("y\n")
        assert person.ends() == 0, person.text


async def run_task(checkout: Path) -> Message:
    daemon = Daemon(Path(os.environ["ROOKERY_HOME"])).refresh()
    headers = {"Authorization": f"Bearer {daemon.token}", "X-Workspace-Path": str(checkout)}
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, f"{daemon.runtime['url']}/mcp", headers=headers)
        return await caller.call("run_just_task", {"task_name": "test"})


async def assert_all_waits(checkout: Path) -> None:
    """Nothing counts as approved, and nothing of it takes effect."""
    listed = await asyncio.to_thread(guarded)
    # Workspaces may hold other content than the main checkout; all of it waits.
    assert sorted(set(kinds(listed["waiting"]))) == ALL and listed["approved"] == []
    assert failure(await run_task(checkout)) == "needs-approval"
    plugins = json.loads((await asyncio.to_thread(user, "plugin", "list", "--json")).stdout)
    assert {one["status"] for one in plugins if one["name"] == "quiet"} == {"needs_approval"}
    made = await asyncio.to_thread(user, "ws", "create", "last", "--no-agent", cwd=checkout)
    assert made.returncode != 0 and "rookery guard approve" in made.stderr, made.stderr
    assert not list(Path(os.environ["ROOKERY_HOME"]).glob("**/prepared"))


def expected_lines(answer: dict[str, Any]) -> list[str]:
    return [f"{SAID}{one['kind']} {one['name']} ({one['digest'][:12]})" for one in answer["approved"]]


@requirement("guard.approve.laundering")
@pytest.mark.parametrize("command", ["project add", "ws create", "up -d"])
async def test_each_approval_by_adding_is_listed_as_it_happens(checkout: Path, command: str) -> None:
    argv = {"project add": ["project", "add"], "up -d": ["up", "-d"], "ws create": ["ws", "create", "task"]}[command]
    done = await asyncio.to_thread(user, *argv, "--json", cwd=checkout)
    listed = await asyncio.to_thread(guarded)
    assert kinds(listed["approved"]) == BY_ADDING and kinds(listed["waiting"]) == [("setup", "setup")]
    assert {one["by"] for one in listed["approved"]} == {"adding"}
    digests = {(one["kind"], one["name"]): one["digest"] for one in listed["approved"]}
    said = [line for line in done.stderr.splitlines() if line.startswith(SAID)]
    assert sorted(said) == sorted(f"{SAID}{kind} {name} ({digest[:12]})" for (kind, name), digest in digests.items())
    # The setup command waits, so that making a workspace fails; what was approved stays said on stderr.
    if command != "ws create":
        answer = json.loads(done.stdout)
        assert sorted(expected_lines(answer)) == sorted(said) and answer["note"] == ""
    log = [one["message"] for one in Daemon(Path(os.environ["ROOKERY_HOME"])).log()]
    for (kind, name), digest in digests.items():
        assert f"approved by adding: {kind} {name} of {checkout} ({digest[:12]})" in log
    assert words(await run_task(checkout)) == "tested\n"
    again = await asyncio.to_thread(user, "project", "add", "--json", cwd=checkout)
    assert json.loads(again.stdout)["approved"] == [] and "approved" not in again.stderr


@requirement("guard.approve.laundering")
async def test_the_json_of_ws_create_carries_what_was_approved(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app", {"justfile": FILES["justfile"]})
    try:
        done = await asyncio.to_thread(user, "ws", "create", "task", "--no-agent", "--json", cwd=checkout)
        answer = json.loads(done.stdout)
        assert answer["name"] == "task" and kinds(answer["approved"]) == [("justfile", "justfile")]
        assert expected_lines(answer)[0] in done.stderr.splitlines()
    finally:
        assert (await asyncio.to_thread(user, "down")).returncode == 0


@requirement("guard.approve.laundering")
@pytest.mark.parametrize("changed", [True, False])
async def test_after_a_removal_everything_waits_for_the_user_again(checkout: Path, changed: bool) -> None:
    await asyncio.to_thread(user, "project", "add", cwd=checkout)
    await asyncio.to_thread(approve_all, checkout)
    assert kinds((await asyncio.to_thread(guarded))["approved"]) == ALL
    removed = await asyncio.to_thread(user, "project", "remove", project_id(checkout))
    assert removed.returncode == 0 and "its approvals are revoked" in removed.stderr
    if changed:
        change(checkout)
    added = await asyncio.to_thread(user, "project", "add", "--json", cwd=checkout)
    answer = json.loads(added.stdout)
    assert (answer["added"], answer["approved"]) == (True, [])
    assert "the project was registered before" in answer["note"] and "these need approval: " in answer["note"]
    assert answer["note"] in added.stderr
    await assert_all_waits(checkout)


@requirement("guard.approve.laundering")
async def test_an_implicit_registration_after_a_removal_approves_nothing(checkout: Path) -> None:
    await asyncio.to_thread(user, "project", "add", cwd=checkout)
    await asyncio.to_thread(user, "project", "remove", project_id(checkout))
    change(checkout)
    made = await asyncio.to_thread(user, "ws", "create", "other", "--no-agent", cwd=checkout)
    assert SAID not in made.stderr and "the project was registered before" in made.stderr
    await asyncio.to_thread(user, "down")
    up = await asyncio.to_thread(user, "up", "-d", cwd=checkout)
    assert SAID not in up.stderr
    await assert_all_waits(checkout)


def delete_store(state: Path) -> None:
    for path in state.glob("rookery.db*"):
        path.unlink()


def empty_store(state: Path) -> None:
    for path in state.glob("rookery.db*"):
        path.write_bytes(b"")


def truncate_store(state: Path) -> None:
    os.truncate(state / "rookery.db", 3 * 4096)


def cut_off_store(state: Path) -> None:
    os.truncate(state / "rookery.db", 60)


def garble_store(state: Path) -> None:
    (state / "rookery.db").write_bytes(b"\xff" * 40_000)


def restore_old_store(state: Path) -> None:
    delete_store(state)
    shutil.copy(state / "old.db", state / "rookery.db")


def clear_tables(state: Path) -> None:
    with closing(sqlite3.connect(state / "rookery.db")) as db:
        for table in ("approvals", "registrations", "projects"):
            db.execute(f"DELETE FROM {table}")
        db.commit()


def delete_seal(state: Path) -> None:
    (state / "approvals.seal").unlink()


def delete_both(state: Path) -> None:
    delete_store(state)
    delete_seal(state)


def delete_all_but_the_token(state: Path) -> None:
    _keep(state, "token")


def delete_all_but_the_log(state: Path) -> None:
    _keep(state, "logs")


def delete_the_state_folder(state: Path) -> None:
    """The workspaces of the project stay in its repository."""
    shutil.rmtree(state)


def _keep(state: Path, kept: str) -> None:
    for path in state.iterdir():
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


LOSSES = [
    delete_store,
    empty_store,
    truncate_store,
    cut_off_store,
    garble_store,
    restore_old_store,
    clear_tables,
    delete_seal,
    delete_both,
    delete_all_but_the_token,
    delete_all_but_the_log,
    delete_the_state_folder,
]


@requirement("guard.approve.laundering")
@pytest.mark.parametrize("lose", LOSSES)
async def test_with_a_store_that_is_lost_or_damaged_everything_waits_again(
    checkout: Path, state: Path, lose: Callable[[Path], None]
) -> None:
    assert (await asyncio.to_thread(user, "up", "-d")).returncode == 0
    assert (await asyncio.to_thread(user, "down")).returncode == 0
    shutil.copy(state / "rookery.db", state / "old.db")
    await asyncio.to_thread(user, "project", "add", cwd=checkout)
    await asyncio.to_thread(approve_all, checkout)
    made = await asyncio.to_thread(user, "ws", "create", "first", "--no-agent", cwd=checkout)
    assert made.returncode == 0, made.stderr
    shutil.rmtree(made.stdout.strip())
    await asyncio.to_thread(user, "down")
    lose(state)
    change(checkout)
    up = await asyncio.to_thread(user, "up", "-d", cwd=checkout)
    assert up.returncode == 0, up.stderr
    assert SAID not in up.stderr
    await assert_all_waits(checkout)
    if lose is not delete_the_state_folder:
        # Nobody knows what was registered before: no project is approved by adding any more, also after a restart.
        problems = json.loads((await asyncio.to_thread(user, "status", "--json")).stdout)["daemon"]["problems"]
        assert any("lost or changed from outside" in problem for problem in problems)
        await asyncio.to_thread(user, "down")
        other = make_repository(checkout.parent / "other", {"justfile": FILES["justfile"]})
        added = json.loads((await asyncio.to_thread(user, "project", "add", "--json", cwd=other)).stdout)
        assert added["approved"] == [] and "these need approval: justfile" in added["note"]


@requirement("guard.approve.laundering")
async def test_a_store_that_is_replaced_while_the_daemon_runs_launders_nothing(checkout: Path, state: Path) -> None:
    await asyncio.to_thread(user, "up", "-d")
    shutil.copy(state / "rookery.db", state / "old.db")
    await asyncio.to_thread(user, "project", "add", cwd=checkout)
    restore_old_store(state)
    delete_seal(state)
    change(checkout)
    await asyncio.to_thread(user, "project", "remove", project_id(checkout))
    added = await asyncio.to_thread(user, "project", "add", "--json", cwd=checkout)
    assert json.loads(added.stdout)["approved"] == []
    await assert_all_waits(checkout)


@requirement("guard.approve.laundering", "guard.approve.justfile")
@pytest.mark.parametrize("argv", [("project", "add"), ("up", "-d"), ("ws", "create", "task", "--no-agent")])
async def test_c23_a_process_that_rookery_started_approves_nothing_by_adding(
    checkout: Path, argv: tuple[str, ...]
) -> None:
    # Everything that tests start has the marker of what Rookery starts, unless it is run as a user.
    added = await asyncio.to_thread(rookery, *argv, cwd=checkout)
    assert SAID not in added.stderr
    assert "a process that Rookery started adds it" in added.stderr, added.stderr
    assert "approved" not in (await asyncio.to_thread(user, "project", "add", cwd=checkout)).stderr
    # Nor does it prepare the ground for the user, who adds the project after it was removed.
    await asyncio.to_thread(user, "project", "remove", project_id(checkout))
    change(checkout)
    again = await asyncio.to_thread(user, "project", "add", cwd=checkout)
    assert SAID not in again.stderr
    await assert_all_waits(checkout)


@requirement("guard.approve.laundering")
@pytest.mark.timeout(300)
async def test_c23_what_lies_where_rookery_has_worked_is_not_approved_by_adding(tmp_path: Path) -> None:
    """An agent can make a repository of its workspace, in it, or in the main checkout, and the user comes by."""
    just = {"justfile": FILES["justfile"]}
    checkout, evil = make_repository(tmp_path / "app", just), make_repository(tmp_path / "evil", just)
    link = tmp_path / "link"
    link.symlink_to(checkout)
    moved = tmp_path / "elsewhere" / "{name}"
    try:
        await asyncio.to_thread(user, "up", "-d", "--set", f"worktrees.path={moved}")
        first = json.loads((await asyncio.to_thread(user, "project", "add", str(link), "--json")).stdout)
        assert kinds(first["approved"]) == [("justfile", "justfile")]
        outer = await _workspace(checkout, "outer")
        await asyncio.to_thread(user, "down")
        await asyncio.to_thread(user, "up", "-d")
        inner = await _workspace(checkout, "inner")
        assert outer.is_relative_to(moved.parent) and not inner.is_relative_to(tmp_path / "elsewhere")
        git(evil, "worktree", "add", str(inner / "tree"))
        for workspace in (outer, inner):
            (workspace / ".git").unlink()
            git(workspace, "init", "-q")
            git(workspace, "commit", "-q", "--allow-empty", "-m", "mine now")
        link.unlink()
        link.symlink_to(make_repository(tmp_path / "worse", just))
        await asyncio.to_thread(user, "project", "remove", first["id"])
        checkout.rename(tmp_path / "moved")
        places = [outer, inner, make_repository(inner / "sub", just), inner / "tree", link, tmp_path / "moved"]
        places.append(make_repository(checkout, just))
        places.append(make_repository(checkout / "vendor", just))
        for place in places:
            added = json.loads((await asyncio.to_thread(user, "project", "add", str(place), "--json")).stdout)
            assert added["approved"] == [] and "these need approval: justfile" in added.get("note", ""), (place, added)
            # Each stays known by itself, so that the next one is judged by its own place.
            await asyncio.to_thread(user, "project", "remove", added["id"])
        # A repository of the user's own is approved as ever.
        mine = make_repository(tmp_path / "mine", just)
        added = json.loads((await asyncio.to_thread(user, "project", "add", str(mine), "--json")).stdout)
        assert kinds(added["approved"]) == [("justfile", "justfile")]
    finally:
        assert user("down").returncode == 0


async def _workspace(checkout: Path, name: str) -> Path:
    made = await asyncio.to_thread(user, "ws", "create", name, "--no-agent", cwd=checkout)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@requirement("guard.approve.laundering")
async def test_an_interrupted_first_start_leaves_the_next_one_the_first(checkout: Path, state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        failed = await asyncio.to_thread(user, "up", "-d", "--port", str(taken.getsockname()[1]))
    assert failed.returncode != 0 and (state / "rookery.db").exists()
    delete_store(state)
    added = await asyncio.to_thread(user, "project", "add", "--json", cwd=checkout)
    assert kinds(json.loads(added.stdout)["approved"]) == BY_ADDING, added.stderr


@requirement("guard.approve.laundering")
async def test_a_store_of_an_earlier_version_keeps_its_approvals_and_its_projects(checkout: Path, state: Path) -> None:
    await asyncio.to_thread(user, "project", "add", cwd=checkout)
    await asyncio.to_thread(user, "down")
    _as_an_earlier_version_left_it(state)
    other = make_repository(checkout.parent / "other", {"justfile": FILES["justfile"]})
    added = await asyncio.to_thread(user, "project", "add", "--json", cwd=other)
    assert kinds(json.loads(added.stdout)["approved"]) == [("justfile", "justfile")]
    assert words(await run_task(checkout)) == "tested\n"
    await asyncio.to_thread(user, "down")
    await asyncio.to_thread(user, "up", "-d")
    listed = await asyncio.to_thread(guarded)
    assert len(listed["approved"]) == len(BY_ADDING) + 1
    await asyncio.to_thread(user, "project", "remove", project_id(checkout))
    again = await asyncio.to_thread(user, "project", "add", "--json", cwd=checkout)
    assert json.loads(again.stdout)["approved"] == []


def _as_an_earlier_version_left_it(state: Path) -> None:
    """Take migrations back, and seal the approvals alone."""
    from rookery.guard.seal import compute_mark

    with closing(sqlite3.connect(state / "rookery.db")) as db:
        take_migrations_back(db, 8)
        rows = db.execute("SELECT kind, place, name, digest, content, at FROM approvals").fetchall()
    (state / "approvals.seal").write_text(compute_mark(rows) + "\n")
    (state / "pins.seal").unlink()
