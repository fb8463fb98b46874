"""The preparation of a workspace, and waiting for it."""

import asyncio
import socket
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces.ports import PORTS_PER_WORKSPACE
from rookery.workspaces.prepare import ApprovalRequest, setup_log_path
from tests.support.requirements import requirement
from tests.support.workspaces.service import WorkspaceParts, git, make_repository, start_workspaces

pytestmark = pytest.mark.anyio


def with_setup(path: Path, command: str, **files: str) -> Path:
    return make_repository(path, {".rookery/config.toml": f"[workspace]\nsetup = '''{command}'''\n", **files})


async def log_of(served: WorkspaceParts, project: str, name: str) -> str:
    return setup_log_path((await served.workspaces.find(project, name)).git_folder).read_text()


@requirement("ws.create.barrier")
async def test_the_ignored_files_that_are_listed_come_along(state: Path, tmp_path: Path) -> None:
    listed = ".env*\n!.env.prod\nsecrets/\n/deep/**/*.pem\nnotes.txt\n"
    ignored = ".env*\nsecrets/\n*.pem\nbig/\n"
    app = make_repository(
        tmp_path / "app", {".gitignore": ignored, ".keepfiles": listed, ".worktreeinclude": "big/one\n"}
    )
    wanted = {".env": "1", ".env.local": "2", "secrets/a/b": "3", "deep/x/y.pem": "4", "big/one": "5"}
    others = {".env.prod": "6", "y.pem": "7", "big/two": "8", "notes.txt": "untracked, but not ignored"}
    for name, text in {**wanted, **others}.items():
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(text)
    (app / ".env").chmod(0o600)
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        assert made.state == "ready"
        phases = [(data["done"], data["total"]) for event, data in served.told() if event == "workspace.preparing"]
        assert phases == [(0, 5), (5, 5)]
    assert {name: (made.path / name).read_text() for name in wanted} == wanted
    assert not [name for name in others if (made.path / name).exists()]
    assert (made.path / ".env").stat().st_mode & 0o777 == 0o600
    assert git(made.path, "status", "--porcelain") == ""


@requirement("ws.create.barrier")
async def test_no_link_leads_a_copy_out_and_nothing_is_overwritten(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app", {".keepfiles": "*.k\nout/\ntracked/\n", ".gitignore": "*.k\nout/\n"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.k").write_text("secret")
    # In the branch a link to the outside, in the main checkout meanwhile a folder.
    (app / "folder").symlink_to(outside)
    git(app, "add", "folder")
    git(app, "commit", "-q", "-m", "link")
    (app / "folder").unlink()
    (app / "folder").mkdir()
    (app / "folder" / "new.k").write_text("new")
    (app / "away.k").symlink_to(outside / "secret.k")
    (app / "up.k").symlink_to("../outside/secret.k")
    (app / "near.k").symlink_to("good.k")
    (app / "good.k").write_text("good")
    (app / "out").symlink_to(outside)
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        (told,) = [data["notCopied"] for event, data in served.told() if event == "workspace.ready"]
    assert made.state == "ready"
    assert sorted(one.partition(":")[0] for one in told) == ["away.k", "folder/new.k", "up.k"]
    assert (made.path / "good.k").read_text() == (made.path / "near.k").read_text() == "good"
    assert not (made.path / "away.k").is_symlink()
    assert sorted(outside.iterdir()) == [outside / "secret.k"]


@requirement("ws.create.barrier")
async def test_who_waits_gets_the_workspace_when_setup_has_ended(state: Path, tmp_path: Path) -> None:
    app = with_setup(tmp_path / "app", "cat .env; env | grep ROOKERY_ | sort; pwd; touch done.k", **{
        ".keepfiles": ".env\n", ".gitignore": ".env\n*.k\n"
    })  # fmt: skip
    (app / ".env").write_text("KEY=1\n")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.create(project, "x")
        assert made.state == "preparing"
        ready = await served.workspaces.wait_until_prepared(made)
        assert (ready.state, ready.error) == ("ready", None)
        assert (made.path / "done.k").exists()
        log = await log_of(served, project, "x")
        env = await served.workspaces.environment(made)
        (asked,) = served.asked
        events = [event for event, _ in served.told() if event.startswith("workspace")]
    assert log.startswith("KEY=1\n")
    assert log.endswith(f"{made.path}\n")
    assert [line for line in log.splitlines() if line.startswith("ROOKERY_PORT")] == [
        f"{name}={env[name]}" for name in ("ROOKERY_PORT", "ROOKERY_PORTS")
    ]
    assert (asked.kind, asked.place, asked.folder) == ("setup", str(app), str(made.path))
    preparing = ["workspace.preparing"] * 3
    assert events == ["workspace.created", "workspace.opened", *preparing, "workspace.ready"]


