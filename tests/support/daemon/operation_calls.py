"""Calls of all operations, made from their declarations, as each kind of caller sends them to a real daemon."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin
from urllib.parse import quote

import msgspec

from rookery.operations.operation import Operation
from rookery.operations.table import list_all_operations
from rookery.wire.protocol import revisions
from tests.support.cli.user import at_a_terminal, user_environment
from tests.support.daemon.jobs import PROGRAM, Job, JobRunner
from tests.support.daemon.process import Daemon

# A name that nothing has, so that a call that is let through does no harm.
NOWHERE = "nowhere"
# Arguments for calls that are let through, where names that nothing has would not prevent harm: they are invalid.
INVALID: dict[str, dict[str, Any]] = {
    # It would end the daemon under test.
    "daemon.stop": {"reason": 1},
    # It would delete the workspace of the caller.
    "workspace.delete": {"force": NOWHERE},
}
TOOLSETS = "workspace,project,session,hub,admin"
# The error codes of a refusal for lack of rights.
REFUSALS = {"unauthorized", "forbidden", "tool-denied", "approval-refused"}


def make_value(hint: Any) -> Any:
    """Return a value of a type that names nothing."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return make_value(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (Union, UnionType):
        return make_value(next(kind for kind in arguments if kind is not type(None)))
    if hint is str:
        return NOWHERE
    if hint in (int, float):
        return 1
    if hint is bool:
        return False
    if hint is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {}
    if origin is not None:
        return [make_value(arguments[0])]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return {item.encode_name: make_value(item.type) for item in msgspec.structs.fields(hint) if item.required}
    return {}


def takes_text(hint: Any) -> bool:
    """Return whether a parameter may be any text."""
    if get_origin(hint) is Annotated:
        return takes_text(get_args(hint)[0])
    return hint is str or (get_origin(hint) in (Union, UnionType) and any(map(takes_text, get_args(hint))))


