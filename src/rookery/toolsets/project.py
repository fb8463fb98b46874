"""`project`: the files, the context and the just tasks of a workspace."""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Protocol, cast
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta

from rookery.files.context.engine import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET, ContextResult, ProjectContext
from rookery.files.context.section import Receipt
from rookery.files.just.recipes import Justfile, RecipeArguments
from rookery.files.just.run import ConfirmRecipe, RecipeResult, ReportProgress
from rookery.files.list import DEFAULT_PAGE, MAX_DEPTH, MAX_PAGE, ListingShape, list_folder
from rookery.files.read import DEFAULT_TEXT_BYTES, MAX_READ_BYTES, FileContent, read_content
from rookery.files.sandbox import SandboxRoot
from rookery.system.causes import describe_end
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.toolsets.resources import Resource
from rookery.toolsets.toolset import ContentBlocks, NoArguments, TextResult, Tool, Toolset
from rookery.wire.protocol.provider import Call, ClientQuestion, report_progress

SCHEME = "context://"
# Earlier protocol revisions have no resource links in content.
_LINKS_SINCE = "2025-06-18"
_MAX_LINKS = 20

_FILE = "Path of the file, relative to the root of the workspace"
_FOLDER = "Path of the folder, relative to the root of the workspace; . for the root"


class GetContext(msgspec.Struct):
    """The arguments of get_project_context. Others are ignored, because clients have always called it without any."""

    budget: Annotated[
        int, Meta(description="Approximate maximum number of tokens of the result", ge=MIN_BUDGET, le=MAX_BUDGET)
    ] = DEFAULT_BUDGET
    since: Annotated[str | None, Meta(description="Token of an earlier result: return only what has changed since")] = (
        None
    )


ReadContext = Callable[[Call], Awaitable[ProjectContext]]


def context_tool(context: ReadContext) -> Tool:
    """Return the tool for the project context.

    `context` returns that of the workspace that a view acts in, as far as the caller may access it.
    """

    async def get_project_context(call: Call, arguments: GetContext) -> ContentBlocks:
        result = await (await context(call)).get(budget=arguments.budget, since=arguments.since)
        links = _links(result) if call.client.revision >= _LINKS_SINCE else []
        receipts = [_describe_part(receipt) for receipt in result.receipts]
        metadata = {"since": result.since, "receipts": receipts}
        return ContentBlocks([{"type": "text", "text": result.text}, *links], {"rookery/context": metadata})

    return Tool(
        "get_project_context",
        "Get an overview of this workspace before you start: its files, git status, changes and commits, notes "
        "for agents, just tasks, agents and their last messages, containers and their errors, and recent failures. It "
        "is limited to a budget of tokens, by priority; sections that do not fit are named, with where to read them.",
        get_project_context,
        input_type=GetContext,
        output_type=ContentBlocks,
        read_only=True,
    )


def context_resource(context: ReadContext) -> Resource:
    """Return the resource template with one section of the context each."""

    async def read(call: Call, uri: str) -> str:
        return (await (await context(call)).get_section(unquote(uri.removeprefix(SCHEME)))).text

    async def complete(call: Call, prefix: str) -> list[str]:
        return [quote(key) for key in await (await context(call)).keys() if key.startswith(unquote(prefix))]

    return Resource(
        f"{SCHEME}{{+section}}",
        "context",
        "One section of the project's context, whole. get_project_context names the sections, such as git/status, "
        "tree, tasks or files/README.md.",
        read,
        complete=complete,
    )


def _links(answer: ContextResult) -> list[dict[str, Any]]:
    """Return links to the sections that are missing or cut."""
    receipts = [receipt for receipt in answer.receipts if receipt.uri]
    return [
        {"type": "resource_link", "uri": receipt.uri, "name": receipt.key, "mimeType": "text/plain"}
        for receipt in receipts[:_MAX_LINKS]
    ]


def _describe_part(receipt: Receipt) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "key": receipt.key,
        "status": receipt.status,
        "priority": receipt.priority,
        "tokens": receipt.tokens,
    }
    fields |= {"reason": receipt.reason} if receipt.reason else {}
    return fields | ({"uri": receipt.uri} if receipt.uri else {})


Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]


class Parameter(msgspec.Struct):
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
    parameters: list[Parameter]
    groups: list[str] = []
    confirm: list[str] = []


class Tasks(msgspec.Struct):
    """The tasks of a workspace. `approved` is whether they can be run as they are at present."""

    tasks: list[Task]
    approved: bool


