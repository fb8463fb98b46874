"""Every operation as every kind of caller, on a real daemon: who may call it is what its declaration says."""

from collections.abc import Mapping
from typing import Any

import pytest

from rookery.operations.operation import Access, Operation
from tests.support.cli.user import user
from tests.support.daemon.jobs import JobRunner, start_job_runner
from tests.support.daemon.operation_calls import (
    CallerKind,
    OperationCall,
    find_refusal,
    make_rest_calls,
    make_tool_calls,
    take_picture,
)
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

# The kinds of callers that may call an operation over REST, by its access.
SOCKET, TERMINAL, PORT = "the owner over the socket", "the owner at a terminal", "the owner over the port"
STARTED, OWN, OTHER = "a process started by Rookery", "the token of its workspace", "the token of another workspace"
NOBODY, FOREIGN = "a client without a token", "a client with an unknown token"
EVERYBODY = {SOCKET, TERMINAL, PORT, STARTED, OWN, OTHER, NOBODY, FOREIGN}
MAY_CALL: dict[Access, set[str]] = {
    "anyone": EVERYBODY,
    "owner": {SOCKET, TERMINAL, PORT},
    "workspace": {SOCKET, TERMINAL, PORT},
    "socket": {SOCKET, TERMINAL},
    "person": {SOCKET, TERMINAL},
    "terminal": {TERMINAL},
}
# The toolsets that a client without a token may use, where `auth` is `loopback`.
LOOPBACK_TOOLSETS = {"workspace", "project"}


@pytest.fixture(params=["token", "loopback"])
async def inside(request: pytest.FixtureRequest) -> Any:
    """A daemon in each mode of authentication, with three workspaces, one of them in the trash."""
    settings = [f"auth={request.param}", "agents.version=path", "agents.toolsets=workspace,project,session,hub"]
    async with start_job_runner(*settings, env={"PATH": "/usr/bin:/bin"}) as runner:
        for words in (("create", "own"), ("create", "gone"), ("rm", "gone")):
            done = user("ws", *words, cwd=runner.app)
            assert done.returncode == 0, done.stderr
        yield runner


def list_callers(inside: JobRunner) -> list[CallerKind]:
    return [
        CallerKind(SOCKET, over_socket=True),
        CallerKind(TERMINAL, over_socket=True, process="terminal"),
        CallerKind(PORT, token=inside.daemon.token),
        CallerKind(STARTED, over_socket=True, process="started"),
        CallerKind(OWN, token=inside.token("own")),
        CallerKind(OTHER, token=inside.token("fix")),
        CallerKind(NOBODY),
        CallerKind(FOREIGN, token="rk_" + "x" * 43),
    ]


def list_existing_names(inside: JobRunner) -> Mapping[str, str]:
    """Return the names of what exists, by the names of parameters."""
    return {
        "project": inside.project,
        "name": "other",
        "workspace": "other",
        "entry": "gone",
        "path": str(inside.other),
        "directory": str(inside.other),
    }


async def check(inside: JobRunner, caller: CallerKind, calls: list[OperationCall], *, allowed: bool) -> list[str]:
    """Send these calls, and return those that were refused although they are allowed, or the other way round."""
    wrong: list[str] = []
    for call, response in zip(calls, await caller.send(inside, calls), strict=True):
        refusal = find_refusal(response)
        if (refusal is None) != allowed:
            wrong.append(f"{caller.name}: {call.name}: {response['status']} {response['body'][:300]}")
    return wrong


@requirement("ops.table.single", "ws.agent.principal", "ws.agent.may-not")
async def test_c23_every_route_is_open_to_the_callers_that_its_declaration_names(inside: JobRunner) -> None:
    harmless, real = [*make_rest_calls()], [*make_rest_calls(list_existing_names(inside))]
    assert len(harmless) == len(real) > 40
    wrong: list[str] = []
    before = await take_picture(inside)
    for caller in list_callers(inside):
        refused = [call for call in real if caller.name not in MAY_CALL[call.operation.declared.access]]
        wrong += await check(inside, caller, refused, allowed=False)
    assert not wrong, "\n".join(wrong)
    assert await take_picture(inside) == before
    for caller in list_callers(inside):
        allowed = [call for call in harmless if caller.name in MAY_CALL[call.operation.declared.access]]
        wrong += await check(inside, caller, allowed, allowed=True)
    assert not wrong, "\n".join(wrong)


def may_use_tool(caller: str, operation: Operation, auth: str) -> bool:
    """Return whether a caller may call the tool of an operation, at the endpoint for all or at its own workspace's."""
    tool, access = operation.declared.mcp, operation.declared.access
    assert tool is not None
    if caller in MAY_CALL["owner"]:
        return caller in MAY_CALL[access]
    if caller == NOBODY:
        return auth == "loopback" and access == "workspace" and tool.toolset in LOOPBACK_TOOLSETS
    return caller in (STARTED, OWN) and access == "workspace"


@requirement("ops.table.single", "ws.agent.principal", "ws.agent.may-not")
async def test_c23_every_tool_is_open_to_the_callers_that_its_declaration_names(inside: JobRunner) -> None:
    auth = inside.daemon.runtime["auth"]
    wrong: list[str] = []
    before = await take_picture(inside)
    for caller in list_callers(inside):
        workspace = {STARTED: "fix", OWN: "own"}.get(caller.name, "own")
        # Only there clients without a token and foreign tokens can select a workspace.
        is_outside = caller.name in (OTHER, NOBODY, FOREIGN)
        endpoint = f"/w/{inside.project}/{workspace}/mcp" if is_outside else "/mcp"
        harmless, real = [*make_tool_calls(endpoint)], [*make_tool_calls(endpoint, list_existing_names(inside))]
        assert len(harmless) == len(real) > 25
        refused = [call for call in real if not may_use_tool(caller.name, call.operation, auth)]
        wrong += await check(inside, caller, refused, allowed=False)
        assert await take_picture(inside) == before
        allowed = [call for call in harmless if may_use_tool(caller.name, call.operation, auth)]
        wrong += await check(inside, caller, allowed, allowed=True)
        before = await take_picture(inside)
    assert not wrong, "\n".join(wrong)
