"""The sandbox of a workspace: what works in it, and attacks from inside."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rookery.system.confinement.kernel import find_support, find_trusted_path
from rookery.system.confinement.locations import SandboxOptions, confine_environment
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import CompletedCommand, Spawner
from rookery.workspaces.confinement import WorkspaceSandboxes
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import Worktree
from tests.support.confinement import ATTACKS, SECRET, World, make_world
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("confined")) as world:
        yield world


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner(new_id())
    yield made
    await made.stop_all()


async def run(spawner: Spawner, world: World, command: str, *, confine: bool) -> CompletedCommand:
    variables = confine_environment(world.variables, world.sandbox.variables) if confine else world.variables
    policy = world.sandbox.policy if confine else None
    return await spawner.run(
        ["sh", "-c", command], name="attack", cwd=world.workspace, env=variables, timeout=60, confinement=policy
    )


@requirement("guard.sandbox.agent", "guard.sandbox.owner")
@pytest.mark.parametrize("id_", ATTACKS)
async def test_an_attack_succeeds_unconfined_and_fails_confined(
    spawner: Spawner, confined: World, tmp_path: Path, id_: str
) -> None:
    attack = ATTACKS[id_]
    before = confined.picture()
    done = await run(spawner, confined, attack.command, confine=True)
    assert done.returncode != 0, done
    assert SECRET.encode() not in done.stdout
    assert confined.picture() == before
    if attack.root and os.geteuid() != 0:
        return
    with make_world(tmp_path / "free") as free:
        done = await run(spawner, free, attack.command, confine=False)
        assert done.returncode == 0, done
        assert (SECRET.encode() in done.stdout) == attack.reads


WORK = {
    "commit": "echo x > a && git add a && git commit -q -m inside && test $(git log -1 --format=%s) = inside",
    "branch-and-merge": "git switch -q -c more && git commit -q --allow-empty -m m && git switch -q fix && "
    "git merge -q more",
    "rebase": "git switch -q -c side HEAD && git commit -q --allow-empty -m s && git rebase -q fix && "
    "git switch -q fix",
    "stash": "echo y > b && git add b && git stash push -q && git stash list | grep stash",
    "a-branch-with-a-slash": "git switch -q -c a/b && git commit -q --allow-empty -m o && git switch -q fix",
    "pack-and-fetch": "git clone -q . c && git -C c commit -q --allow-empty -m c && git fetch -q ./c HEAD && "
    "git repack -q",
    "amend": "git commit -q --amend --allow-empty -m amended && git reset -q --soft HEAD && git tag inside",
    "apply-mail": "echo m > mailed && git add mailed && git commit -q -m mail && git format-patch -q -1 --stdout > p "
    "&& git reset -q --hard HEAD~1 && git am -q p",
    "temporary-files": 'test -w "$TMPDIR" && t=$(mktemp) && echo x > $t',
    "caches": 'echo x > "$XDG_CACHE_HOME/x" && echo x > "$XDG_DATA_HOME/x" && mkdir -p "$npm_config_cache"',
    "semaphores": '"$PYTHON" -c "import multiprocessing as m; m.Lock()"',
    "a-pool": '"$PYTHON" -c "import multiprocessing as m; print(m.Pool(2).map(abs, [-1]))"',
    "a-server-and-its-client": '"$PYTHON" -c "import socket; s = socket.create_server((\'127.0.0.1\', 0)); '
    "socket.create_connection(s.getsockname())\"",
    "a-child-is-signalled": "sleep 60 & kill $!",
    "a-script-runs": 'printf "#!/bin/sh\\nexit 0" > run && chmod +x run && ./run',
    "hard-links-inside": "mkdir -p d && echo x > e && ln e d/f && mv d/f g",
    "devices": "echo x > /dev/null && head -c 4 /dev/urandom > /dev/null",
    "the-processors-are-counted": "nproc && cat /proc/self/status > /dev/null",
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
async def test_ordinary_work_succeeds_confined(spawner: Spawner, confined: World, name: str) -> None:
    user = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
    done = await run(spawner, confined, user + WORK[name], confine=True)
    assert done.returncode == 0, done


async def test_a_strict_sandbox_protects_the_refs_of_the_trash(
    spawner: Spawner, confined: World, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "worktree", "add", "-q", "-b", "fix", str(tmp_path / "fix"))
    git(app, "update-ref", "refs/rookery/trash/1-old", "HEAD")
    sandbox = WorkspaceSandboxes(tmp_path / "state", SandboxOptions()).make(
        located(app, tmp_path / "fix"), "strict", confined.variables
    )
    assert sandbox is not None
    strict = World(tmp_path, sandbox, tmp_path / "fix", confined.variables)
    assert (await run(spawner, strict, "git update-ref -d refs/rookery/trash/1-old", confine=True)).returncode != 0
    assert (await run(spawner, strict, "git update-ref refs/heads/mine HEAD", confine=True)).returncode == 0
    assert "refs/rookery/trash/1-old" in git(app, "for-each-ref")


def located(app: Path, path: Path, *, main: bool = False, own: Path | None = None) -> LocatedWorkspace:
    workspace = Workspace(Project("app-1", "app", str(app)), "fix", path, "fix", main, "ready")
    return LocatedWorkspace(workspace, Worktree(path, main=main), own or app / ".git" / "worktrees" / path.name)


def test_the_main_checkout_is_not_confined(tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    for allowed in (False, True):
        sandboxes = WorkspaceSandboxes(tmp_path / "state", SandboxOptions(), unconfined_allowed=allowed)
        if allowed:
            assert sandboxes.make(located(app, app, main=True, own=app / ".git"), "workspace", {}) is None
        else:
            with pytest.raises(RookeryError, match="cannot be confined") as failure:
                sandboxes.make(located(app, app, main=True, own=app / ".git"), "workspace", {})
            assert failure.value.code == "sandbox-unavailable"


def test_a_workspace_that_names_the_folder_of_another_gets_no_sandbox(tmp_path: Path) -> None:
    """It can write to its own git folder, and so claim to be elsewhere."""
    app = make_repository(tmp_path / "app")
    for name in ("fix", "other"):
        git(app, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    sandboxes = WorkspaceSandboxes(tmp_path / "state", SandboxOptions())
    claimed = located(app, tmp_path / "other", own=app / ".git" / "worktrees" / "fix")
    with pytest.raises(RookeryError):
        sandboxes.make(claimed, "workspace", {})
    foreign = make_repository(tmp_path / "foreign")
    with pytest.raises(RookeryError):
        sandboxes.make(located(foreign, tmp_path / "fix", own=app / ".git" / "worktrees" / "fix"), "workspace", {})


def test_a_link_that_a_confined_program_planted_directs_no_rule(tmp_path: Path) -> None:
    for name in ("writable", "secret", "plain/sub"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "writable" / "planted").symlink_to(tmp_path / "secret")
    (tmp_path / "through").symlink_to("writable/planted/../sub")
    (tmp_path / "dotfile").symlink_to("plain")
    (tmp_path / "loop").symlink_to("loop")
    writable = {str(tmp_path / "writable")}
    assert find_trusted_path(str(tmp_path / "dotfile" / "sub"), writable) == str(tmp_path / "plain" / "sub")
    assert find_trusted_path(str(tmp_path / "writable"), writable) == str(tmp_path / "writable")
    for name in ("through", "writable/planted", "plain/../writable/planted", "loop"):
        assert find_trusted_path(str(tmp_path / name), writable) is None
    assert find_trusted_path("/", writable) == "/"


@requirement("guard.sandbox.agent", "guard.sandbox.owner")
def test_a_workspace_that_takes_the_name_and_age_of_another_keeps_its_own_folder(tmp_path: Path) -> None:
    """A confined program can write both: they are in its git folder."""
    app = make_repository(tmp_path / "app")
    sandboxes = WorkspaceSandboxes(tmp_path / "state", SandboxOptions())
    folders: list[Path] = []
    for name in ("other", "fix"):
        git(app, "worktree", "add", "-q", "-b", name, str(tmp_path / name))
        own = app / ".git" / "worktrees" / name
        os.utime(own / "commondir", (1_700_000_000, 1_700_000_000))
        sandbox = sandboxes.make(located(app, tmp_path / name), "workspace", {})
        assert sandbox is not None
        folders.append(sandbox.folder.path)
        (folders[-1] / "data" / "history").touch()
    assert folders[0] != folders[1]
    assert all((folder / "data" / "history").exists() for folder in folders)


def test_a_new_workspace_of_the_same_name_gets_a_new_folder(tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    sandboxes = WorkspaceSandboxes(tmp_path / "state", SandboxOptions())
    folders: list[Path] = []
    for _ in range(2):
        git(app, "worktree", "add", "-q", "-B", "fix", str(tmp_path / "fix"))
        sandbox = sandboxes.make(located(app, tmp_path / "fix"), "workspace", {})
        assert sandbox is not None and sandbox.missing == ()
        folders.append(sandbox.folder.path)
        (folders[-1] / "data" / "history").touch()
        shutil.rmtree(tmp_path / "fix")
        git(app, "worktree", "prune")
    assert folders[0] != folders[1] and not folders[0].exists()
    assert find_support().abi >= 7
