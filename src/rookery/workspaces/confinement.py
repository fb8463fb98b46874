"""The sandbox of a workspace: what an agent, a task or a command in it may reach.

The common git folder is readable, and its objects, refs and logs are writable, but without links: the user's next git
command would write to where they lead. Its hooks and config are not writable, since that command would run what they
name. The main checkout has its git folder inside, so it cannot be confined.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rookery.system.confinement.kernel import find_support, require_support
from rookery.system.confinement.locations import (
    AGENT_CONFIG_PATHS,
    PrivateFolder,
    SandboxOptions,
    add_private_folder,
    list_private_variables,
    make_base_policy,
)
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.confinement.rules import list_missing
from rookery.system.errors import RookeryError
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.worktrees import find_mismatch, read_creation_time, read_git_folder, read_registered_path

SandboxMode = Literal["off", "workspace", "strict"]

# Added to the failure of a confined task whose output looks like a refused access.
TASK_REFUSAL = (
    "its sandbox may have refused an access; see sandbox.tasks, and sandbox.read and sandbox.write to allow more"
)

_WRITTEN_BY_GIT = ("objects", "refs", "logs", "lfs")
# Without `refs` itself: it has the refs of the trash, and that of the stash.
_WRITTEN_IN_STRICT = ("objects", "logs", "lfs", "refs/heads", "refs/tags", "refs/remotes", "refs/notes")
# TCP ports that a strictly confined program may connect to, besides those of its workspace. 0 binds any free port.
_STRICT_CONNECT_PORTS = (80, 443)
_STRICT_BIND_PORTS = (0,)


@dataclass(frozen=True)
class CheckoutPaths:
    """The paths that belong to a checkout: those to write, those to write without links, and those to read besides."""

    write: tuple[str, ...]
    linkless: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


def list_checkout_paths(folder: Path, main: Path) -> CheckoutPaths:
    """Return the paths of a checkout for a program that works in it. `main` is the main checkout of its project.

    In a main checkout, the entries that it has now: its git folder with the hooks cannot be excepted otherwise. What a
    worktree names as its git folder counts only if it is in that of the project, and names the worktree. The program
    can write to the worktree, and so name another one.
    """
    own = read_git_folder(folder)
    if folder.resolve() == main.resolve():
        if own is None or own.resolve() != (folder / ".git").resolve():
            return CheckoutPaths((str(folder),))
        entries = (entry for entry in folder.iterdir() if entry.name != ".git" and not entry.is_symlink())
        return CheckoutPaths(tuple(map(str, entries)))
    common = read_git_folder(main)
    if own is None or common is None:
        return CheckoutPaths((str(folder),))
    own = own.resolve()
    common = common.resolve()
    registered = read_registered_path(own)
    if own.parent != common / "worktrees" or registered is None or registered.resolve() != folder.resolve():
        return CheckoutPaths((str(folder),))
    return CheckoutPaths((str(folder),), (str(own), *(str(common / name) for name in _WRITTEN_BY_GIT)), (str(common),))


@dataclass(frozen=True)
class WorkspaceSandbox:
    """A policy, the variables that go with it, and what of it the kernel cannot enforce."""

    policy: ConfinementPolicy
    variables: Mapping[str, str]
    missing: tuple[str, ...]
    folder: PrivateFolder


class WorkspaceSandboxes:
    """Makes the sandboxes of workspaces."""

    def __init__(
        self,
        state: Path,
        options: SandboxOptions,
        *,
        unconfined_allowed: bool = False,
        always: bool = False,
        tasks: SandboxMode = "off",
    ) -> None:
        self.options = options
        # The sandbox of just tasks and setup commands.
        self.tasks: SandboxMode = tasks
        self._state = state
        self._unconfined_allowed = unconfined_allowed
        # Whether the settings confine something in every workspace.
        self._always = always
        # By the folder of each workspace that was listed: its git folder and its private folder.
        self._listed: dict[Path, tuple[Path, Path]] = {}
        self._git_policies: dict[tuple[Path, Path], ConfinementPolicy] = {}

    def add_listed(self, workspaces: Iterable[LocatedWorkspace]) -> None:
        """Remember the folders of workspaces. None is forgotten: a confined program could pretend to have moved."""
        for located in workspaces:
            if not located.workspace.main:
                self._listed[located.workspace.path] = located.git_folder, self._folder_of(located)

    def find_git_policy(self, folder: Path) -> ConfinementPolicy | None:
        """Return what confines git in a folder: as strictly as a program of its workspace, if any is confined there.

        Such a program can make the folder a repository whose config names programs, at any moment.
        """
        for path in (folder, *folder.parents):
            if (listed := self._listed.get(path)) is not None:
                own, private = listed
                has_run = self._always or private.exists() or (self._state / "sandbox" / "servers").exists()
                if not has_run or find_support().abi < 1:
                    return None
                if (path, own) not in self._git_policies:
                    base = replace(
                        make_base_policy(Path.home(), os.environ, self.options),
                        unlisted=(),
                        connect_ports=_STRICT_CONNECT_PORTS,
                        bind_ports=(),
                    )
                    self._git_policies[path, own] = _add_checkout(base, path, own, _WRITTEN_IN_STRICT)
                return self._git_policies[path, own]
        return None

    def _folder_of(self, located: LocatedWorkspace) -> Path:
        """Return the folder with the private folder of a workspace.

        Not by the name of the workspace, which it can change: it could take that of another one, and read its sessions.
        """
        return self._state / "sandbox" / located.workspace.project.id / located.git_folder.name

    def make(
        self,
        located: LocatedWorkspace,
        mode: Literal["workspace", "strict"],
        environment: Mapping[str, str],
        ports: tuple[int, ...] = (),
    ) -> WorkspaceSandbox | None:
        """Return the sandbox of a workspace, and create its folder. `ports` are those that strict programs may use.

        Where nothing can be confined, raise RookeryError, or return None if the settings allow that.
        """
        try:
            require_support()
            return self._make(located, mode, environment, ports)
        except RookeryError as error:
            if self._unconfined_allowed and error.code == "sandbox-unavailable":
                return None
            raise

    def _make(
        self,
        located: LocatedWorkspace,
        mode: Literal["workspace", "strict"],
        environment: Mapping[str, str],
        ports: tuple[int, ...],
    ) -> WorkspaceSandbox:
        workspace = located.workspace
        own = located.git_folder
        if workspace.main:
            raise RookeryError(
                "sandbox-unavailable",
                f"the main checkout {workspace.path} cannot be confined: its git folder, with hooks that git runs, is "
                "inside",
                "use a workspace instead: rookery ws create NAME",
            )
        # The workspace can write to its own git folder, so what that says of its place is checked.
        if mismatch := find_mismatch(workspace.path, own):
            raise RookeryError("workspace-not-found", f"{workspace.path} cannot be confined: {mismatch}")
        common = read_git_folder(Path(workspace.project.path))
        if common is None or own.parent != common.resolve() / "worktrees":
            raise RookeryError("workspace-not-found", f"{workspace.path} has no git folder in that of its project")
        folder = self._create_folder(located)
        home = Path(environment.get("HOME") or Path.home())
        base = make_base_policy(home, environment, self.options)
        base = replace(base, read=(*base.read, *(str(home / name) for name in AGENT_CONFIG_PATHS)))
        written = _WRITTEN_BY_GIT if mode == "workspace" else _WRITTEN_IN_STRICT
        policy = _add_checkout(add_private_folder(base, folder), workspace.path, own, written)
        if mode == "strict":
            policy = replace(
                policy,
                unlisted=(),
                connect_ports=tuple(sorted({*_STRICT_CONNECT_PORTS, *ports})),
                bind_ports=tuple(sorted({*_STRICT_BIND_PORTS, *ports})),
            )
        variables = list_private_variables(environment, folder)
        return WorkspaceSandbox(policy, variables, list_missing(find_support(), policy), folder)

    def _create_folder(self, located: LocatedWorkspace) -> PrivateFolder:
        """Create the private folder of a workspace; that of an earlier one with the same git folder is removed."""
        parent = self._folder_of(located)
        folder = PrivateFolder(parent / str(read_creation_time(located.git_folder)))
        if not folder.path.is_dir():
            shutil.rmtree(parent, ignore_errors=True)
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.create()
        return folder


def _add_checkout(policy: ConfinementPolicy, path: Path, own: Path, written: Iterable[str]) -> ConfinementPolicy:
    """Return a policy that may also write to a worktree and what git writes for it; `own` is its git folder."""
    common = own.parents[1]
    return replace(
        policy,
        execute=(*policy.execute, str(common)),
        write=(*policy.write, str(path)),
        linkless=(*policy.linkless, str(own), *(str(common / name) for name in written)),
    )