@requirement("ws.create.barrier")
async def test_a_setup_that_fails_is_told_and_its_log_kept_and_it_can_be_run_again(state: Path, tmp_path: Path) -> None:
    app = with_setup(tmp_path / "app", "echo some words; echo more >&2; test -e mended.k", **{".gitignore": "*.k\n"})
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        assert made.state == "failed"
        assert "ended with 1" in (made.error or "")
        assert await log_of(served, project, "x") == "some words\nmore\n"
    async with start_workspaces(state) as served:
        again = await served.workspaces.get(project, "x")
        assert (again.state, again.error) == ("failed", made.error)
        (made.path / "mended.k").touch()
        await served.workspaces.prepare(again)
        assert (await served.workspaces.wait_until_prepared(again)).state == "ready"


@requirement("ws.create.barrier")
async def test_e11_a_setup_that_hangs_is_ended_with_all_it_started(state: Path, tmp_path: Path) -> None:
    app = with_setup(tmp_path / "app", "setsid sleep 1000 & sleep 1000")
    async with start_workspaces(state, setup_seconds=0.5) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        assert made.state == "failed"
        assert "within 0.5 s" in (made.error or "")


async def test_a_setup_that_is_not_approved_does_not_run_until_it_is(state: Path, tmp_path: Path) -> None:
    app = with_setup(tmp_path / "app", "touch ran.k", **{".gitignore": "*.k\n"})
    given: set[str] = set()

    async def approve(asked: ApprovalRequest) -> bool:
        return asked.content in given

    async with start_workspaces(state, approve=approve) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        assert made.state == "failed"
        assert "touch ran.k" in (made.error or "")
        assert "approve" in (made.error or "")
        assert not (made.path / "ran.k").exists()
        given.add("touch ran.k")
        await served.workspaces.prepare(made)
        assert (await served.workspaces.wait_until_prepared(made)).state == "ready"
        assert (made.path / "ran.k").exists()


@pytest.mark.parametrize("text", ["[workspace", "[workspace]\nsetup = 1\n", "\udcff"])
async def test_a_broken_config_is_told(state: Path, tmp_path: Path, text: str) -> None:
    app = make_repository(tmp_path / "app")
    (app / ".rookery").mkdir()
    (app / ".rookery" / "config.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    git(app, "add", ".")
    git(app, "commit", "-q", "-m", "broken")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
    assert made.state == "failed"
    assert "config.toml" in (made.error or "")


async def test_a_config_that_is_a_link_is_not_read(state: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.toml").write_text("[workspace]\nsetup = 'touch ran'\n")
    app = make_repository(tmp_path / "app")
    (app / ".rookery").mkdir()
    (app / ".rookery" / "config.toml").symlink_to(tmp_path / "evil.toml")
    git(app, "add", ".")
    git(app, "commit", "-q", "-m", "link")
    async with start_workspaces(state) as served:
        made = await served.workspaces.wait_until_prepared(
            await served.workspaces.create(await served.project(app), "x")
        )
    assert made.state == "failed"
    assert not (made.path / "ran").exists()


async def test_a_preparation_that_was_cut_off_begins_again_at_the_next_start(state: Path, tmp_path: Path) -> None:
    app = with_setup(tmp_path / "app", "test -e go.k || sleep 1000", **{".gitignore": "*.k\n"})
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.create(project, "x")
        reader = served.events.subscribe(0)
        async with asyncio.timeout(30):
            while "setup" not in [event.data.get("phase") for event in await reader.next_batch()]:
                pass
        with pytest.raises(RookeryError):
            await served.workspaces.prepare(made)
    (made.path / "go.k").touch()
    async with start_workspaces(state) as served:
        assert (await served.workspaces.wait_until_prepared(made)).state == "ready"


@requirement("ws.daily.ports")
async def test_ports_are_free_apart_from_each_other_and_stay(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 20_003))
        async with start_workspaces(state) as served:
            project = await served.project(app)
            ports: dict[str, range] = {}
            for name in ("@main", "a", "b"):
                if name != "@main":
                    await served.workspaces.wait_until_prepared(await served.workspaces.create(project, name))
                ports[name] = await served.workspaces.ports.get(
                    (await served.workspaces.find(project, name)).git_folder
                )
    every = [port for found in ports.values() for port in found]
    assert len(set(every)) == 3 * PORTS_PER_WORKSPACE
    assert 20_003 not in every
    async with start_workspaces(state) as served:
        # Also while the workspace's own programs use them.
        with socket.socket() as own:
            own.bind(("127.0.0.1", ports["b"][0]))
            for name, known in ports.items():
                found = await served.workspaces.get(project, name)
                env = await served.workspaces.environment(found)
                assert env["ROOKERY_PORTS"] == f"{known[0]}-{known[-1]}"
