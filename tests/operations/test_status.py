"""The format of the status report."""

import json

import msgspec

from rookery.operations import status
from tests.support.requirements import requirement


def fields(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


@requirement("house.status.shape")
def test_the_shape_of_status_has_every_field_that_programs_rely_on() -> None:
    assert fields(status.StatusReport) == {"daemon", "projects", "workspaces", "servers"}
    assert fields(status.DaemonStatus) >= {"pid", "url", "mcp_url", "uptime_s", "version"}
    assert fields(status.Project) >= {"id", "name", "path"}
    assert fields(status.WorkspaceReport) >= {
        *("project", "name", "path", "branch", "main", "state", "status", "agent", "mcp"),
    }
    assert fields(status.WorkspaceStatus) >= {"isDirty", "unmergedCommits", "agent"}
    assert json.loads(msgspec.json.encode(status.AgentStatus())) == {
        "type": "none",
        "counts": {"idle": 0, "busy": 0, "total": 0},
    }
    assert fields(status.AgentInfo) >= {"state", "port", "pid", "error"}
    assert fields(status.EndpointStatus) >= {
        "server_running",
        "port",
        "url",
        "connected_clients",
        "tools",
        "last_error",
    }
    assert fields(status.EndpointTool) >= {"name", "description", "parameters"}
    assert fields(status.ServerRecord) >= {
        *("name", "workspace", "status", "error", "tools", "source", "shadowed", "scope", "era"),
    }
