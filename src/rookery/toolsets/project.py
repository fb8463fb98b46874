"""`project`: the files, the context and the just tasks of a workspace."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from rookery.files.context.engine import ProjectContext
from rookery.operations.operation import BoundOperation
from rookery.operations.project.files import ProjectFiles
from rookery.operations.target import no_workspace_error
from rookery.toolsets.operations import operation_tools
from rookery.toolsets.resources import Resource
from rookery.toolsets.toolset import Toolset
from rookery.wire.protocol.provider import Call

SCHEME = "context://"


def project_toolset(
    operations: Sequence[BoundOperation[Any]], files: ProjectFiles, scope: Path | None, directory: Path | None
) -> Toolset:
    """Return the toolset of a view that acts in the workspace at `directory`, or in none.

    `scope` is the only workspace that the clients of the view may access, None for the owner.
    """
    tools = operation_tools(operations, "project", scope, directory)
    return Toolset("project", tools, [_make_context_resource(files, scope, directory)])


def _make_context_resource(files: ProjectFiles, scope: Path | None, directory: Path | None) -> Resource:
    """Return the resource template with one section of the context each."""

    async def get_context() -> ProjectContext:
        if directory is None:
            raise no_workspace_error()
        return await files.context(directory, everything=scope is None)

    async def read(call: Call, uri: str) -> str:
        return (await (await get_context()).get_section(unquote(uri.removeprefix(SCHEME)))).text

    async def complete(call: Call, prefix: str) -> list[str]:
        return [quote(key) for key in await (await get_context()).keys() if key.startswith(unquote(prefix))]

    return Resource(
        f"{SCHEME}{{+section}}",
        "context",
        "One section of the project's context, whole. get_project_context names the sections, such as git/status, "
        "tree, tasks or files/README.md.",
        read,
        complete=complete,
    )
