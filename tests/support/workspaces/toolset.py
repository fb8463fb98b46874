"""The tools about workspaces without a gateway: for services that no daemon runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec import Raw

from rookery.operations.agents import AgentOperations
from rookery.operations.operation import BoundOperation, bind_operations
from rookery.operations.projects import ProjectOperations
from rookery.operations.status import EndpointState, EndpointTool
from rookery.operations.workspaces import WorkspaceOperations
from rookery.toolsets.operations import operation_toolset
from rookery.wire.server.traffic import Traffic
from rookery.workspaces.operations import WorkspaceOperations as WorkspaceService


class NoEndpoints:
    """The MCP servers of workspaces where none runs."""

    def state(self, workspace: Mapping[str, Any]) -> EndpointState:
        return EndpointState()

    async def tools(self, workspace: Mapping[str, Any]) -> Sequence[EndpointTool]:
        return []

    def traffic(self, workspace: Mapping[str, Any]) -> Traffic:
        return Traffic()


def bind_workspaces(service: WorkspaceService) -> list[BoundOperation[Any]]:
    agents = cast(Any, service.agents)
    return bind_operations(
        ProjectOperations(service),
        WorkspaceOperations(service, NoEndpoints, lambda: ""),
        AgentOperations(service, agents),
    )


async def call_workspace_tool(service: WorkspaceService, directory: Path, tool: str, **arguments: Any) -> Any:
    """Call a tool as the owner who has selected the workspace at `directory`, and return its structured content."""
    toolset = operation_toolset(bind_workspaces(service), "workspace", None, directory)
    call = cast(Any, SimpleNamespace(method="tools/call", meta={}, session=None, owner="owner"))
    params = {"name": tool, "arguments": Raw(json.dumps(arguments).encode())}
    result = await toolset.handle(call, params)
    return msgspec.json.decode(msgspec.json.encode(cast(Any, result)["structuredContent"]))
