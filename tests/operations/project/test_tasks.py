"""The routes for the just tasks of a workspace: list, run, confirm, and how a run ends."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rookery.daemon.settings.schema import JustSettings, Settings
from rookery.system.ids import project_id
from tests.support.clock import let_pass
from tests.support.daemon.process import alive, wait_dead
from tests.support.gateway.gateway import Gateway, start_gateway, view_of
from tests.support.mcp.caller import told
from tests.support.mcp.client import LIMIT
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

JUSTFILE = """
# says a word
say word='nothing':
  @echo {{quote(word)}}

bad:
  @echo before; exit 7

hang:
  @echo begun; echo $$ > own; exec sleep 600

[confirm('wipe it?')]
wipe:
  touch wiped

mod inner 'inner.just'
"""


@asynccontextmanager
async def start_project(**just: Any) -> AsyncGenerator[tuple[Gateway, Path]]:
    """Start a gateway with a project whose tasks are approved, because it was added."""
    app = make_repository(Path.home() / "src" / "app", {"justfile": JUSTFILE, "inner.just": "deep:\n  @echo deep\n"})
    os.mkfifo(app / "own")
    async with start_gateway(None, app, settings=Settings(just=JustSettings(**just))) as gateway:
        yield gateway, app


def place_of(app: Path, workspace: str = "@main") -> str:
    return f"/api/workspaces/{project_id(app)}/{workspace}/tasks"


async def run(gateway: Gateway, app: Path, task: str, **body: Any) -> tuple[int, Any]:
    status, found = await gateway.rest("POST", f"{place_of(app)}/{quote(task, safe='')}/run", body)
    return status, found.get("error", found)


async def read_pid(pipe: Path) -> int:
    """Return the process id that a task writes when it runs."""
    async with asyncio.timeout(LIMIT):
        return int(await asyncio.to_thread(pipe.read_text))


async def wait_ended(pid: int) -> None:
    await asyncio.to_thread(wait_dead, pid)
    assert not alive(pid)


@requirement("just.list.tasks", "just.run.task", "just.run.failing", "just.run.listed")
async def test_tasks_are_listed_and_run_with_output_exit_code_and_duration() -> None:
    async with start_project() as (gateway, app):
        status, found = await gateway.rest("GET", place_of(app))
        caller = await gateway.caller(view_of(app))
        assert (status, found) == (200, told(await caller.call("list_just_tasks")))
        assert found["approved"] is True
        for arguments in (["hello; $(x)"], {"word": "hello; $(x)"}):
            status, ran = await run(gateway, app, "say", arguments=arguments)
            assert ran.pop("seconds") > 0
            assert (status, ran) == (
                200,
                {
                    "task": "say",
                    "exit_code": 0,
                    "output": "hello; $(x)\n",
                    "cut_bytes": 0,
                    "ending": "ended",
                    "cause": "",
                },
            )
        assert (await run(gateway, app, "inner::deep"))[1]["output"] == "deep\n"
        # A task that fails was run.
        status, ran = await run(gateway, app, "bad")
        assert (status, ran["exit_code"], ran["ending"]) == (200, 7, "ended") and ran["output"].startswith("before\n")
        for name in ("none", "-f", "--list", "say; touch x", "../say"):
            status, error = await run(gateway, app, name)
            assert (status, error["code"]) == (404, "task-not-found"), name
        for body in (
            {"arguments": ["a", "b"]},
            {"arguments": "a"},
            {"timeout": 0},
            {"timeout": 86_400_001},
            {"unknown": 1},
        ):
            status, error = await run(gateway, app, "say", **body)
            assert (status, error["code"]) == (400, "invalid-input"), body


@requirement("just.run.confirm")
async def test_b39_a_task_that_asks_runs_over_rest_only_with_confirm() -> None:
    async with start_project() as (gateway, app):
        for body in ({}, {"confirm": False}):
            status, error = await run(gateway, app, "wipe", **body)
            assert (status, error["code"]) == (409, "needs-approval")
            assert "wipe it?" in error["message"] and "confirm: true" in error["remedy"]
            assert not (app / "wiped").exists()
        # Over MCP the client's user is asked, and no argument replaces the answer.
        caller = await gateway.caller(view_of(app), able={})
        arguments = {"task_name": "wipe", "confirm": True}
        refused = await caller.call("run_just_task", arguments)
        assert refused["result"]["structuredContent"]["error"]["code"] == "invalid-input"
        assert not (app / "wiped").exists()
        status, ran = await run(gateway, app, "wipe", confirm=True)
        assert (status, ran["exit_code"]) == (200, 0) and (app / "wiped").exists()


@requirement("just.run.confirm")
async def test_a_justfile_that_is_not_approved_does_not_run_even_with_confirm() -> None:
    async with start_project() as (gateway, app):
        path = (await gateway.workspaces.create(project_id(app), "fix")).path
        place = place_of(app, "fix")
        assert (await gateway.rest("GET", place))[1]["approved"] is True
        (path / "justfile").write_text(JUSTFILE.replace("touch wiped", "touch wiped more"))
        assert (await gateway.rest("GET", place))[1]["approved"] is False
        for task in ("say", "wipe"):
            status, found = await gateway.rest("POST", f"{place}/{task}/run", {"confirm": True})
            assert (status, found["error"]["code"]) == (409, "needs-approval")
        assert not (path / "wiped").exists()
        (path / "justfile").write_text("say:\n  echo {{x\n")
        status, found = await gateway.rest("GET", place)
        assert (status, found["error"]["code"]) == (400, "invalid-input")


@requirement("just.run.bounds")
async def test_b38_a_task_ends_at_its_time_limit_and_when_its_client_disconnects() -> None:
    async with start_project(seconds=20.0) as (gateway, app):
        running = asyncio.ensure_future(run(gateway, app, "hang", timeout=10_000))
        pid = await read_pid(app / "own")
        let_pass(11)
        status, ran = await running
        assert (status, ran["ending"], ran["exit_code"]) == (200, "timeout", None)
        assert ran["output"].startswith("begun\n")
        await wait_ended(pid)
        # The user's setting limits a task whose caller does not.
        running = asyncio.ensure_future(run(gateway, app, "hang"))
        pid = await read_pid(app / "own")
        let_pass(21)
        assert (await running)[1]["ending"] == "timeout"
        await wait_ended(pid)
        running = asyncio.ensure_future(run(gateway, app, "hang"))
        pid = await read_pid(app / "own")
        running.cancel()
        await wait_ended(pid)
        running = asyncio.ensure_future(run(gateway, app, "hang"))
        pid = await read_pid(app / "own")
        await gateway.workspaces.close(await gateway.workspaces.at(app))
        await wait_ended(pid)
        status, error = await running
        assert (status, error["code"]) == (404, "workspace-not-found")


async def test_a_workspace_without_a_justfile_has_no_tasks() -> None:
    app = make_repository(Path.home() / "src" / "bare")
    async with start_gateway(None, app) as gateway:
        assert await gateway.rest("GET", place_of(app)) == (200, {"tasks": [], "approved": False})
        status, error = await run(gateway, app, "say")
        assert (status, error["code"]) == (404, "task-not-found"), json.dumps(error)
