"""`project`: the files, the context and the tasks of a workspace, for whoever may see nothing else."""

import base64
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from rookery.files.context.engine import Context
from rookery.files.listing import DEEPEST, LONGEST_PAGE, PAGE, ListingShape, list_folder
from rookery.files.reading import DATA_BYTES, TEXT_BYTES, Content, read
from rookery.files.sandbox import Root
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.toolsets.project_context import context_resource, context_tool
from rookery.toolsets.project_tasks import TaskPlace, task_tools
from rookery.toolsets.toolset import Blocks, Tool, Toolset, Written
from rookery.wire.provider import Call

_FILE = "Path of the file, relative to the root of the workspace"
_FOLDER = "Path of the folder, relative to the root of the workspace; . for the root"


class ReadFile(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description=_FILE)]
    first_line: Annotated[int, Meta(description="First line to read, counted from 1", ge=1)] = 1
    last_line: Annotated[int | None, Meta(description="Last line to read; default: the last one of the file")] = None
    max_bytes: Annotated[int, Meta(description="Most bytes of text to answer", ge=1, le=DATA_BYTES)] = TEXT_BYTES


class ListDirectory(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description=_FOLDER)]
    depth: Annotated[int, Meta(description="How many levels of folders to list", ge=1, le=DEEPEST)] = 1
    hidden: Annotated[bool, Meta(description="If true, also list names that begin with a dot")] = False
    sizes: Annotated[bool, Meta(description="If false, sizes are left out, which is faster in large trees")] = True
    limit: Annotated[int, Meta(description="Most entries to answer", ge=1, le=LONGEST_PAGE)] = PAGE
    cursor: Annotated[str | None, Meta(description="next_cursor of the page before, for the next page")] = None


class Place(Protocol):
    """The workspace that a view acts in. It is asked for each call, and raises why there is none."""

    async def root(self) -> Root: ...

    async def tasks(self) -> TaskPlace: ...

    async def context(self, call: Call) -> Context:
        """As far as this caller may see it."""
        ...


def project_toolset(place: Place, git: Git) -> Toolset:
    async def read_file(call: Call, given: ReadFile) -> Blocks:
        root = await place.root()
        found = await read(
            root, given.path, first_line=given.first_line, last_line=given.last_line, max_bytes=given.max_bytes
        )
        return _blocks(root, found)

    async def list_directory(call: Call, given: ListDirectory) -> Written:
        root = await place.root()
        try:
            found = await list_folder(
                root,
                git,
                given.path,
                depth=given.depth,
                hidden=given.hidden,
                sizes=given.sizes,
                limit=given.limit,
                cursor=given.cursor,
            )
        except RookeryError:
            # If the workspace itself has gone meanwhile, that is what there is to tell.
            await place.root()
            raise
        return Written(found.written())

    return Toolset(
        "project",
        [
            Tool(
                "read_file",
                "Read a file of this workspace: text, by default whole, or a range of lines; images and binary files "
                "as such. What is cut is said, with how to go on. Files outside of the workspace, git's own and files "
                "for secrets are refused.",
                read_file,
                takes=ReadFile,
                gives=Blocks,
                read_only=True,
            ),
            Tool(
                "list_directory",
                "List a folder of this workspace, without what .gitignore ignores: path, type (file, folder, link, "
                "other) and size of each entry, in the order of names. `denied` marks what cannot be read.",
                list_directory,
                takes=ListDirectory,
                gives=ListingShape,
                read_only=True,
            ),
            context_tool(place.context),
            *task_tools(place.tasks),
        ],
        [context_resource(place.context)],
    )


def _blocks(root: Root, found: Content) -> Blocks:
    """The content itself, and after it what there is to say about it, if anything."""
    meta = {"path": found.path, "size": found.size, "media_type": found.media_type, "encoding": found.encoding}
    if found.encoding is not None:
        lines = {"first_line": found.first_line, "last_line": found.last_line}
        notes = [*([f"encoding {found.encoding}"] if found.encoding != "utf-8" else []), found.cut]
        note = "; ".join(filter(None, notes))
        content: list[dict[str, Any]] = [{"type": "text", "text": found.text}]
        return Blocks(content + ([_said(f"{found.path}: {note}")] if note else []), {"rookery/file": meta | lines})
    if found.cut:
        return Blocks([_said(f"{found.path}: {found.cut}")], {"rookery/file": meta})
    data = base64.b64encode(found.data).decode()
    if found.media_type.startswith("image/"):
        return Blocks([{"type": "image", "data": data, "mimeType": found.media_type}], {"rookery/file": meta})
    inside = {"uri": root.path.joinpath(found.path).as_uri(), "mimeType": found.media_type, "blob": data}
    return Blocks([{"type": "resource", "resource": inside}], {"rookery/file": meta})


def _said(words: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{words}]"}