def make_arguments(
    operation: Operation,
    names: Mapping[str, str],
    omit: frozenset[str] = frozenset(),
    required: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return arguments by the names of fields: those that are required, and all that may be the name of something.

    `names` are names of what exists, by the names of fields.
    """
    return {
        info.name: names.get(info.name, make_value(info.type)) if takes_text(info.type) else make_value(info.type)
        for info in msgspec.structs.fields(operation.parameters)
        if info.name not in omit and (info.required or info.name in required or takes_text(info.type))
    }


@dataclass(frozen=True)
class OperationCall:
    """One call of an operation over one interface, and the request for it."""

    operation: Operation
    name: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def make_rest_calls(names: Mapping[str, str] | None = None) -> Iterator[OperationCall]:
    """Yield a call of each route of each operation, about what exists if it has these names, else about nothing."""
    for operation in list_all_operations():
        if (route := operation.declared.rest) is None:
            continue
        given = make_arguments(operation, names or {})
        given |= INVALID.get(operation.name, {}) if names is None else {}
        fields = {
            info.name: route.names.get(info.name, info.encode_name)
            for info in msgspec.structs.fields(operation.parameters)
        }
        for path in route.paths:
            in_path = {name: quote(str(value), safe="") for name, value in given.items() if f"{{{name}}}" in path}
            others = {fields[name]: value for name, value in given.items() if name not in in_path}
            query = "&".join(f"{name}={quote(str(value))}" for name, value in others.items())
            target = path.format(**in_path) + (f"?{query}" if query and route.method == "GET" else "")
            body = others if route.method != "GET" else None
            yield OperationCall(operation, f"{route.method} {path}", route.method, target, body)


def make_tool_calls(endpoint: str, names: Mapping[str, str] | None = None) -> Iterator[OperationCall]:
    """Yield a call of the tool of each operation that has one, to this endpoint."""
    for operation in list_all_operations():
        if (tool := operation.declared.mcp) is None:
            continue
        given = make_arguments(operation, names or {}, tool.omit, tool.required)
        given |= INVALID.get(operation.name, {}) if names is None else {}
        fields = {
            info.name: tool.names.get(info.name, info.encode_name)
            for info in msgspec.structs.fields(operation.parameters)
        }
        arguments = {fields[name]: value for name, value in given.items()}
        message = make_message("tools/call", {"name": tool.name, "arguments": arguments})
        headers = make_headers("tools/call") | {"Mcp-Name": tool.name}
        yield OperationCall(operation, tool.name, "POST", f"{endpoint}?toolsets={TOOLSETS}", message, headers)


def make_message(method: str, params: Mapping[str, Any]) -> Job:
    """Return a request of the stateless revision of MCP."""
    meta = {
        revisions.META_VERSION: revisions.LATEST,
        revisions.META_CAPABILITIES: {},
        revisions.META_CLIENT: {"name": "test", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def make_headers(method: str) -> dict[str, str]:
    accept = "application/json, text/event-stream"
    return {"Accept": accept, "MCP-Protocol-Version": revisions.LATEST, "Mcp-Method": method}


@dataclass(frozen=True)
class CallerKind:
    """One kind of caller: where it connects to, with which token, and in which process."""

    name: str
    over_socket: bool = False
    token: str | None = None
    process: Literal["user", "terminal", "started"] = "user"

    def make_job(self, daemon: Daemon, call: OperationCall) -> Job:
        headers = {**call.headers, **({"Authorization": f"Bearer {self.token}"} if self.token is not None else {})}
        to = daemon.runtime["socket"] if self.over_socket else daemon.port
        return {"request": [call.method, call.path, call.body, headers], "to": to}

    async def send(self, inside: JobRunner, calls: list[OperationCall]) -> list[Any]:
        """Send these calls, and return the response to each: its status, and its body as text."""
        jobs = [self.make_job(inside.daemon, call) for call in calls]
        return await inside.run(*jobs) if self.process == "started" else self.run(inside, jobs)

    def run(self, inside: JobRunner, jobs: list[Job]) -> list[Any]:
        """Run jobs in a process of the user, and return their results."""
        files = [
            inside.daemon.state.parent / f"{self.name}-{kind}.json".replace(" ", "-") for kind in ("jobs", "results")
        ]
        files[0].write_text(json.dumps(jobs))
        argv = [sys.executable, "-P", str(PROGRAM), *map(str, files)]
        if self.process == "terminal":
            with at_a_terminal(argv=argv) as person:
                assert person.ends() == 0, person.text
        else:
            subprocess.run(argv, env=user_environment(), start_new_session=True, timeout=300, check=True)
        return json.loads(files[1].read_text())


def find_refusal(response: Any) -> str | None:
    """Return the code of a response that refuses its caller for lack of rights; None if it is another response."""
    try:
        body: Any = json.loads(response["body"])
    except ValueError:
        return None
    if "jsonrpc" in body and "error" in body:
        return f"{body['error']['code']}: {body['error']['message']}"
    if "jsonrpc" in body:
        body = body["result"]["structuredContent"] if body["result"].get("isError") else {}
    error: Any = cast(dict[str, Any], body).get("error", {}) if isinstance(body, dict) else {}
    return error.get("code") if error.get("code") in REFUSALS else None


async def take_picture(inside: JobRunner) -> Any:
    """Return everything that a refused call could have changed."""
    status = inside.daemon.http("GET", "/api/status").json()
    files = {
        str(path): path.read_bytes()
        for folder in (".config", "src")
        for path in (Path(os.environ["HOME"]) / folder).rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    return {
        "instance": status["daemon"]["instance"],
        "projects": status["projects"],
        "workspaces": [
            # An agent that cannot be started is tried again by itself, so its state changes without a call.
            [
                *(entry[name] for name in ("name", "path", "branch", "state", "open")),
                entry["agent"]["state"] == "stopped",
            ]
            for entry in status["workspaces"]
        ],
        "trash": inside.daemon.http("GET", "/api/trash").json(),
        "servers": [[server[name] for name in ("name", "status")] for server in status["servers"]],
        "files": files,
    }
