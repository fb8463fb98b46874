"""Prepare a new workspace: copy the files that it needs, then run the setup command of its project.

`.keepfiles` and `.worktreeinclude` in the main checkout list the files to copy. Both have the syntax of `.gitignore`
with the opposite meaning: a listed file is copied, one with a "!" is not. Git does the matching. Only files that git
ignores are copied; all others come with a branch or are somebody's work.

A setup command, and the programs that the git config of a repository names, run only after the user has approved them.
"""

import asyncio
import logging
import os
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec

from rookery.system.bus import Bus
from rookery.system.causes import explain_end, explain_os_error, is_refusal
from rookery.system.confinement.locations import confine_environment
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import copy_beneath, read_beneath, read_plain, remove_file, write_atomic
from rookery.system.git import Git, git_error
from rookery.system.process import environment
from rookery.system.process.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.workspaces.confinement import TASK_REFUSAL, WorkspaceSandbox
from rookery.workspaces.faultpoints import fault_point
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.metadata import PreparationMarker, rookery_folder, write_preparation
from rookery.workspaces.model import Workspace
from rookery.workspaces.ports import PortRanges
from rookery.workspaces.projects import Project

_CONFIG_FILE = PurePath(".rookery/config.toml")
_MAX_CONFIG_BYTES = 256 * 1024
_MAX_COMMAND_LENGTH = 16 * 1024
_MAX_LOG_BYTES = 10_000_000

logger = logging.getLogger("rookery.workspaces")

KEEPFILE_NAMES = (".keepfiles", ".worktreeinclude")
_MAX_LIST_BYTES = 256 * 1024
_LIST_TIMEOUT_SECONDS = 120.0
# How many files are copied between two progress reports.
_COPY_BATCH = 50


class ApprovalRequest(msgspec.Struct, frozen=True):
    """Something of a repository that needs an approval to run.

    `place` is the main checkout, `folder` the folder in which it would run.
    """

    kind: str
    place: str
    name: str
    content: str
    folder: str
    source: str


# Returns whether the user has approved exactly this content.
ApprovalCheck = Callable[[ApprovalRequest], Awaitable[bool]]
# Returns the sandbox of the setup command of a workspace with this git folder.
MakeSetupSandbox = Callable[[Workspace, Path, Mapping[str, str]], Awaitable[WorkspaceSandbox | None]]


def read_setup_command(workspace: Path) -> str:
    """Return `[workspace] setup` of the workspace's own `.rookery/config.toml`; "" if it is not set."""
    try:
        config: dict[str, Any] = tomllib.loads(read_beneath(workspace, _CONFIG_FILE, _MAX_CONFIG_BYTES).decode())
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise RookeryError(
            "invalid-input", f"{workspace / _CONFIG_FILE} cannot be read: {error}", "fix the file"
        ) from error
    section: object = config.get("workspace", {})
    command: object = cast(dict[str, object], section).get("setup", "") if isinstance(section, dict) else ""
    if not isinstance(command, str) or len(command) > _MAX_COMMAND_LENGTH or "\0" in command:
        raise RookeryError(
            "invalid-input", f"workspace.setup in {workspace / _CONFIG_FILE} is not a command", "fix the file"
        )
    return command.strip()


def find_setup_request(workspace: Workspace) -> ApprovalRequest | None:
    """Return the approval request for the setup command of a workspace; None if it has none."""
    command = read_setup_command(workspace.path)
    if not command:
        return None
    return ApprovalRequest(
        kind="setup",
        place=workspace.project.path,
        name="setup",
        content=command,
        folder=str(workspace.path),
        source=str(workspace.path / _CONFIG_FILE),
    )


def setup_log_path(own: Path) -> Path:
    """Return the path of the output of the last setup command.

    The file is deleted and restored with the workspace.
    """
    return rookery_folder(own) / "setup.log"


async def run_setup(
    spawner: Spawner,
    command: str,
    workspace: Path,
    own: Path,
    env: Mapping[str, str],
    seconds: float,
    sandbox: WorkspaceSandbox | None = None,
) -> None:
    """Run the setup command, in a sandbox if one is given, and stop everything that it started.

    On failure, raise with the reason and the path of the log.
    """
    log = setup_log_path(own)
    remove_file(log)
    variables = environment.allowed_environment(env)
    child = await spawner.start(
        ["/bin/sh", "-c", command],
        name="setup",
        cwd=workspace,
        env=variables if sandbox is None else confine_environment(variables, sandbox.variables),
        stdout=log,
        stderr=log,
        works_for=workspace,
        confinement=sandbox.policy if sandbox is not None else None,
    )
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        raise RookeryError(
            "timeout", f"the setup command did not end within {seconds:g} s", f"see its log: {log}"
        ) from None
    finally:
        await child.stop()
    if code != 0:
        output = _read_log_tail(log)
        reason = explain_end(code, output, (workspace, own))
        if sandbox is not None and is_refusal(output):
            reason += f"; {TASK_REFUSAL}"
        raise RookeryError("setup-failed", f"the setup command {reason}", f"see its log: {log}")


