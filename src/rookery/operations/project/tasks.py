"""The operations on the just tasks of a workspace: list and run them."""

from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from rookery.files.just.recipes import Justfile, RecipeArguments
from rookery.files.just.run import ConfirmRecipe, RecipeResult, ReportProgress
from rookery.operations.operation import Caller, McpTool, RestRoute, operation
from rookery.operations.results import ContentBlocks
from rookery.operations.target import OMIT_TARGET, WORKSPACE_PATH, InWorkspace, find_directory
from rookery.system.causes import describe_end
from rookery.system.errors import RookeryError
from rookery.workspaces.operations import WorkspaceOperations as WorkspaceService

_MAX_MILLISECONDS = 86_400_000

Milliseconds = Annotated[int, Meta(ge=1, le=_MAX_MILLISECONDS)]


class RunTask(InWorkspace, kw_only=True):
    task: Annotated[str, Meta(description="Name of the task, as returned by list_just_tasks")]
    arguments: Annotated[
        list[str] | dict[str, str | list[str]],
        Meta(description="Values of its parameters: in their order, or by their names; options by their names only"),
    ] = []  # noqa: RUF012 - msgspec copies it for each instance
    timeout: Annotated[
        Milliseconds | None,
        Meta(
            description="Maximum run time in milliseconds; default: the user's setting",
            extra={"unit": "milliseconds", "longest_default": _MAX_MILLISECONDS},
        ),
    ] = None
    confirm: Annotated[
        bool, Meta(description="Whether the user has agreed to what the task asks before it runs: its `confirm`")
    ] = False


class TaskParameter(msgspec.Struct):
    """One parameter of a task. `option` is its name on the command line, unless it is positional.

    A `switch` is true or false.
    """

    name: str
    required: bool
    default: str | None = None
    variadic: bool = False
    option: str | None = None
    switch: bool = False
    description: str = ""


class Task(msgspec.Struct):
    name: str
    description: str
    parameters: list[TaskParameter]
    groups: list[str] = []
    confirm: list[str] = []


class Tasks(msgspec.Struct):
    """The tasks of a workspace. `approved` is whether they can be run as they are at present."""

    tasks: list[Task]
    approved: bool


class TaskRun(msgspec.Struct, frozen=True):
    """The result of a task. `exit_code` is null if it was stopped at its time limit.

    `cut_bytes` of the output are left out. `cause` is the full disk, the missing permission or the unset variable that
    made it fail, if known.
    """

    task: str
    exit_code: int | None
    seconds: float
    output: str
    cut_bytes: int
    ending: Literal["ended", "timeout"]
    cause: str = ""


class ProjectTasks(Protocol):
    """The tasks of one workspace."""

    async def read_justfile(self) -> tuple[Justfile | None, bool]:
        """Return the content of the justfile, if there is one, and whether its tasks may run."""
        ...

    async def run(
        self,
        name: str,
        arguments: RecipeArguments,
        seconds: float | None,
        confirm: ConfirmRecipe,
        progress: ReportProgress | None,
    ) -> RecipeResult: ...


class TaskSource(Protocol):
    """The tasks of all workspaces."""

    async def tasks(self, directory: Path, *, limited: bool) -> ProjectTasks:
        """Return the tasks of the workspace at a folder; raise if there is none.

        They are `limited` for clients with the workspace's token: only a few run at a time.
        """
        ...


def _present_run(run: TaskRun) -> ContentBlocks:
    """Return the output of a task, followed by how it ended."""
    by_signal = run.exit_code is not None and run.exit_code < 0
    ending = describe_end(run.exit_code or 0) if by_signal else f"exit code {run.exit_code}"
    summary = f"{run.task}: {ending} after {run.seconds:.1f} s{f': {run.cause}' if run.cause else ''}"
    error: RookeryError | None = None
    if run.ending == "timeout":
        summary = f"{run.task}: killed because it took longer than {run.seconds:.1f} s"
        error = RookeryError("timeout", summary, "give it more time with timeout, or find out what it waits for")
    elif run.exit_code != 0:
        error = RookeryError("task-failed", summary, "see its output")
    text = [{"type": "text", "text": run.output}] if run.output else []
    metadata = {
        "task": run.task,
        "exit_code": run.exit_code,
        "seconds": round(run.seconds, 3),
        "cut_bytes": run.cut_bytes,
    }
    return ContentBlocks([*text, {"type": "text", "text": f"[{summary}]"}], {"rookery/task": metadata}, error)


