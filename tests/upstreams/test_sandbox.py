"""Confined MCP servers, with real processes behind a gateway."""

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.daemon.settings.schema import SandboxSettings, ServerSettings, Settings
from rookery.system.confinement.rules import KernelSupport
from rookery.upstreams.config.definition import ServerSandbox
from rookery.upstreams.sandbox import describe_sandbox, explain_refusal, find_refused_calls
from rookery.workspaces.confinement import CheckoutPaths, list_checkout_paths
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of, worktree, write
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).parents[1] / "programs" / "probing_server.py")


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def server(*words: str, **entry: Any) -> dict[str, Any]:
    return {"command": [sys.executable, PROGRAM, *words], **entry}


async def probe(gateway: Gateway, path: str, name: str, tool: str, target: object) -> str:
    """Return what a tool of a server has reached, or its error."""
    caller = await gateway.caller(path)
    answer = await caller.call(f"{name}__{tool}", {"target": str(target)})
    return answer["result"]["content"][0]["text"]


@requirement("guard.sandbox.server")
async def test_each_sandbox_reaches_what_its_entry_says_and_no_more(tmp_path: Path) -> None:
    app = checkout()
    fix = worktree(app, "fix")
    (fix / "file").write_text("inside")
    listed = tmp_path / "listed"
    listed.mkdir()
    (listed / "file").write_text("listed")
    secret = Path.home() / ".netrc"
    secret.write_text("secret")
    servers = {
        "free": server(),
        "rw": server(sandbox="workspace"),
        "ro": server(sandbox="read-only"),
        "paths": server(sandbox={"read": [str(listed)], "network": False}),
        "dot": server(sandbox={"write": ["."], "network": False}),
    }
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        port = tcp.getsockname()[1]
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        async with start_gateway(servers, app) as gateway:
            view = view_of(app, workspace="fix")

            async def reaches(name: str, tool: str, target: object) -> bool:
                return "Error" not in await probe(gateway, view, name, tool, target)

            expected = {
                # the secret, a file of the workspace, writing there, a listed file, TCP, a Unix socket
                "free": (True, True, True, True, True, True),
                "rw": (False, True, True, False, True, False),
                "ro": (False, True, False, False, True, False),
                "paths": (False, False, False, True, False, False),
                "dot": (False, True, True, False, False, False),
            }
            for name, wanted in expected.items():
                tried = (
                    await reaches(name, "read", secret),
                    await reaches(name, "read", fix / "file"),
                    await reaches(name, "write", fix / f"by-{name}"),
                    await reaches(name, "read", listed / "file"),
                    await reaches(name, "connect", port),
                    await reaches(name, "unix", tmp_path / "socket"),
                )
                assert tried == wanted, name
            # The hooks of the repository stay as they are, from a worktree and from the main checkout.
            for place in (view, view_of(app)):
                hook = app / ".git" / "hooks" / "post-commit"
                assert "PermissionError" in await probe(gateway, place, "rw", "write", hook)
            assert gateway.hub.pool.connector.spawner.has_confined


@requirement("guard.sandbox.server")
async def test_what_a_server_writes_in_its_first_run_widens_no_later_one(shared_memory: Path) -> None:
    """It may name any folder as its git folder, and plant links wherever it writes."""
    app = checkout()
    fix = worktree(app, "fix")
    (Path.home() / ".bashrc").write_text("mine\n")
    async with start_gateway({"rw": server(sandbox="workspace")}, app) as gateway:
        caller = await gateway.caller(view_of(app, workspace="fix"))

        async def reach(tool: str, target: object) -> str:
            answer = await caller.call(f"rw__{tool}", {"target": str(target)})
            return answer["result"]["content"][0]["text"]

        planted = f"d={shared_memory}; mkdir -p $d/worktrees/x && echo {fix}/.git > $d/worktrees/x/gitdir && "
        planted += f"ln -s {Path.home()} $d/objects && echo gitdir: $d/worktrees/x > {fix}/.git && echo ../.. > "
        planted += f"$d/worktrees/x/commondir && ln -s {Path.home()} {fix}/link"
        named = (fix / ".git").read_text()
        assert (await reach("shell", planted)).startswith("0\n")
        running = await gateway.server("rw", fix)
        await running.disconnect()
        await running.connect()
        # Its sandbox is made by now. Without this, its workspace counts as missing.
        (fix / ".git").write_text(named)
        assert "PermissionError" in await reach("write", Path.home() / ".bashrc")
        assert "PermissionError" in await reach("write", app / ".git" / "hooks" / "post-commit")
        assert await reach("write", fix / "still") == "done"
    assert (Path.home() / ".bashrc").read_text() == "mine\n"


