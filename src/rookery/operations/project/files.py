"""The operations on the files of a workspace: read a file, list a folder, gather the context of the project."""

import base64
from pathlib import Path
from typing import Annotated, Any, Protocol

from msgspec import Meta

from rookery.files.context.engine import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET, ContextResult, ProjectContext
from rookery.files.context.section import Receipt, Section
from rookery.files.list import DEFAULT_PAGE, MAX_DEPTH, MAX_PAGE, ListingShape, list_folder
from rookery.files.read import DEFAULT_TEXT_BYTES, MAX_READ_BYTES, FileContent, read_content
from rookery.files.sandbox import SandboxRoot
from rookery.operations.operation import Caller, McpTool, RestRoute, operation
from rookery.operations.results import ContentBlocks, TextResult
from rookery.operations.target import OMIT_TARGET, WORKSPACE_PATH, InWorkspace, find_directory
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.operations import WorkspaceOperations as WorkspaceService

_MAX_LINKS = 20

_FILE = "Path of the file, relative to the root of the workspace"
_FOLDER = "Path of the folder, relative to the root of the workspace; . for the root"


class ReadFile(InWorkspace, kw_only=True):
    path: Annotated[str, Meta(description=_FILE)]
    first_line: Annotated[int, Meta(description="First line to read, counted from 1", ge=1)] = 1
    last_line: Annotated[int | None, Meta(description="Last line to read; default: the last one of the file")] = None
    max_bytes: Annotated[
        int, Meta(description="Maximum number of bytes of text to return", ge=1, le=MAX_READ_BYTES)
    ] = DEFAULT_TEXT_BYTES


class ListDirectory(InWorkspace, kw_only=True):
    path: Annotated[str, Meta(description=_FOLDER)]
    depth: Annotated[int, Meta(description="How many levels of folders to list", ge=1, le=MAX_DEPTH)] = 1
    hidden: Annotated[bool, Meta(description="If false, names that begin with a dot are left out")] = True
    sizes: Annotated[bool, Meta(description="If false, sizes are left out, which is faster in large trees")] = True
    limit: Annotated[int, Meta(description="Maximum number of entries to return", ge=1, le=MAX_PAGE)] = DEFAULT_PAGE
    cursor: Annotated[str | None, Meta(description="next_cursor of the page before, for the next page")] = None


class GetContext(InWorkspace):
    budget: Annotated[
        int, Meta(description="Approximate maximum number of tokens of the result", ge=MIN_BUDGET, le=MAX_BUDGET)
    ] = DEFAULT_BUDGET
    since: Annotated[str | None, Meta(description="Token of an earlier result: return only what has changed since")] = (
        None
    )


class GetSection(InWorkspace, kw_only=True):
    section: Annotated[str, Meta(description="Key of the section, such as git/status or files/README.md")]


class ProjectFiles(Protocol):
    """The files and contexts of workspaces. The methods raise if there is no workspace at the folder."""

    async def root(self, directory: Path) -> SandboxRoot: ...

    async def context(self, directory: Path, *, everything: bool) -> ProjectContext:
        """Return the context; with `everything` including the agents of the project's other workspaces."""
        ...


def _present_file(file: FileContent) -> ContentBlocks:
    """Return the content of a file, followed by a note if there is one."""
    meta = {"path": file.path, "size": file.size, "media_type": file.media_type, "encoding": file.encoding}
    if file.encoding is None:
        return ContentBlocks([_present_data(file)], {"rookery/file": meta})
    meta["first_line"] = file.first_line
    meta["last_line"] = file.last_line
    content: list[dict[str, Any]] = [{"type": "text", "text": file.text}]
    if file.cut or file.encoding != "utf-8":
        encoding = f"encoding {file.encoding}" if file.encoding != "utf-8" else ""
        content.append(_note_block(f"{file.path}: {'; '.join(filter(None, (encoding, file.cut)))}"))
    return ContentBlocks(content, {"rookery/file": meta})


def _present_data(file: FileContent) -> dict[str, Any]:
    if file.cut:
        return _note_block(f"{file.path}: {file.cut}")
    data = base64.b64encode(file.data).decode()
    if file.media_type.startswith("image/"):
        return {"type": "image", "data": data, "mimeType": file.media_type}
    return {"type": "resource", "resource": {"uri": file.uri, "mimeType": file.media_type, "blob": data}}


def _note_block(note: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{note}]"}


