"""The operations on the trash, which has the deleted workspaces of all projects."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rookery.operations.operation import Caller, McpTool, Parameters, RestRoute, operation
from rookery.operations.target import require_absolute
from rookery.workspaces.operations import TrashRecord, WorkspaceOperations

_Entry = Annotated[
    str, Meta(description="Id of the entry, or the name of its workspace: the newest entry with that name")
]
_Project = Annotated[
    str | None, Meta(description="Id or name of a project, which may be removed already; default: all")
]


class ListTrash(Parameters):
    project: _Project = None


class PurgeTrash(Parameters):
    entry: Annotated[
        str | None,
        Meta(description="Id of an entry, or the name of its workspace: the newest with that name; null: all entries"),
    ] = None
    project: _Project = None


class RestoreWorkspace(Parameters):
    entry: _Entry
    project: _Project = None
    to: Annotated[str | None, Meta(description="New path of the folder, absolute; default: the path that it had")] = (
        None
    )


class PurgedEntries(msgspec.Struct, frozen=True):
    """The entries that were removed from the trash."""

    purged: Sequence[TrashRecord]


class TrashOperations:
    """The operations on the trash."""

    group = "trash"

    def __init__(self, workspaces: WorkspaceOperations) -> None:
        self._workspaces = workspaces

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/trash"),
        mcp=McpTool(
            "admin",
            "trash_list",
            "List the deleted workspaces in the trash, the oldest first: id, project, name, path, branch, and size in "
            "bytes.",
            forbid_unknown=True,
        ),
    )
    async def list(self, caller: Caller, arguments: ListTrash) -> Sequence[TrashRecord]:
        """The entries of the trash (of `?project=`), the oldest first, with their size in bytes."""
        return await self._workspaces.trash.all(arguments.project)

    @operation(
        rest=RestRoute("DELETE", "/api/trash/{entry}", short_path="/api/trash"),
        mcp=McpTool(
            "admin",
            "trash_purge",
            "Remove an entry of the trash permanently, or with null all entries, and return what was removed. Use it "
            "only when you were asked to: nothing restores them.",
            # There is no default: a call without arguments must not empty the trash.
            required=frozenset({"entry"}),
            destructive=True,
            forbid_unknown=True,
        ),
    )
    async def purge(self, caller: Caller, arguments: PurgeTrash) -> PurgedEntries:
        """Remove one entry of the trash permanently, or all of them (of `?project=`); returns what was removed."""
        return PurgedEntries(await self._workspaces.trash.purge(arguments.entry, arguments.project))

    @operation(
        rest=RestRoute("POST", "/api/trash/{entry}/restore"),
        mcp=McpTool(
            "admin",
            "trash_restore",
            "Restore a deleted workspace from the trash, with its branch and its uncommitted changes, to its old path "
            "or to the path `to`. Returns the workspace.",
            forbid_unknown=True,
        ),
    )
    async def restore(self, caller: Caller, arguments: RestoreWorkspace) -> dict[str, Any]:
        """Restore a workspace to its old path or to the path `to`; returns it."""
        to = require_absolute(arguments.to) if arguments.to is not None else None
        restored = await self._workspaces.trash.restore(arguments.entry, arguments.project, to)
        return await self._workspaces.overview.summary(restored)