@requirement("guard.sandbox.server")
@pytest.mark.parametrize("listed", [".", "./", "src/.."])
async def test_a_main_checkout_that_is_listed_keeps_its_hooks_however_it_is_spelt(listed: str) -> None:
    app = checkout()
    (app / "src").mkdir()
    async with start_gateway({"dot": server(sandbox={"write": [listed]})}, app) as gateway:
        hook = app / ".git" / "hooks" / "post-commit"
        assert "PermissionError" in await probe(gateway, view_of(app), "dot", "write", hook)
        assert "PermissionError" in await probe(gateway, view_of(app), "dot", "write", app / ".git" / "config")
        assert await probe(gateway, view_of(app), "dot", "write", app / "src" / "file") == "done"


@requirement("guard.sandbox.server")
async def test_a_failure_that_looks_like_a_refused_access_shows_the_policy_and_a_remedy(tmp_path: Path) -> None:
    needed = tmp_path / "needed.json"
    needed.write_text("{}")
    app = checkout()
    async with start_gateway({"odd": server(str(needed), sandbox="read-only")}, app) as gateway:
        await gateway.hub.connect(app, None, "odd")
        error = await gateway.becomes("odd", "failed", "backoff", directory=app)
        assert error is not None
        assert '"sandbox": "read-only"' in error and str(needed) in error
        assert f'"sandbox": {{"read": [".", "{needed}"]}}' in error


@requirement("guard.sandbox.server")
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
async def test_a_trace_names_the_access_that_was_refused(tmp_path: Path) -> None:
    needed = tmp_path / "needed.json"
    needed.write_text("{}")
    app = checkout()
    async with start_gateway({"odd": server(str(needed), sandbox="workspace")}, app) as gateway:
        report = await gateway.hub.debug(app, None, "odd", trace=True)
        assert not report.connected
        assert any(str(needed) in call and "EACCES" in call for call in report.refused), report
        assert any(step.what == "sandbox" and "workspace" in step.told for step in report.steps)
        status, answered = await gateway.rest("POST", "/api/mcp/odd/debug", {"trace": True})
        assert status == 200 and "refused" in answered


@requirement("guard.sandbox.server")
async def test_where_the_kernel_cannot_confine_a_server_starts_only_if_the_settings_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rookery.system.confinement.kernel.find_support", lambda: KernelSupport(0, None))
    app = checkout()
    servers = {"odd": server(sandbox="workspace")}
    async with start_gateway(servers, app) as gateway:
        await gateway.hub.connect(app, None, "odd")
        error = await gateway.becomes("odd", "failed", "backoff", directory=app)
        assert error is not None and "Landlock" in error


async def test_without_landlock_the_settings_may_let_a_server_run_unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.system.confinement.kernel.find_support", lambda: KernelSupport(0, None))
    app = checkout()
    settings = Settings(sandbox=SandboxSettings(unavailable="unconfined"))
    async with start_gateway({"odd": server(sandbox="workspace")}, app, settings=settings) as gateway:
        assert await probe(gateway, view_of(app), "odd", "write", app / "file") == "done"


async def test_the_settings_confine_servers_that_name_no_sandbox() -> None:
    app = checkout()
    settings = Settings(servers=ServerSettings(sandbox="read-only"))
    async with start_gateway({"mine": server(), "free": server(sandbox="off")}, app, settings=settings) as gateway:
        assert "PermissionError" in await probe(gateway, view_of(app), "mine", "write", app / "file")
        assert await probe(gateway, view_of(app), "free", "write", app / "file") == "done"