def _present_context(context: ContextResult) -> ContentBlocks:
    """Return the text of the context, with links to the sections that are missing or cut."""
    links = [
        {"type": "resource_link", "uri": receipt.uri, "name": receipt.key, "mimeType": "text/plain"}
        for receipt in [receipt for receipt in context.receipts if receipt.uri][:_MAX_LINKS]
    ]
    metadata = {"since": context.since, "receipts": [_describe_receipt(receipt) for receipt in context.receipts]}
    return ContentBlocks([{"type": "text", "text": context.text}], {"rookery/context": metadata}, links=links)


def _describe_receipt(receipt: Receipt) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "key": receipt.key,
        "status": receipt.status,
        "priority": receipt.priority,
        "tokens": receipt.tokens,
    }
    fields |= {"reason": receipt.reason} if receipt.reason else {}
    return fields | ({"uri": receipt.uri} if receipt.uri else {})


class FileOperations:
    """The operations on the files of workspaces."""

    group = "file"

    def __init__(self, workspaces: WorkspaceService, files: ProjectFiles, git: Git) -> None:
        self._workspaces = workspaces
        self._files = files
        self._git = git

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/files/content"),
        mcp=McpTool(
            "project",
            "read_file",
            "Read a file of this workspace: text, by default whole, or a range of lines; images and binary files as "
            "such. If text is cut, the result says so and how to continue. Files outside of the workspace, git's own "
            "and files for secrets are refused.",
            omit=OMIT_TARGET,
            present=_present_file,
            result=ContentBlocks,
            forbid_unknown=True,
        ),
    )
    async def read(self, caller: Caller, arguments: ReadFile) -> FileContent:
        """The file at `?path=`: its text, by default whole, or a range of lines; other content as base64.

        `cut` says what is left out, and how to continue. Files outside of the workspace, git's own and files for
        secrets are refused.
        """
        root = await self._files.root(await find_directory(self._workspaces, caller, arguments))
        return await read_content(
            root,
            arguments.path,
            first_line=arguments.first_line,
            last_line=arguments.last_line,
            max_bytes=arguments.max_bytes,
        )

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/files"),
        mcp=McpTool(
            "project",
            "list_directory",
            "List a folder of this workspace, without what .gitignore ignores: path, type (file, folder, link, other) "
            "and size of each entry, in the order of names. `denied` marks what cannot be read.",
            omit=OMIT_TARGET,
            forbid_unknown=True,
        ),
    )
    async def list(self, caller: Caller, arguments: ListDirectory) -> ListingShape | TextResult:
        """The entries of the folder at `?path=`, without what git ignores, in the order of names and in pages.

        `denied` marks what cannot be read. `next_cursor` is the `?cursor=` of the next page.
        """
        directory = await find_directory(self._workspaces, caller, arguments)
        root = await self._files.root(directory)
        try:
            listing = await list_folder(
                root,
                self._git,
                arguments.path,
                depth=arguments.depth,
                hidden=arguments.hidden,
                sizes=arguments.sizes,
                limit=arguments.limit,
                cursor=arguments.cursor,
            )
        except RookeryError:
            # If the workspace itself was closed meanwhile, report that instead.
            await self._files.root(directory)
            raise
        return TextResult(listing.to_json())

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/context"),
        mcp=McpTool(
            "project",
            "get_project_context",
            "Get an overview of this workspace before you start: its files, git status, changes and commits, notes for "
            "agents, just tasks, agents and their last messages, containers and their errors, and recent failures. It "
            "is limited to a budget of tokens, by priority; sections that do not fit are named, with where to read "
            "them.",
            omit=OMIT_TARGET,
            present=_present_context,
            result=ContentBlocks,
        ),
    )
    async def context(self, caller: Caller, arguments: GetContext) -> ContextResult:
        """An overview of a workspace for an agent or a person, limited to a `?budget=` of tokens, by priority.

        `receipts` lists the sections, also those that did not fit. `since` in the response is a token: with `?since=`
        only what has changed after that response is returned.
        """
        context = await self._get_context(caller, arguments)
        return await context.get(budget=arguments.budget, since=arguments.since)

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/context/{{section}}"),
        absent={"mcp": "the resource `context://{section}` is this section"},
    )
    async def section(self, caller: Caller, arguments: GetSection) -> Section:
        """One section of the context, whole. `receipts` of the context names the sections, such as `git/status`."""
        return await (await self._get_context(caller, arguments)).get_section(arguments.section)

    async def _get_context(self, caller: Caller, arguments: InWorkspace) -> ProjectContext:
        directory = await find_directory(self._workspaces, caller, arguments)
        return await self._files.context(directory, everything=caller.scope is None)