def _read_log_tail(log: Path) -> str:
    """Return the last lines of a log; "" if it is too large to read."""
    try:
        return "\n".join(read_plain(log, _MAX_LOG_BYTES).decode("utf-8", "replace").splitlines()[-20:])
    except OSError:
        return ""


async def list_files_to_copy(git: Git, checkout: Path, own: Path) -> list[PurePath]:
    """Return the files that the lists of the main checkout name; `own` is the new workspace's git folder."""
    patterns = b"\n".join(filter(None, (_read_list(checkout, name) for name in KEEPFILE_NAMES)))
    if not patterns:
        return []
    pattern_file = rookery_folder(own) / "keepfiles"
    write_atomic(pattern_file, patterns + b"\n")
    candidates = await _list_with_git(
        git, checkout, b"", "ls-files", "-z", "-o", "-i", f"--exclude-from={pattern_file}"
    )
    # A nested repository is listed as a folder, and is not copied.
    matching = [name for name in candidates if not name.endswith(b"/")]
    if not matching:
        return []
    ignored = await _list_with_git(git, checkout, b"\0".join(matching) + b"\0", "check-ignore", "-z", "--stdin")
    return [PurePath(os.fsdecode(name)) for name in ignored]


async def copy_files(
    checkout: Path, workspace: Path, names: list[PurePath], progress: Callable[[int, int], None]
) -> list[str]:
    """Copy files and return what could not be copied, with the reasons. Existing files are not changed."""
    problems: list[str] = []

    def copy(batch: list[PurePath]) -> None:
        for name in batch:
            try:
                copy_beneath(checkout, workspace, name)
            except OSError as error:
                problems.append(f"{name}: {error.strerror or error}")

    for start in range(0, len(names), _COPY_BATCH):
        progress(start, len(names))
        await asyncio.to_thread(copy, names[start : start + _COPY_BATCH])
    progress(len(names), len(names))
    return problems


