"""Parity: each operation is on REST, MCP and Python, or has the reason; nothing is offered beside the table."""

import re
from pathlib import Path

import aiohttp
import pytest

from rookery.cli.session.wait import wait
from rookery.operations.operation import ADMIN_TOOLSET, Interface, Operation
from rookery.operations.sessions import WaitCondition
from rookery.operations.table import list_all_operations
from tests.support.daemon.jobs import routes
from tests.support.daemon.process import Daemon
from tests.support.mcp.caller import open_caller
from tests.support.requirements import requirement

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "operations.md"
GUIDE = PAGE.parents[1] / "guide" / "sessions.md"
MIN_WORDS = 4
# What is offered beside the table, and why.
OTHER_ROUTES = {"/socket.io/": "a connection that carries events, which are declared with their operations"}
OTHER_TOOLS = {
    "hub_find_tool": "it searches the view of its client, of which only the gateway knows",
    "hub_call_tool": "it calls any tool of the view of its client, of which only the gateway knows",
}
NEEDED: tuple[Interface, ...] = ("rest", "mcp", "python")


def list_interfaces(operation: Operation) -> set[Interface]:
    """Return the interfaces that offer an operation. Each one with a REST route has a generated method in Python."""
    declared = operation.declared
    offered: dict[Interface, object] = {
        "rest": declared.rest,
        "mcp": declared.mcp,
        "socketio": declared.socketio,
        "python": declared.python or declared.rest,
    }
    return {name for name, value in offered.items() if value is not None}


@requirement("ops.table.parity")
@pytest.mark.parametrize("operation", list_all_operations(), ids=lambda operation: operation.name)
def test_an_operation_is_on_rest_mcp_and_python_or_has_a_specific_reason(operation: Operation) -> None:
    offered, absent = list_interfaces(operation), operation.declared.absent
    assert offered.isdisjoint(absent), "it has a reason for an interface that offers it"
    assert absent.keys() >= {name for name in NEEDED if name not in offered}
    assert all(len(reason.split()) >= MIN_WORDS for reason in absent.values())


@requirement("ops.table.single")
def test_names_of_operations_routes_tools_and_events_are_unique() -> None:
    operations = list_all_operations()
    names = [operation.name for operation in operations]
    declared = [operation.declared for operation in operations]
    paths = [(rest.method, path) for each in declared if (rest := each.rest) is not None for path in rest.paths]
    tools = [each.mcp.name for each in declared if each.mcp is not None]
    events = [each.socketio for each in declared if each.socketio is not None]
    for group in (names, paths, tools, events):
        assert len(set(group)) == len(group)
    assert all(operation.summary for operation in operations)


@requirement("ops.table.single", "ops.table.parity")
def test_every_rest_route_is_declared() -> None:
    declared = {
        (rest.method, path)
        for operation in list_all_operations()
        if (rest := operation.declared.rest) is not None
        for path in rest.paths
    }
    served = {(method, path) for method, path in routes() if method != "HEAD"}
    assert declared <= served
    assert {path for _, path in served - declared} == OTHER_ROUTES.keys()


@requirement("ops.table.single", "ops.table.parity")
@pytest.mark.anyio
async def test_every_tool_that_the_daemon_offers_is_declared(daemon: Daemon) -> None:
    declared = {operation.declared.mcp.name for operation in list_all_operations() if operation.declared.mcp}
    offered: set[str] = set()
    headers = {"Authorization": f"Bearer {daemon.token}"}
    query = f"toolsets=workspace,project,session,hub,{ADMIN_TOOLSET}"
    for mode in ("list", "search"):
        async with (
            aiohttp.ClientSession() as http,
            open_caller(http, f"{daemon.runtime['url']}/mcp?{query}&mode={mode}", headers=headers) as caller,
        ):
            offered |= {tool["name"] for tool in await caller.listed("tools")}
    assert declared <= offered
    assert offered - declared == OTHER_TOOLS.keys()


@requirement("ops.table.parity")
def test_the_page_of_operations_lists_each_with_its_interfaces_and_reasons() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", page, re.MULTILINE))
    operations = list_all_operations()
    assert rows.keys() == {operation.name for operation in operations}
    for operation in operations:
        declared, row = operation.declared, rows[operation.name]
        expected = [declared.access, declared.socketio, declared.python]
        expected += [f"{declared.rest.method} {path}" for path in declared.rest.paths] if declared.rest else []
        expected += [declared.mcp.name] if declared.mcp else []
        assert all(name in row for name in expected if name is not None)
        for reason in declared.absent.values():
            assert reason.replace("<", "&lt;") in page or reason in page


def test_the_guide_to_sessions_names_every_tool_of_the_toolset() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    tools = [each.declared.mcp for each in list_all_operations() if each.declared.mcp is not None]
    names = [tool.name for tool in tools if tool.toolset == "session"]
    assert len(names) > 15 and not [name for name in names if f"`{name}`" not in guide]


@requirement("session.wait.general")
def test_the_command_line_has_an_option_for_each_condition_of_wait_for() -> None:
    conditions = WaitCondition.__annotations__["what"].__origin__.__args__
    options = {parameter.name for parameter in wait.params}
    assert set(conditions) == {"message", "toast", "idle", "tool", "file", "screen"} <= options
    assert {"sessions", "any_", "pattern", "role", "since", "timeout"} <= options
