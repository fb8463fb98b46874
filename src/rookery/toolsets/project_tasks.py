"""The tools of `project` about just: what tasks there are, and running one."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Protocol, cast

import msgspec
from msgspec import Meta

from rookery.files.just import Agree, Progress, Ran
from rookery.files.just_arguments import Arguments
from rookery.files.recipes import Justfile
from rookery.system.errors import RookeryError
from rookery.toolsets.toolset import Blocks, Nothing, Tool
from rookery.wire.provider import Ask, Call, report_progress

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]


class Parameter(msgspec.Struct):
    """`option` is how it is given on a command line, where it is not by its place; a `switch` is true or false."""

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
    parameters: list[Parameter]
    groups: list[str] = []
    confirm: list[str] = []


class Tasks(msgspec.Struct):
    """`approved` is whether they can be run as they are now."""

    tasks: list[Task]
    approved: bool


class RunTask(msgspec.Struct, forbid_unknown_fields=True):
    task_name: Annotated[str, Meta(description="Name of the task, as list_just_tasks tells it")]
    arguments: Annotated[
        list[str] | dict[str, str | list[str]],
        Meta(description="Values of its parameters: in their order, or by their names; options by their names only"),
    ] = []
    timeout: Annotated[
        Milliseconds | None, Meta(description="Most milliseconds that it may run; default: the user's setting")
    ] = None


class TaskPlace(Protocol):
    """The tasks of one workspace."""

    async def listed(self) -> tuple[Justfile | None, bool]:
        """What the justfile says, if there is one, and whether its tasks may run."""
        ...

    async def run(
        self, name: str, arguments: Arguments, seconds: float | None, agree: Agree, progress: Progress | None
    ) -> Ran: ...


def task_tools(place: Callable[[], Awaitable[TaskPlace]]) -> list[Tool]:
    """`place` answers the tasks of the workspace that a view acts in, or raises why there are none."""

    async def list_just_tasks(call: Call, given: Nothing) -> Tasks:
        justfile, approved = await (await place()).listed()
        found = list(justfile.recipes.values()) if justfile is not None else []
        return Tasks([msgspec.convert(one.described(), Task) for one in found], approved)

    async def run_just_task(call: Call, given: RunTask) -> Blocks:
        async def agree(question: str, justfile: Justfile) -> bool:
            return await _agreed(call, given.task_name, question, justfile)

        async def progress(seconds: float, line: str) -> None:
            await report_progress(call, seconds, message=line)

        seconds = given.timeout / 1000 if given.timeout is not None else None
        wanted = progress if "progressToken" in call.meta else None
        return _blocks(await (await place()).run(given.task_name, given.arguments, seconds, agree, wanted))

    return [
        Tool(
            "list_just_tasks",
            "List the tasks of this workspace's justfile, with what each does and the parameters that it takes. "
            "`confirm` has the questions that the user is asked before it runs; without `approved` none runs until "
            "the user has approved the justfile.",
            list_just_tasks,
            gives=Tasks,
            read_only=True,
        ),
        Tool(
            "run_just_task",
            "Run a task of this workspace's justfile, such as its tests, to its end: answers what it prints, its exit "
            "code and how long it took. Of long output the head and the tail are there. It reads no input.",
            run_just_task,
            takes=RunTask,
            gives=Blocks,
            destructive=True,
        ),
    ]


def _blocks(ran: Ran) -> Blocks:
    """What was printed, and after it how that ended."""
    told = f"{ran.task}: exit code {ran.exit_code} after {ran.seconds:.1f} s"
    error: RookeryError | None = None
    if ran.ending == "timeout":
        told = f"{ran.task}: ended by force, since it took longer than {ran.seconds:.1f} s"
        error = RookeryError("timeout", told, "give it more time with timeout, or find out what it waits for")
    elif not ran.ok:
        error = RookeryError("task-failed", told, "its output tells why")
    text = [{"type": "text", "text": ran.output}] if ran.output else []
    about = {"task": ran.task, "exit_code": ran.exit_code, "seconds": round(ran.seconds, 3), "cut_bytes": ran.cut}
    return Blocks([*text, {"type": "text", "text": f"[{told}]"}], {"rookery/task": about}, error)


async def _agreed(call: Call, task: str, question: str, justfile: Justfile) -> bool:
    """Ask the client's user. A modern client calls again with the answer: it counts for this very content only."""
    if not _can_be_asked(call.client.capabilities):
        raise RookeryError(
            "needs-approval",
            f"the task wants to be confirmed ({question}), and this client cannot ask its user",
            f"ask the user to run it in a terminal: just {task}",
        )
    key = "confirm-" + hashlib.sha256(f"{justfile.fingerprint}\0{question}".encode()).hexdigest()[:16]
    message = f"Run the just task {task}? It wants to be confirmed. {question}"
    asked = {"message": message, "requestedSchema": {"type": "object", "properties": dict[str, Any]()}}
    answer: Any = (await call.ask({key: Ask("elicitation/create", asked)}))[key]
    return isinstance(answer, dict) and cast(dict[str, Any], answer).get("action") == "accept"


def _can_be_asked(capabilities: Mapping[str, Any]) -> bool:
    """Whether it can show a question; one that says nothing of ways to ask means this one."""
    ways: Any = capabilities.get("elicitation")
    return ways is not None and (not ways or "form" in ways)