def _read_list(checkout: Path, name: str) -> bytes:
    try:
        return read_beneath(checkout, PurePath(name), _MAX_LIST_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RookeryError(
            "invalid-input", f"{checkout / name} cannot be read: {error.strerror}", "fix the file"
        ) from error


async def _list_with_git(git: Git, checkout: Path, input: bytes, *args: str) -> list[bytes]:
    result = await git.run(checkout, *args, timeout=_LIST_TIMEOUT_SECONDS, input=input)
    # check-ignore exits with 1 if nothing is ignored.
    if result.returncode not in ((0, 1) if args[0] == "check-ignore" else (0,)):
        raise git_error(checkout, args[0], result)
    if result.cut:
        raise RookeryError("invalid-input", f"{', '.join(KEEPFILE_NAMES)} list too many files", "list fewer files")
    return [name for name in result.stdout.split(b"\0") if name]


class PreparationService:
    """Runs preparations in the background.

    An interrupted preparation leaves its marker and is started again at the next start of the daemon.
    """

    def __init__(
        self,
        git: Git,
        spawner: Spawner,
        events: Bus,
        ports: PortRanges,
        is_approved: ApprovalCheck,
        setup_seconds: float,
    ) -> None:
        self._git = git
        self._spawner = spawner
        self._events = events
        self._ports = ports
        self._is_approved = is_approved
        self._setup_seconds = setup_seconds
        # Makes the sandbox of a setup command.
        self.make_sandbox: MakeSetupSandbox | None = None
        self._tasks = TaskSet("preparation")
        self._running: dict[Path, asyncio.Task[None]] = {}

    def start(self, workspace: Workspace, own: Path) -> None:
        """Start the preparation of a workspace in the background, unless it is already running."""
        if own not in self._running:
            task = self._running[own] = self._tasks.start(self._prepare(workspace, own), workspace.name)
            task.add_done_callback(lambda _: self._running.pop(own, None))

    def is_running(self, own: Path) -> bool:
        return own in self._running

    async def wait(self, own: Path) -> None:
        """Wait until a running preparation has ended, successfully or not."""
        if task := self._running.get(own):
            await asyncio.wait([task])

    async def stop(self, own: Path) -> None:
        """Stop a running preparation and its setup command."""
        if task := self._running.get(own):
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        await self._tasks.close()

    async def environment(self, workspace: Workspace, own: Path) -> dict[str, str]:
        """Return the environment variables for programs in a workspace: its paths and its ports."""
        ports = await self._ports.get(own)
        return {
            "ROOKERY_PROJECT_PATH": workspace.project.path,
            "ROOKERY_WORKSPACE_NAME": workspace.name,
            "ROOKERY_WORKSPACE_PATH": str(workspace.path),
            "ROOKERY_PORT": str(ports[0]),
            "ROOKERY_PORTS": f"{ports[0]}-{ports[-1]}",
        }

    async def _prepare(self, workspace: Workspace, own: Path) -> None:
        try:
            problems = await self._copy_files(workspace, own)
            await fault_point("prepare.copied")
            await self._set_up(workspace, own)
            await fault_point("prepare.set-up")
        except RookeryError as error:
            self._fail(
                workspace, own, f"{error.message}; {error.remedy}" if error.remedy else error.message, error.code
            )
        except OSError as error:
            explained = explain_os_error(error, workspace.path)
            if explained is not None:
                self._fail(workspace, own, f"{explained.message}; {explained.remedy}", explained.code)
            else:
                self._fail(workspace, own, str(error))
        except Exception as error:
            self._fail(workspace, own, f"an internal error: {error!r}")
            raise
        else:
            write_preparation(own, None)
            await fault_point("prepare.ended")
            self._publish("workspace.ready", workspace, "ready", None, notCopied=problems)

    async def _copy_files(self, workspace: Workspace, own: Path) -> list[str]:
        write_preparation(own, PreparationMarker("copying"))
        checkout = Path(workspace.project.path)
        names = await list_files_to_copy(self._git, checkout, own)
        problems = await copy_files(
            checkout,
            workspace.path,
            names,
            lambda done, total: self._publish_progress(workspace, "copying", done=done, total=total),
        )
        for problem in problems:
            logger.warning("%s: not copied from the main checkout: %s", workspace.path, problem)
        return problems

    async def _set_up(self, workspace: Workspace, own: Path) -> None:
        request = find_setup_request(workspace)
        if request is None:
            return
        write_preparation(own, PreparationMarker("setup"))
        if not await self._is_approved(request):
            raise RookeryError(
                "needs-approval",
                f"the setup command of {workspace.project.name} is not approved: {request.content}",
                "review it, and approve it: rookery guard approve setup",
            )
        self._publish_progress(workspace, "setup", command=request.content)
        env = await self.environment(workspace, own)
        sandbox = await self.make_sandbox(workspace, own, env) if self.make_sandbox is not None else None
        await run_setup(self._spawner, request.content, workspace.path, own, env, self._setup_seconds, sandbox)

    def _fail(self, workspace: Workspace, own: Path, why: str, code: str = "internal-error") -> None:
        logger.warning("%s could not be prepared: %s", workspace.path, why)
        try:
            write_preparation(own, PreparationMarker("failed", why, code))
        except OSError:
            logger.exception("%s: the failure could not be recorded", workspace.path)
        self._publish("workspace.failed", workspace, "failed", why, code=code)

    def _publish_progress(self, workspace: Workspace, phase: str, **more: object) -> None:
        self._publish("workspace.preparing", workspace, "preparing", None, phase=phase, **more)

    def _publish(self, event: str, workspace: Workspace, state: str, error: str | None, **more: object) -> None:
        self._events.publish(event, **workspace.as_dict() | {"state": state, "error": error, "code": None} | more)


async def find_git_config_request(git: Git, project: Project) -> ApprovalRequest | None:
    """Return the approval request for the programs that a repository's config names, such as filters; None if none."""
    checkout = Path(project.path)
    programs = await git.list_programs(checkout)
    if not programs:
        return None
    return ApprovalRequest(
        "git-config", project.path, "git-config", programs, project.path, str(checkout / ".git" / "config")
    )


async def list_approval_requests(
    git: Git, projects: Sequence[Project], workspaces: Callable[[Project], Awaitable[list[LocatedWorkspace]]]
) -> list[ApprovalRequest]:
    """Return all approval requests of these projects. A project that cannot be read does not hide the others."""
    requests: list[ApprovalRequest | None] = []
    for project in projects:
        try:
            requests.append(await find_git_config_request(git, project))
            requests += [
                _find_readable_setup_request(located)
                for located in await workspaces(project)
                if located.workspace.state != "missing"
            ]
        except RookeryError as error:
            logger.info("cannot list the approval requests of %s: %s", project.id, error.message)
    return [request for request in requests if request is not None]


def _find_readable_setup_request(located: LocatedWorkspace) -> ApprovalRequest | None:
    """Return the setup request of a workspace; None if it has none or if its config cannot be read."""
    try:
        return find_setup_request(located.workspace)
    except RookeryError:
        return None  # its preparation reports the error and runs nothing
