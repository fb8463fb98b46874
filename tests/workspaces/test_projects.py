"""Registering repositories."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.system.ids import project_id
from tests.support.daemon.process import Daemon, kill, rookery, up
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository, snapshot, start_workspaces

pytestmark = pytest.mark.anyio


def repository(path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(path)], check=True, timeout=30)
    return path


def listed() -> list[dict[str, str]]:
    return json.loads(rookery("project", "list", "--json").stdout)


@requirement("ws.project.add")
def test_a_repository_is_registered_once_from_wherever_in_it(daemon: Daemon, tmp_path: Path) -> None:
    app = repository(tmp_path / "app")
    assert project_id(app) == f"app-{hashlib.sha256(str(app.resolve()).encode()).hexdigest()[:8]}"
    (app / "deep" / "er").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("app")
    assert rookery("project", "add", str(app)).stdout == f"added {project_id(app)}\n"
    for path in (app, app / "deep" / "er", tmp_path / "alias"):
        assert rookery("project", "add", str(path)).stdout == f"already registered: {project_id(app)}\n"
    known = [{"id": project_id(app), "name": "app", "path": str(app)}]
    assert listed() == known
    repository(Path.home())
    for wide in (Path.home(), Path("/")):
        refused = rookery("project", "add", str(wide))
        assert refused.returncode in (2, 3) and str(wide) in refused.stderr
    assert listed() == known


@requirement("ws.project.add")
def test_up_registers_the_repository_it_is_called_in(state: Path, tmp_path: Path) -> None:
    app = repository(tmp_path / "app")
    assert rookery("up", "-d", cwd=app).returncode == 0
    assert [one["path"] for one in listed()] == [str(app)]
    other = repository(tmp_path / "other")
    assert rookery("up", "-d", cwd=other).returncode == 0
    third = repository(tmp_path / "third")
    assert rookery("up", "-d", str(third)).returncode == 0
    assert [one["path"] for one in listed()] == [str(app), str(other), str(third)]
    assert rookery("up", "-d", str(tmp_path)).returncode == 3
    assert rookery("down").returncode == 0


@requirement("house.store.safe")
def test_a_project_that_was_acknowledged_survives_the_killing_of_the_daemon(state: Path, tmp_path: Path) -> None:
    daemon = up()
    apps = [repository(tmp_path / f"app{number}") for number in range(3)]
    for app in apps:
        assert rookery("project", "add", str(app)).returncode == 0
    kill(daemon.pid)
    assert [one["path"] for one in listed()] == [str(app) for app in apps]
    assert rookery("down").returncode == 0


@requirement("house.store.safe")
def test_a_corrupt_store_is_set_aside_and_said_loudly(state: Path) -> None:
    up()
    assert rookery("down").returncode == 0
    (state / "rookery.db").write_bytes(b"this is no database" * 100)
    daemon = up()
    (problem,) = daemon.http("GET", "/api/status").json()["daemon"]["problems"]
    assert "damaged" in problem
    assert "damaged" in rookery("status").stdout
    assert len(list(state.glob("rookery.db.corrupt-*"))) == 1
    assert rookery("down").returncode == 0


@requirement("house.store.safe")
def test_a_store_of_a_newer_rookery_is_refused(state: Path) -> None:
    up()
    assert rookery("down").returncode == 0
    data = bytearray((state / "rookery.db").read_bytes())
    data[60:64] = (999).to_bytes(4, "big")
    (state / "rookery.db").write_bytes(data)
    done = rookery("up", "-d")
    assert done.returncode == 1
    assert "schema version 999" in done.stderr
    assert (state / "rookery.db").read_bytes() == data


async def test_a_project_that_is_removed_is_forgotten_and_nothing_of_it_touched(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        before = snapshot(app)
        assert (await served.projects.remove("app")).id == project
        assert await served.workspaces.list() == []
        with pytest.raises(RookeryError) as caught:
            await served.projects.remove(project)
        assert caught.value.code == "project-not-found"
        assert (snapshot(app), made.path.is_dir()) == (before, True)
        # What was known of it lay with it.
        await served.project(app)
        assert (await served.workspaces.get(project, "x")).state == "ready"


@pytest.mark.parametrize("name", ["home", "above"])
async def test_p26_a_folder_that_holds_the_home_folder_is_refused(state: Path, tmp_path: Path, name: str) -> None:
    folder = Path.home() if name == "home" else Path.home().parent
    repository(folder)
    async with start_workspaces(state) as served:
        with pytest.raises(RookeryError, match="contains the home folder"):
            await served.project(folder)


async def test_two_projects_of_one_name_are_told_apart_by_id(state: Path, tmp_path: Path) -> None:
    async with start_workspaces(state) as served:
        ids = [await served.project(make_repository(tmp_path / folder / "app")) for folder in ("a", "b")]
        with pytest.raises(RookeryError, match="several") as caught:
            await served.projects.get("app")
        assert all(one in caught.value.remedy for one in ids)
        assert (await served.projects.get(ids[0])).path == str(tmp_path.resolve() / "a" / "app")


async def test_a_workspace_in_which_another_project_lies_is_not_deleted_even_by_force(
    state: Path, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app", {".gitignore": "vendor/\n"})
    async with start_workspaces(state) as served:
        outer = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(outer, "task"))
        inner = make_repository(made.path / "vendor" / "lib")
        project = await served.project(inner)
        for force in (False, True):
            with pytest.raises(RookeryError, match="task contains other checkouts") as caught:
                await served.workspaces.delete(made, force=force, wait=True)
            assert caught.value.details == (str(inner),)
        assert (inner / "README").exists()
        await served.projects.remove(project)
        await served.workspaces.delete(made, wait=True)
        assert not made.path.exists()