async def test_a_server_of_a_repository_has_a_default_of_its_own_and_shows_its_sandbox() -> None:
    app = checkout()
    write({"theirs": server(), "named": server(sandbox={"write": ["/srv"]})}, app / ".rookery" / "mcp.json")
    settings = Settings(servers=ServerSettings(repository_sandbox="read-only"))
    async with start_gateway(None, app, settings=settings) as gateway:
        subjects = {one.name: one for one in await gateway.service.list_repository_servers()}
        assert "/srv" in subjects["named"].content
        for subject in subjects.values():
            await gateway.approvals.approve(subject, subject.digest)
            await gateway.service.on_approvals_changed(subject.key)
        assert "PermissionError" in await probe(gateway, view_of(app), "theirs", "write", app / "file")


def test_c_a_checkout_that_names_a_foreign_git_folder_gives_no_access_to_it(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "worktrees" / "x").mkdir(parents=True)
    evil = tmp_path / "evil"
    evil.mkdir()
    for target in (victim, victim / "worktrees" / "x"):
        (evil / ".git").write_text(f"gitdir: {target}\n")
        assert list_checkout_paths(evil, evil) == CheckoutPaths((str(evil),))
        assert list_checkout_paths(evil, tmp_path / "main") == CheckoutPaths((str(evil),))


def test_a_worktree_gets_the_git_folder_of_its_own_project_only(tmp_path: Path) -> None:
    app, other = make_repository(tmp_path / "app"), make_repository(tmp_path / "other")
    git(app, "worktree", "add", "-q", "-b", "fix", str(tmp_path / "fix"))
    paths = list_checkout_paths(tmp_path / "fix", app)
    assert str(app / ".git" / "objects") in paths.linkless and paths.read == (str(app / ".git"),)
    assert str(app / ".git") not in (*paths.write, *paths.linkless)
    assert list_checkout_paths(tmp_path / "fix", other) == CheckoutPaths((str(tmp_path / "fix"),))


def test_a_refusal_without_a_path_names_the_way_to_find_it() -> None:
    sandbox = ServerSandbox("workspace")
    assert explain_refusal("all is well", sandbox) == ""
    assert "mcp debug --trace" in explain_refusal("Error: EPERM", sandbox)
    text = explain_refusal("Error: EACCES: permission denied, open '/srv/data.json'", sandbox)
    assert '/srv/data.json; if it should read that: "sandbox": {"read": ["/srv/data.json"], "write": ["."]}' in text
    assert describe_sandbox(ServerSandbox("listed", ("/a",), (), False)) == (
        '{"read": ["/a"], "write": [], "network": false}'
    )


@pytest.mark.parametrize("path", ["/home/me", "/home/me/", "/home", "/", "/home/me/x/.."])
def test_no_refusal_makes_rookery_propose_the_home_folder(path: str) -> None:
    text = explain_refusal(f"Permission denied: '{path}'", ServerSandbox("workspace"), Path("/home/me"))
    assert "may have refused" in text and '"read"' not in text


def test_the_refused_calls_of_a_trace_are_found_once() -> None:
    trace = (
        '12 openat(AT_FDCWD, "/srv/x", O_RDONLY) = -1 EACCES (Permission denied)\n'
        '13 openat(AT_FDCWD, "/srv/x", O_RDONLY) = -1 EACCES (Permission denied)\n'
        '12 openat(AT_FDCWD, "/none", O_RDONLY) = -1 ENOENT (No such file or directory)\n'
        "12 socket(AF_UNIX, SOCK_STREAM, 0)  = -1 EPERM (Operation not permitted)\n"
    )
    assert find_refused_calls(trace) == [
        'openat(AT_FDCWD, "/srv/x", O_RDONLY): EACCES',
        "socket(AF_UNIX, SOCK_STREAM, 0): EPERM",
    ]


def test_this_process_is_not_confined_by_any_of_that() -> None:
    assert "NoNewPrivs:\t0" in Path(f"/proc/{os.getpid()}/status").read_text()
