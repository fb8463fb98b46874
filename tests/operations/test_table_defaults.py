"""Defaults: those of the table are used by REST, MCP, Python and the command line, in the unit of each."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pytest
from click.testing import CliRunner

from rookery.api.openapi import make_openapi_document
from rookery.cli import progress
from rookery.cli.main import cli
from rookery.cli.session.send import choose_timeout
from rookery.daemon_client import connection
from rookery.operations.operation import Operation
from rookery.operations.sessions import WaitInSession, WaitInSessions
from rookery.operations.table import list_all_operations, make_unbound_operations
from rookery.sdk.hub import Hub
from rookery.sdk.operations import Operations
from rookery.sdk.projects import Projects
from rookery.sdk.sessions import Session, Sessions
from rookery.sdk.workspaces import Workspace, Workspaces
from rookery.sessions.records import WaitKind
from rookery.toolsets.operations import operation_toolset
from tests.support.cli.commands import commands
from tests.support.requirements import requirement

pytestmark = requirement("ops.defaults.equal")

OPERATIONS = {operation.name: operation for operation in list_all_operations()}
OBJECTS: dict[str, type[Any]] = {
    "Session": Session,
    "Workspace": Workspace,
    "hub": Hub,
    "projects": Projects,
    "sessions": Sessions,
    "workspaces": Workspaces,
}
# Defaults of objects of the SDK that differ on purpose.
DIFFERENT = {
    (
        "workspace.create",
        "wait",
    ): "a program works in the workspace next, so the object is returned when it is prepared",
    ("workspace.delete", "wait"): "a program may create the same workspace next, so the call returns at the end",
}
# Time limits of commands that are about no operation.
OTHER_TIMEOUTS = {"down": "how long the command waits for the process of the daemon to end"}

# A command for each operation that a command calls, by what the user gives; the rest are defaults.
COMMANDS: tuple[tuple[str, str, set[str]], ...] = (
    ("session send ses_1 hello", "session.send", {"content"}),
    ("session tool ses_1 bash", "session.execute_tool", {"tool"}),
    ("session wait ses_1 --idle", "session.wait", {"what"}),
    ("session wait ses_1 --toast x", "session.wait", {"what", "pattern"}),
    ("session wait ses_1 ses_2 --message x", "session.wait_for", {"what", "pattern", "sessions"}),
    ("session wait ses_1 ses_2 --toast x", "session.wait_for", {"what", "pattern", "sessions"}),
    ("session screen ses_1 --wait x", "session.wait", {"what", "pattern"}),
    ("session screen ses_1", "session.screen", set()),
    ("session screen ses_1 --text x", "session.press_keys", {"text"}),
    ("session screenshot ses_1", "session.screenshot", {"json", "format"}),
    ("session messages ses_1", "session.messages", set()),
    ("session toasts ses_1", "session.toasts", set()),
    ("session history ses_1", "session.tool_history", set()),
    ("session close ses_1", "session.close", set()),
    ("session abort ses_1", "session.abort", set()),
    ("session new fix", "session.create", {"directory"}),
    ("ws create new --project app", "workspace.create", {"name", "project"}),
    ("ws prepare fix", "workspace.prepare", set()),
    ("ws rm fix", "workspace.delete", set()),
    ("ws dismiss fix", "agent.dismiss", set()),
    ("ws restore fix", "trash.restore", set()),
    ("ws trash list", "trash.list", set()),
    ("agent logs fix", "agent.logs", set()),
    ("agent install", "agent.install", set()),
    ("mcp login files --global", "signin.begin", set()),
    ("mcp check --global", "server.check", set()),
    ("mcp add-json files {} --global", "server.define", {"definition"}),
    ("plugin action boulder log", "plugin.trigger", {"args"}),
    ("project list", "project.list", set()),
    ("project add .", "project.add", {"path"}),
    ("project remove app", "project.remove", set()),
    ("ws list", "workspace.list", set()),
    ("ws show fix", "workspace.show", set()),
    ("ws open fix", "workspace.open", set()),
    ("ws close fix", "workspace.close", set()),
    ("ws diff fix", "workspace.diff", set()),
    ("ws token fix", "workspace.token", set()),
    ("ws meta list fix", "workspace.metadata", set()),
    ("ws meta set a b", "workspace.set_metadata", {"key", "value"}),
    ("ws rm --merged", "workspace.merged", set()),
    ("agent show fix", "agent.show", set()),
    ("agent start fix", "agent.start", set()),
    ("agent stop fix", "agent.stop", set()),
    ("agent restart fix", "agent.restart", set()),
    ("agent resume fix", "agent.resume", set()),
    ("agent password fix", "agent.attach", set()),
    ("session list", "session.list", set()),
    ("session show ses_1", "session.show", set()),
    ("session asks", "session.asks", set()),
    ("session answer per_1 once", "session.answer", {"reply"}),
    ("mcp list --global", "server.list", set()),
    ("mcp get files --global", "server.get", set()),
    ("mcp connect files --global", "server.connect", set()),
    ("mcp disconnect files --global", "server.disconnect", set()),
    ("mcp enable files --global", "server.enable", {"level"}),
    ("mcp disable files --global", "server.disable", {"level"}),
    ("mcp debug files --global", "server.debug", set()),
    ("mcp tools --global", "server.tools", set()),
    ("mcp remove files --global", "server.remove", set()),
    ("mcp login files --global --no-browser", "signin.wait", set()),
    ("mcp logout files --global", "signin.logout", set()),
    ("plugin list", "plugin.list", set()),
    ("plugin state", "plugin.state", set()),
    ("guard list", "guard.approvals", set()),
    ("guard digest", "guard.digests", set()),
    ("status", "daemon.report", set()),
)
# Defaults of commands that differ on purpose.
DIFFERENT_COMMANDS = {
    ("ws list", "status"): "it prints a table for a person, who looks for changes in it",
    ("session send", "timeout"): "on a terminal a person sees the turn run, and stops watching with Ctrl-C",
}

WORKSPACE = {
    "project": "app-1",
    "name": "fix",
    "path": "/src/fix",
    "state": "ready",
    "main": False,
    "branch": "fix",
    "agent": {"state": "running"},
}
# What commands look up before the request that is tested.
LOOKUPS: dict[str, Any] = {
    "workspace.list": [{**WORKSPACE, "name": "@main", "path": "/src/app", "main": True, "branch": "main"}, WORKSPACE],
    "workspace.at": WORKSPACE,
    "workspace.show": WORKSPACE,
    "project.list": [{"id": "app-1", "name": "app", "path": "/src/app"}],
    "session.list": [],
    "trash.list": [{"id": "entry-1", "name": "fix", "project": "app-1"}],
    "signin.begin": {"url": "http://127.0.0.1/", "redirect": "http://127.0.0.1/", "issuer": "http://127.0.0.1/"},
}


@dataclass(frozen=True)
class Default:
    """The default of a parameter. `seconds` is whether the interface has seconds where the table has milliseconds."""

    name: str
    wire_name: str
    value: Any
    in_milliseconds: bool

    def in_python(self) -> Any:
        return self.value / 1000 if self.in_milliseconds and self.value is not None else self.value


def list_defaults(operation: Operation, names: Mapping[str, str]) -> dict[str, Default]:
    """Return the defaults of an operation by the names of its parameters. A default that is made anew is empty."""
    defaults: dict[str, Default] = {}
    for info in msgspec.structs.fields(operation.parameters):
        metas = [meta for meta in getattr(info.type, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
        in_milliseconds = any((meta.extra or {}).get("unit") == "milliseconds" for meta in metas)
        if not info.required:
            value = info.default if info.default is not msgspec.NODEFAULT else info.default_factory()
            value: Any = [] if value == () else value
            wire_name = names.get(info.name, info.encode_name)
            defaults[info.name] = Default(info.name, wire_name, value, in_milliseconds)
    return defaults


def list_signatures(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a method of Python."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def are_equal(in_python: Any, default: Default) -> bool:
    # None leaves the parameter out, so that the daemon makes an empty list or table.
    return in_python == default.in_python() or (in_python in (None, ()) and default.value in ([], {}))


@pytest.mark.parametrize("name", [name for name, each in OPERATIONS.items() if each.declared.rest is not None])
def test_a_generated_method_has_the_defaults_of_its_operation(name: str) -> None:
    operation = OPERATIONS[name]
    group, _, method = name.partition(".")
    function = getattr(getattr(Operations(None), group), method)  # pyright: ignore[reportArgumentType]
    defaults, found = list_defaults(operation, {}), list_signatures(function)
    assert found.keys() <= defaults.keys()
    assert all(are_equal(value, defaults[parameter]) for parameter, value in found.items())
    # A parameter that selects a form of the result is set by another method.
    forms = {f"{method}_{form}" for form in ("events", "json")} & set(dir(getattr(Operations(None), group)))  # pyright: ignore[reportArgumentType]
    assert len(set(inspect.signature(function).parameters) ^ {*defaults, *required_names(operation)}) <= len(forms)


def required_names(operation: Operation) -> set[str]:
    return {info.name for info in msgspec.structs.fields(operation.parameters) if info.required}


@pytest.mark.parametrize("name", [name for name, each in OPERATIONS.items() if each.declared.python is not None])
def test_an_object_of_the_sdk_has_the_method_with_the_defaults_of_the_operation(name: str) -> None:
    operation = OPERATIONS[name]
    owner, _, method = (operation.declared.python or "").partition(".")
    found, defaults = list_signatures(getattr(OBJECTS[owner], method)), list_defaults(operation, {})
    different = {
        parameter
        for parameter, value in found.items()
        if parameter in defaults and not are_equal(value, defaults[parameter])
    }
    assert different == {parameter for other, parameter in DIFFERENT if other == name}


def list_tools() -> Iterator[tuple[Operation, dict[str, Any]]]:
    operations = make_unbound_operations()
    tools = {each.operation.declared.mcp.toolset for each in operations if each.operation.declared.mcp is not None}
    by_tool = {each.declared.mcp.name: each for each in OPERATIONS.values() if each.declared.mcp is not None}
    for toolset in sorted(tools):
        for entry in operation_toolset(operations, toolset, None).catalog.tools:
            definition = json.loads(bytes(entry.raw))
            yield by_tool[definition["name"]], definition["inputSchema"]


def test_tools_have_the_defaults_of_their_operations() -> None:
    tools = list(list_tools())
    assert len(tools) == sum(each.declared.mcp is not None for each in OPERATIONS.values())
    for operation, schema in tools:
        assert operation.declared.mcp is not None
        for default in list_defaults(operation, operation.declared.mcp.names).values():
            shown = schema["properties"].get(default.wire_name, {})
            if "default" in shown:
                assert shown["default"] == msgspec.to_builtins(default.value), (operation.name, default.name)
            else:
                assert not shown or default.name in operation.declared.mcp.required


def test_routes_have_the_defaults_of_their_operations() -> None:
    document = json.loads(make_openapi_document(make_unbound_operations(), "1"))
    compared = 0
    for operation in OPERATIONS.values():
        if (route := operation.declared.rest) is None:
            continue
        described = document["paths"][route.path][route.method.lower()]
        shown = {each["name"]: each["schema"] for each in described.get("parameters", ())}
        body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        if "$ref" in body:
            body = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
        shown |= body.get("properties", {})
        for default in list_defaults(operation, route.names).values():
            if "default" in shown.get(default.wire_name, {}):
                assert shown[default.wire_name]["default"] == msgspec.to_builtins(default.value)
                compared += 1
    assert compared > 50


@dataclass
class SentRequest(BaseException):
    """The request that a command sends; raised to end the command."""

    parameters: Mapping[str, Any]
    seconds: float


class NoEvents:
    """A connection to the daemon that carries a stream without events."""

    def request(self, *arguments: Any) -> int:
        return 200

    def lines(self) -> Iterator[bytes]:
        return iter(())

    def shutdown(self) -> None: ...

    def close(self) -> None: ...


def find_operation(method: str, path: str) -> Operation:
    """Return the operation that a request is for. Fixed paths precede those with parameters."""
    routes = [
        (path_, operation)
        for operation in OPERATIONS.values()
        if (route := operation.declared.rest) is not None and route.method == method
        for path_ in route.paths
    ]
    for template, operation in sorted(routes, key=lambda pair: [part.startswith("{") for part in pair[0].split("/")]):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return operation
    raise AssertionError(f"no operation has the route {method} {path}")


def run_command(words: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> SentRequest:
    """Run a command until it sends the request for an operation."""

    def answer(method: str, url: str, body: Any, seconds: float) -> bytes:
        parts = urlsplit(url)
        operation = find_operation(method, parts.path)
        if operation.name == wanted:
            query = {name: unquote(value) for name, value in parse_qsl(parts.query)}
            raise SentRequest({**query, **(body or {})}, seconds)
        return msgspec.json.encode(LOOKUPS[operation.name])

    def send_request(_: Any, method: str, path: str, body: Any = None, *, seconds: float = 60.0) -> bytes:
        return answer(method, path, body, seconds)

    def no_events(**_: Any) -> NoEvents:
        return NoEvents()

    monkeypatch.setattr(connection, "connect_or_start", no_events)
    monkeypatch.setattr(connection, "send_request", send_request)
    monkeypatch.setattr(progress, "connect_or_start", no_events)
    with pytest.raises(SentRequest) as caught:
        done = CliRunner().invoke(cli, [*words.split(), "--json"], catch_exceptions=False)
        raise AssertionError(f"no request was sent: {done.output}")
    return caught.value


@pytest.mark.parametrize(("words", "name", "given"), COMMANDS, ids=[words for words, _, _ in COMMANDS])
def test_a_command_sends_the_defaults_of_its_operation_or_none(
    words: str, name: str, given: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = OPERATIONS[name]
    assert operation.declared.rest is not None
    request = run_command(words, name, monkeypatch)
    defaults = list_defaults(operation, operation.declared.rest.names)
    types = {info.name: info.type for info in msgspec.structs.fields(operation.parameters)}
    sent: dict[str, Any] = {}
    for default in defaults.values():
        if default.wire_name in request.parameters and default.name not in given:
            value = request.parameters[default.wire_name]
            is_query = isinstance(value, str)
            value = msgspec.convert(value, types[default.name], strict=not is_query)
            sent[default.name] = [] if value == () else value
    timeout = sent.pop("timeout", None)
    different = {parameter for parameter, value in sent.items() if value != defaults[parameter].value}
    assert different == {parameter for command, parameter in DIFFERENT_COMMANDS if words == command}
    seconds = operation.declared.time_limit
    if "timeout" in defaults:
        assert timeout in (None, find_timeout(operation, request.parameters))
        seconds += (find_longest_timeout(operation) if timeout is None else timeout) / 1000
    # The client waits for the response as long as the methods of Python do.
    assert request.seconds == seconds


def find_timeout(operation: Operation, parameters: Mapping[str, Any]) -> float:
    """Return the default time limit in milliseconds; that of a wait depends on its condition."""
    default: float | None = list_defaults(operation, {})["timeout"].value
    if default is not None:
        return default
    condition = parameters["for"]
    return 10_000 if condition == "toast" else 30_000


def test_a_general_wait_has_the_default_of_the_wait_for_the_same_thing() -> None:
    expected = {"message": "session.wait_for_message", "toast": "session.wait_for_toast"}
    for condition in get_args(WaitKind):
        default = list_defaults(OPERATIONS[expected.get(condition, expected["message"])], {})["timeout"].in_python()
        assert default == (10 if condition == "toast" else 30)
        assert WaitInSession(session="ses_1", what=condition).seconds == default
        assert WaitInSessions(sessions=["ses_1"], what=condition).seconds == default


def find_longest_timeout(operation: Operation) -> float:
    """Return the longest default time limit in milliseconds."""
    hint = next(info.type for info in msgspec.structs.fields(operation.parameters) if info.name == "timeout")
    return next(meta.extra["longest_default"] for meta in hint.__metadata__ if meta.extra)


def test_only_a_person_who_watches_a_turn_waits_longer_by_default() -> None:
    default = list_defaults(OPERATIONS["session.send"], {})["timeout"].in_python()
    assert choose_timeout(None, streamed=False) == default < choose_timeout(None, streamed=True)
    assert ("session send", "timeout") in DIFFERENT_COMMANDS


def test_every_time_limit_of_a_command_is_that_of_an_operation() -> None:
    compared = {" ".join(words.split()[:2]) for words, _, _ in COMMANDS} | OTHER_TIMEOUTS.keys()
    for names, command in commands():
        if any(parameter.name == "timeout" for parameter in command.params):
            assert " ".join(names) in compared
