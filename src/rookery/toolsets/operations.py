"""MCP tools made from operations."""

import functools
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.operations.operation import BoundOperation, Caller, McpTool, Operation, Progress, rename_parameters
from rookery.toolsets.toolset import Tool, Toolset
from rookery.wire.http.auth import OWNER, Principal
from rookery.wire.protocol.provider import Call, ClientQuestion, report_progress


def operation_tools(
    operations: Iterable[BoundOperation[Any]], toolset: str, scope: Path | None, directory: Path | None = None
) -> list[Tool]:
    """Return the tools of one toolset, for clients that may only access the workspace `scope`, or for the owner.

    `directory` is the workspace that the client has selected.
    """
    return [
        _make_tool(bound, tool, scope, directory)
        for bound in operations
        if (tool := bound.operation.declared.mcp) is not None and tool.toolset == toolset
        if scope is None or not tool.owner_only
    ]


def operation_toolset(
    operations: Iterable[BoundOperation[Any]], toolset: str, scope: Path | None, directory: Path | None = None
) -> Toolset:
    """Return a toolset that consists of operations alone; see `operation_tools`."""
    return Toolset(toolset, operation_tools(operations, toolset, scope, directory))


def _make_tool(bound: BoundOperation[Any], tool: McpTool, scope: Path | None, directory: Path | None) -> Tool:
    operation = bound.operation
    return Tool(
        tool.name,
        tool.description,
        _make_runner(bound, tool, scope, directory),
        input_type=_make_input_type(operation, tool),
        output_type=operation.result if tool.result is None else tool.result,
        read_only=not operation.declared.changes,
        destructive=tool.destructive,
    )


@functools.cache
def _make_input_type(operation: Operation, tool: McpTool) -> type[msgspec.Struct]:
    """Return the type of a tool's arguments: that of the operation, unless the tool changes any of them."""
    if tool.forbid_unknown and not (tool.names or tool.omit or tool.required or tool.fixed):
        return operation.parameters
    return rename_parameters(
        operation.parameters,
        tool.names,
        forbid_unknown=tool.forbid_unknown,
        omit=tool.omit | tool.fixed.keys(),
        required=tool.required,
    )


def _make_runner(
    bound: BoundOperation[Any], tool: McpTool, scope: Path | None, directory: Path | None
) -> Callable[[Call, Any], Awaitable[Any]]:
    principal = OWNER if scope is None else Principal("workspace", workspace=scope)
    parameters = bound.operation.parameters
    present = tool.present
    fixed = tool.fixed
    is_same_type = _make_input_type(bound.operation, tool) is parameters

    async def run(call: Call, arguments: msgspec.Struct) -> Any:
        caller = Caller(
            principal,
            scope,
            directory,
            call.session,
            progress=progress_reporter(call),
            confirm=functools.partial(ask_to_confirm, call) if tool.confirms else None,
            is_model=True,
        )
        if not is_same_type:
            arguments = parameters(**fixed, **msgspec.structs.asdict(arguments))
        result = await bound.run(caller, arguments)
        return present(result) if present is not None else result

    return run


def progress_reporter(call: Call) -> Progress | None:
    """Return a function that reports progress to a client that asked for it, None for other clients."""
    if "progressToken" not in call.meta:
        return None
    numbers = count(1)

    async def report(message: str, value: float | None = None) -> None:
        await report_progress(call, next(numbers) if value is None else value, message=message)

    return report


async def ask_to_confirm(call: Call, message: str, key: str) -> bool | None:
    """Ask the client's user to confirm a message; return None if the client cannot ask its user.

    A modern client calls again with the answer, which is valid for the same key only.
    """
    if not _supports_forms(call.client.capabilities):
        return None
    name = "confirm-" + hashlib.sha256(key.encode()).hexdigest()[:16]
    params = {"message": message, "requestedSchema": {"type": "object", "properties": dict[str, Any]()}}
    reply: Any = (await call.ask({name: ClientQuestion("elicitation/create", params)}))[name]
    return isinstance(reply, dict) and cast(dict[str, Any], reply).get("action") == "accept"


def _supports_forms(capabilities: Mapping[str, Any]) -> bool:
    """Return whether the client can show a form; an empty capability without modes means forms."""
    modes: Any = capabilities.get("elicitation")
    return modes is not None and (not modes or "form" in modes)