class RunTask(msgspec.Struct, forbid_unknown_fields=True):
    task_name: Annotated[str, Meta(description="Name of the task, as returned by list_just_tasks")]
    arguments: Annotated[
        list[str] | dict[str, str | list[str]],
        Meta(description="Values of its parameters: in their order, or by their names; options by their names only"),
    ] = []
    timeout: Annotated[
        Milliseconds | None, Meta(description="Maximum run time in milliseconds; default: the user's setting")
    ] = None


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


def task_tools(get_tasks: Callable[[], Awaitable[ProjectTasks]]) -> list[Tool]:
    """Return the tools for just tasks.

    `get_tasks` returns the tasks of the workspace that a view acts in, or raises if there are none.
    """

    async def list_just_tasks(call: Call, arguments: NoArguments) -> Tasks:
        justfile, approved = await (await get_tasks()).read_justfile()
        recipes = list(justfile.recipes.values()) if justfile is not None else []
        return Tasks([msgspec.convert(recipe.describe(), Task) for recipe in recipes], approved)

    async def run_just_task(call: Call, arguments: RunTask) -> ContentBlocks:
        async def confirm(question: str, justfile: Justfile) -> bool:
            return await _confirm(call, arguments.task_name, question, justfile)

        async def progress(seconds: float, line: str) -> None:
            await report_progress(call, seconds, message=line)

        seconds = arguments.timeout / 1000 if arguments.timeout is not None else None
        on_progress = progress if "progressToken" in call.meta else None
        return _task_blocks(
            await (await get_tasks()).run(arguments.task_name, arguments.arguments, seconds, confirm, on_progress)
        )

    return [
        Tool(
            "list_just_tasks",
            "List the tasks of this workspace's justfile, with what each does and the parameters that it takes. "
            "`confirm` has the questions that the user is asked before it runs; without `approved` none runs until "
            "the user has approved the justfile.",
            list_just_tasks,
            output_type=Tasks,
            read_only=True,
        ),
        Tool(
            "run_just_task",
            "Run a task of this workspace's justfile, such as its tests, to its end: returns its output, its exit "
            "code and how long it took. Long output is cut to its head and tail. The task gets no input.",
            run_just_task,
            input_type=RunTask,
            output_type=ContentBlocks,
            destructive=True,
        ),
    ]


def _task_blocks(result: RecipeResult) -> ContentBlocks:
    """Return the output of a task, followed by how it ended."""
    by_signal = result.exit_code is not None and result.exit_code < 0
    ending = describe_end(result.exit_code or 0) if by_signal else f"exit code {result.exit_code}"
    summary = f"{result.task}: {ending} after {result.seconds:.1f} s{f': {result.cause}' if result.cause else ''}"
    error: RookeryError | None = None
    if result.ending == "timeout":
        summary = f"{result.task}: killed because it took longer than {result.seconds:.1f} s"
        error = RookeryError("timeout", summary, "give it more time with timeout, or find out what it waits for")
    elif not result.ok:
        error = RookeryError("task-failed", summary, "see its output")
    text = [{"type": "text", "text": result.output}] if result.output else []
    metadata = {
        "task": result.task,
        "exit_code": result.exit_code,
        "seconds": round(result.seconds, 3),
        "cut_bytes": result.cut,
    }
    return ContentBlocks([*text, {"type": "text", "text": f"[{summary}]"}], {"rookery/task": metadata}, error)


async def _confirm(call: Call, task: str, question: str, justfile: Justfile) -> bool:
    """Ask the client's user to confirm. A modern client calls again with the answer, valid for this content only."""
    if not _supports_forms(call.client.capabilities):
        raise RookeryError(
            "needs-approval",
            f"the task needs confirmation ({question}), but this client cannot ask its user",
            f"ask the user to run it in a terminal: just {task}",
        )
    key = "confirm-" + hashlib.sha256(f"{justfile.fingerprint}\0{question}".encode()).hexdigest()[:16]
    message = f"Run the just task {task}? It needs confirmation. {question}"
    params = {"message": message, "requestedSchema": {"type": "object", "properties": dict[str, Any]()}}
    reply: Any = (await call.ask({key: ClientQuestion("elicitation/create", params)}))[key]
    return isinstance(reply, dict) and cast(dict[str, Any], reply).get("action") == "accept"


def _supports_forms(capabilities: Mapping[str, Any]) -> bool:
    """Return whether the client can show a form; an empty capability without modes means forms."""
    modes: Any = capabilities.get("elicitation")
    return modes is not None and (not modes or "form" in modes)


