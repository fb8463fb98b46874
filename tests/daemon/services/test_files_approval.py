"""Approval of justfiles: no task runs without it, unless adding the project approved the justfile."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from rookery.daemon.settings.schema import JustSettings, Settings
from rookery.system.ids import project_id
from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app as an_app, made, trusted_app
from tests.support.daemon.process import Daemon, rookery
from tests.support.gateway.gateway import Gateway, start_gateway, view_of
from tests.support.mcp.caller import Caller, Message, failure, told, words
from tests.support.requirements import requirement
from tests.support.workspaces.service import commit, git, make_repository

pytestmark = pytest.mark.anyio

FILES = {
    "justfile": "import 'more.just'\nmod docs 'docs/mod.just'\n\ntest:\n  @echo tested\n",
    "more.just": "more:\n  @echo more\n",
    "docs/mod.just": "build:\n  @echo built\n",
}


async def ran(daemon: Daemon, path: Path, task: str = "test") -> Message:
    headers = {"Authorization": f"Bearer {daemon.token}", "X-Workspace-Path": str(path)}
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, f"{daemon.runtime['url']}/mcp", headers=headers)
        return await caller.call("run_just_task", {"task_name": task})


def waiting() -> list[dict[str, Any]]:
    return json.loads(rookery("guard", "list", "--json").stdout)["waiting"]


def approve(cwd: Path) -> str:
    """What a person is shown who says yes."""
    with at_a_terminal("guard", "approve", "justfile", cwd=cwd) as person:
        seen = person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0, person.text
    return seen


def prepared(folder: Path) -> tuple[Path, Path, Path]:
    """A project with a justfile, a workspace that has the same, and one in which it was changed."""
    checkout = trusted_app(folder, FILES)
    same, other = made("same", cwd=checkout), made("other", cwd=checkout)
    (other / "more.just").write_text("more:\n  @echo more; touch evil\n")
    return checkout, same, other


@requirement("guard.approve.justfile")
async def test_c23_who_was_started_by_rookery_approves_nothing_by_adding_a_project(
    daemon: Daemon, tmp_path: Path
) -> None:
    # Everything that tests start has the marker of what Rookery starts; a terminal of a person has not.
    checkout = await asyncio.to_thread(an_app, tmp_path / "app", FILES)
    assert failure(await ran(daemon, checkout)) == "needs-approval"
    (one,) = await asyncio.to_thread(waiting)
    assert (one["kind"], one["place"]) == ("justfile", str(checkout))


@requirement("guard.approve.justfile")
async def test_p29_a_changed_justfile_waits_until_a_person_approves_its_very_content(
    daemon: Daemon, tmp_path: Path
) -> None:
    checkout, same, other = await asyncio.to_thread(prepared, tmp_path / "app")
    for path in (checkout, same):
        assert words(await ran(daemon, path)) == "tested\n"
    assert words(await ran(daemon, same, "docs::build")) == "built\n"
    # It is another one by what it imports, and so is every task of it.
    refused = await ran(daemon, other)
    assert failure(refused) == "needs-approval"
    assert "has changed since it was approved" in words(refused)
    assert "rookery guard approve justfile" in words(refused)
    (one,) = await asyncio.to_thread(waiting)
    assert (one["kind"], one["name"], one["state"]) == ("justfile", "justfile", "changed")
    assert (one["place"], one["folder"]) == (str(checkout), str(other))
    seen = await asyncio.to_thread(approve, other)
    assert "tasks that tools may run here" in seen and "echo more; touch evil" in seen
    assert "docs::build:\n        @echo built" in seen
    assert await asyncio.to_thread(waiting) == []
    assert words(await ran(daemon, other)) == "tested\n"
    # What was approved before still is, and what comes after is not.
    assert words(await ran(daemon, same)) == "tested\n"
    (other / "docs/mod.just").write_text("build:\n  @echo something else\n")
    assert failure(await ran(daemon, other)) == "needs-approval"


@requirement("guard.approve.justfile")
async def test_p29_a_justfile_of_which_just_does_not_tell_all_cannot_be_approved() -> None:
    async with _a_project("changed", justfile="set unstable\ntest:\n  @echo tested\n") as (gateway, app):
        caller = await gateway.caller(view_of(app))
        refused = await caller.call("run_just_task", {"task_name": "test"})
        assert failure(refused) == "needs-approval" and "unstable features" in words(refused)
        (subject,) = await gateway.parts.justfiles.list_subjects()
        assert subject.problem and await gateway.approvals.list() == []


@requirement("guard.approve.justfile")
async def test_with_always_a_main_checkouts_justfile_is_asked_about_too() -> None:
    async with _a_project("always") as (gateway, app):
        caller = await gateway.caller(view_of(app))
        assert told(await caller.call("list_just_tasks"))["approved"] is False
        refused = await caller.call("run_just_task", {"task_name": "test"})
        assert failure(refused) == "needs-approval" and "is not approved" in words(refused)
        (subject,) = await gateway.parts.justfiles.list_subjects()
        await gateway.approvals.approve(subject, subject.digest)
        assert words(await caller.call("run_just_task", {"task_name": "test"})) == "tested\n"


@requirement("guard.approve.justfile")
async def test_with_never_nothing_is_asked() -> None:
    async with _a_project("never") as (gateway, app):
        caller = await gateway.caller(view_of(app))
        (app / "justfile").write_text("set unstable\ntest:\n  @echo other\n")
        assert words(await caller.call("run_just_task", {"task_name": "test"})) == "other\n"
        assert await gateway.parts.justfiles.list_subjects() == [] and await gateway.approvals.list() == []


@requirement("guard.approve.justfile")
async def test_what_is_added_to_a_main_checkout_later_is_asked_about() -> None:
    async with _a_project("changed") as (gateway, app):
        caller = await gateway.caller(view_of(app))
        assert words(await caller.call("run_just_task", {"task_name": "test"})) == "tested\n"
        commit(app, "justfile", "test:\n  @echo later\n")
        assert failure(await caller.call("run_just_task", {"task_name": "test"})) == "needs-approval"
        await gateway.parts.projects.add(app)
        assert failure(await caller.call("run_just_task", {"task_name": "test"})) == "needs-approval"
        # A comment is no other content: just does not read it.
        git(app, "revert", "--no-edit", "HEAD")
        (app / "justfile").write_text((app / "justfile").read_text() + "\n\n\n# a remark\n")
        assert words(await caller.call("run_just_task", {"task_name": "test"})) == "tested\n"


@asynccontextmanager
async def _a_project(approval: str, **files: str) -> AsyncGenerator[tuple[Gateway, Path]]:
    app = make_repository(Path.home() / "src" / "app", {**FILES, **files})
    settings = Settings(just=JustSettings(approval=cast(Any, approval)))
    async with start_gateway(None, app, settings=settings) as gateway:
        assert (await gateway.workspaces.list(project_id(app)))[0].path == app
        yield gateway, app