class TaskOperations:
    """The operations on the just tasks of workspaces."""

    group = "task"

    def __init__(self, workspaces: WorkspaceService, source: TaskSource) -> None:
        self._workspaces = workspaces
        self._source = source

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/tasks"),
        mcp=McpTool(
            "project",
            "list_just_tasks",
            "List the tasks of this workspace's justfile, with what each does and the parameters that it takes. "
            "`confirm` has the questions that the user is asked before it runs; without `approved` none runs until "
            "the user has approved the justfile.",
            omit=OMIT_TARGET,
            forbid_unknown=True,
        ),
    )
    async def list(self, caller: Caller, arguments: InWorkspace) -> Tasks:
        """The tasks of the justfile in a workspace, and whether they are approved, so that they can be run."""
        tasks = await self._get_tasks(caller, arguments)
        justfile, approved = await tasks.read_justfile()
        recipes = justfile.recipes.values() if justfile is not None else ()
        return Tasks([msgspec.convert(recipe.describe(), Task) for recipe in recipes], approved)

    @operation(
        access="workspace",
        cancellable=True,
        # A task may run as long as the user's setting allows.
        time_limit=_MAX_MILLISECONDS / 1000,
        rest=RestRoute("POST", f"{WORKSPACE_PATH}/tasks/{{task}}/run"),
        mcp=McpTool(
            "project",
            "run_just_task",
            "Run a task of this workspace's justfile, such as its tests, to its end: returns its output, its exit code "
            "and how long it took. Long output is cut to its head and tail. The task gets no input.",
            names={"task": "task_name"},
            # The user of the client is asked instead.
            omit=OMIT_TARGET | {"confirm"},
            present=_present_run,
            result=ContentBlocks,
            destructive=True,
            forbid_unknown=True,
            confirms=True,
        ),
    )
    async def run(self, caller: Caller, arguments: RunTask) -> TaskRun:
        """Run a task of the justfile to its end; returns its output, its exit code and how long it took.

        The justfile has to be approved. A task that needs confirmation needs `confirm` to be true. The task ends when
        the client disconnects.
        """

        async def confirm(question: str, justfile: Justfile) -> bool:
            return await _confirm(caller, arguments, question, justfile)

        tasks = await self._get_tasks(caller, arguments)
        seconds = arguments.timeout / 1000 if arguments.timeout is not None else None
        result = await tasks.run(arguments.task, arguments.arguments, seconds, confirm, _progress_of(caller))
        return TaskRun(
            result.task, result.exit_code, result.seconds, result.output, result.cut, result.ending, result.cause
        )

    async def _get_tasks(self, caller: Caller, arguments: InWorkspace) -> ProjectTasks:
        directory = await find_directory(self._workspaces, caller, arguments)
        return await self._source.tasks(directory, limited=caller.scope is not None)


async def _confirm(caller: Caller, arguments: RunTask, question: str, justfile: Justfile) -> bool:
    """Return whether the user has agreed; raise if the user can be asked neither here nor by the client."""
    if caller.confirm is None and caller.scope is None:
        if arguments.confirm:
            return True
        message = f"the task needs confirmation ({question})"
        raise RookeryError("needs-approval", message, "ask the user, and then send `confirm: true`")
    message = f"Run the just task {arguments.task}? It needs confirmation. {question}"
    # Valid for this content only.
    key = f"{justfile.fingerprint}\0{question}"
    confirmed = await caller.confirm(message, key) if caller.confirm is not None else None
    if confirmed is None:
        message = f"the task needs confirmation ({question}), but this client cannot ask its user"
        raise RookeryError("needs-approval", message, f"ask the user to run it in a terminal: just {arguments.task}")
    return confirmed


def _progress_of(caller: Caller) -> ReportProgress | None:
    progress = caller.progress
    if progress is None:
        return None

    async def report(seconds: float, line: str) -> None:
        await progress(line, seconds)

    return report
