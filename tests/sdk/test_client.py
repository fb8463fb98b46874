"""`rookery.connect()` at a real daemon: workspaces and projects as objects, and errors with codes."""

import asyncio
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import rookery
from tests.support.daemon.process import Daemon, alive, rookery as run, up
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "python.md"


def test_importing_rookery_imports_nothing_else_and_unknown_names_are_errors() -> None:
    code = "import sys; before = set(sys.modules); import rookery; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["rookery"]
    assert all(getattr(rookery, name) for name in rookery.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rookery.nothing  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]


@requirement("session.face.python")
async def test_without_a_daemon_connect_fails_with_a_remedy_and_with_start_starts_one() -> None:
    with pytest.raises(rookery.RookeryError) as caught:
        async with rookery.connect():
            pass
    assert caught.value.code == "daemon-unreachable" and "start=True" in caught.value.remedy
    assert traceback.format_exception_only(caught.value)[-1] == f"{caught.value.remedy}\n"
    try:
        # Of two that start at once one does, and both are connected to it.
        async with rookery.connect(start=True) as one, rookery.connect(start=True) as other:
            pids = {(await each.status())["daemon"]["pid"] for each in (one, other)}
        assert len(pids) == 1 and all(map(alive, pids))
    finally:
        assert (await asyncio.to_thread(run, "down")).returncode == 0


async def test_a_daemon_that_cannot_start_is_told_with_its_reason(state: Path) -> None:
    os.environ["ROOKERY_HTTP_PORT"] = "nonsense"
    try:
        with pytest.raises(rookery.RookeryError) as caught:
            async with rookery.connect(start=True):
                pass
    finally:
        del os.environ["ROOKERY_HTTP_PORT"]
    assert "nonsense" in caught.value.message and caught.value.remedy


@requirement("session.face.python")
async def test_workspaces_are_made_found_looked_at_and_removed(daemon: Daemon) -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with rookery.connect() as r:
        project = await r.projects.add(app / ".git" / "..")
        assert project == await r.projects.get("app") == await r.projects.get(project.id)
        assert [each.path for each in await r.projects.list()] == [app]

        ws = await r.workspaces.create("fix/login", base="main", agent=False)
        assert (ws.state, ws.project, ws.branch, ws.main, ws.is_open) == ("ready", project.id, "fix/login", False, True)
        assert ws.path.is_dir() and ws.agent.state == "stopped" and ws.attention == [] and ws.error is None
        assert [each.name for each in await r.workspaces.list(project=project)] == ["@main", "fix/login"]
        for found in (await r.workspaces.get("fix/login"), await r.workspaces.at(ws.path)):
            assert found.record == ws.record

        (ws.path / "new").write_text("x")
        status = await ws.status()
        assert (status.is_dirty, status.ahead, status.base, status.agent.type) == (True, 0, "main", "none")
        assert [each["path"] for each in (await ws.diff())["files"]] == ["new"]
        assert (await ws.set_metadata("note", "half done"))["note"] == "half done"
        assert "note" not in await ws.set_metadata("note", None)
        assert (await ws.metadata())["base"] == "main"
        assert not (await ws.close()).is_open and (await ws.open()).is_open

        with pytest.raises(rookery.RookeryError) as caught:
            await ws.delete()
        assert caught.value.code == "workspace-not-clean" and caught.value.remedy
        await ws.delete(force=True)
        assert not ws.path.exists()
        for asked in (ws.refresh(), r.workspaces.get("fix/login"), r.workspaces.at(ws.path)):
            with pytest.raises(rookery.RookeryError) as caught:
                await asked
            assert caught.value.code == "workspace-not-found"
        await r.projects.remove("app")
        with pytest.raises(rookery.RookeryError) as caught:
            await r.projects.get("app")
        assert caught.value.code == "project-not-found"


async def test_names_that_several_projects_have_are_asked_about(daemon: Daemon) -> None:
    async with rookery.connect() as r:
        ids: list[str] = []
        for folder in ("a", "b"):
            made = make_repository(Path.home() / folder / "app")
            ids.append((await r.projects.add(made)).id)
        for asked in (r.projects.get("app"), r.workspaces.get("@main"), r.workspaces.create("x")):
            with pytest.raises(rookery.RookeryError) as caught:
                await asked
            assert caught.value.code == "invalid-input" and all(one in caught.value.remedy for one in ids)
        assert (await r.workspaces.get("@main", project=ids[1])).path == Path.home() / "b" / "app"


async def test_a_connection_outlives_a_restart_of_the_daemon() -> None:
    await asyncio.to_thread(up)
    try:
        async with rookery.connect() as r:
            before = (await r.status())["daemon"]["instance"]
            assert (await asyncio.to_thread(run, "down")).returncode == 0
            with pytest.raises(rookery.RookeryError) as caught:
                await r.projects.list()
            assert caught.value.code == "daemon-unreachable"
            await asyncio.to_thread(up)
            assert (await r.status())["daemon"]["instance"] != before
    finally:
        assert (await asyncio.to_thread(run, "down")).returncode == 0


@requirement("session.face.python")
@pytest.mark.parametrize("section", ["An example", "Every operation"])
def test_the_examples_in_the_docs_run_and_print_what_they_say(section: str) -> None:
    """As a user runs them: in a repository, without a daemon before them."""
    app = make_repository(Path.home() / "src" / "app")
    text = PAGE.read_text().partition(f"\n## {section}\n")[2]
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", text, re.DOTALL)[:2]
    try:
        done = subprocess.run([sys.executable, "-c", code], cwd=app, capture_output=True, text=True, timeout=120)
        assert (done.stdout, done.returncode) == (printed, 0), done.stderr
    finally:
        assert run("down").returncode == 0