class ReadFile(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description=_FILE)]
    first_line: Annotated[int, Meta(description="First line to read, counted from 1", ge=1)] = 1
    last_line: Annotated[int | None, Meta(description="Last line to read; default: the last one of the file")] = None
    max_bytes: Annotated[
        int, Meta(description="Maximum number of bytes of text to return", ge=1, le=MAX_READ_BYTES)
    ] = DEFAULT_TEXT_BYTES


class ListDirectory(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description=_FOLDER)]
    depth: Annotated[int, Meta(description="How many levels of folders to list", ge=1, le=MAX_DEPTH)] = 1
    hidden: Annotated[bool, Meta(description="If true, also list names that begin with a dot")] = False
    sizes: Annotated[bool, Meta(description="If false, sizes are left out, which is faster in large trees")] = True
    limit: Annotated[int, Meta(description="Maximum number of entries to return", ge=1, le=MAX_PAGE)] = DEFAULT_PAGE
    cursor: Annotated[str | None, Meta(description="next_cursor of the page before, for the next page")] = None


class ProjectFiles(Protocol):
    """The workspace that a view acts in. It is looked up for each call; the methods raise if there is none."""

    async def root(self) -> SandboxRoot: ...

    async def tasks(self) -> ProjectTasks: ...

    async def context(self, call: Call) -> ProjectContext:
        """Return the context, as far as this caller may access it."""
        ...


def project_toolset(files: ProjectFiles, git: Git) -> Toolset:
    """Return the `project` toolset for the workspace that a view acts in."""

    async def read_file(call: Call, arguments: ReadFile) -> ContentBlocks:
        root = await files.root()
        content = await read_content(
            root,
            arguments.path,
            first_line=arguments.first_line,
            last_line=arguments.last_line,
            max_bytes=arguments.max_bytes,
        )
        return _file_blocks(root, content)

    async def list_directory(call: Call, arguments: ListDirectory) -> TextResult:
        root = await files.root()
        try:
            listing = await list_folder(
                root,
                git,
                arguments.path,
                depth=arguments.depth,
                hidden=arguments.hidden,
                sizes=arguments.sizes,
                limit=arguments.limit,
                cursor=arguments.cursor,
            )
        except RookeryError:
            # If the workspace itself was closed meanwhile, report that instead.
            await files.root()
            raise
        return TextResult(listing.to_json())

    return Toolset(
        "project",
        [
            Tool(
                "read_file",
                "Read a file of this workspace: text, by default whole, or a range of lines; images and binary files "
                "as such. If text is cut, the result says so and how to continue. Files outside of the workspace, "
                "git's own and files for secrets are refused.",
                read_file,
                input_type=ReadFile,
                output_type=ContentBlocks,
                read_only=True,
            ),
            Tool(
                "list_directory",
                "List a folder of this workspace, without what .gitignore ignores: path, type (file, folder, link, "
                "other) and size of each entry, in the order of names. `denied` marks what cannot be read.",
                list_directory,
                input_type=ListDirectory,
                output_type=ListingShape,
                read_only=True,
            ),
            context_tool(files.context),
            *task_tools(files.tasks),
        ],
        [context_resource(files.context)],
    )


def _file_blocks(root: SandboxRoot, file: FileContent) -> ContentBlocks:
    """Return the content of a file, followed by a note if there is one."""
    meta = {"path": file.path, "size": file.size, "media_type": file.media_type, "encoding": file.encoding}
    if file.encoding is not None:
        lines = {"first_line": file.first_line, "last_line": file.last_line}
        notes = [*([f"encoding {file.encoding}"] if file.encoding != "utf-8" else []), file.cut]
        note = "; ".join(filter(None, notes))
        content: list[dict[str, Any]] = [{"type": "text", "text": file.text}]
        return ContentBlocks(
            content + ([_note_block(f"{file.path}: {note}")] if note else []), {"rookery/file": meta | lines}
        )
    if file.cut:
        return ContentBlocks([_note_block(f"{file.path}: {file.cut}")], {"rookery/file": meta})
    data = base64.b64encode(file.data).decode()
    if file.media_type.startswith("image/"):
        return ContentBlocks([{"type": "image", "data": data, "mimeType": file.media_type}], {"rookery/file": meta})
    resource = {"uri": root.path.joinpath(file.path).as_uri(), "mimeType": file.media_type, "blob": data}
    return ContentBlocks([{"type": "resource", "resource": resource}], {"rookery/file": meta})


def _note_block(note: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{note}]"}
