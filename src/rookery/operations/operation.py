"""The declaration of an operation: its parameters and result, who may call it, and its name on each interface.

An operation is a method of a class in this package, decorated with `operation`. The docstring of the method is the
summary, the annotations are the types of parameters and result. REST routes, MCP tools, Socket.IO events, the methods
of the SDK and the reference are made from these declarations.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args, get_type_hints

import msgspec

from rookery.guard.audit.records import RecordDecision, ignore_decision
from rookery.guard.terminal import require_person, require_socket
from rookery.operations.results import Binary, EventResult, TextResult
from rookery.system.errors import RookeryError
from rookery.wire.http.auth import OWNER, PeerProcess, Principal

# Who may call an operation. `anyone` needs no token; `owner` is the user by token or Unix socket; `workspace` is the
# owner, or the token of a workspace for that workspace alone; `socket` is the owner over the Unix socket; `person` is
# the owner over the Unix socket, but no process that Rookery started; `terminal` is a person at a terminal.
Access = Literal["anyone", "owner", "workspace", "socket", "person", "terminal"]
Interface = Literal["rest", "mcp", "socketio", "python"]
INTERFACES: tuple[Interface, ...] = ("rest", "mcp", "socketio", "python")

# Tools for managing Rookery. Only the owner gets them, and only on request, because they cost a model tokens.
ADMIN_TOOLSET = "admin"

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
P = TypeVar("P", bound=msgspec.Struct)

# How long a client waits for a response, in addition to the operation's own `timeout`.
DEFAULT_TIME_LIMIT = 600.0
# The same for operations that start an agent. OpenCode may be installed first, which downloads 180 MB.
AGENT_START_LIMIT = 1900.0


class Parameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of an operation, from which its schemas are generated. Required ones come first."""


class NoParameters(Parameters):
    """The parameters of an operation that takes none."""


class Progress(Protocol):
    """Reports progress to the client."""

    async def __call__(self, message: str, value: float | None = None) -> None:
        """Report a message. `value` increases with each report; by default it is the number of the report."""
        ...


# Asks the user to confirm a message. The key changes with what is confirmed: a confirmation is valid for its key only.
# Returns None if the client cannot ask its user.
Confirm = Callable[[str, str], Awaitable[bool | None]]


class Caller(msgspec.Struct, frozen=True):
    """Who calls an operation.

    `scope` is the folder of the only workspace that the caller may access, None for the owner. `directory` is the
    workspace that the caller has selected, if any. `peer` is the process at the other end of the Unix socket.
    `confirm` asks the user while the operation runs, for tools that declare `confirms`.
    `is_model` says that a model makes the call, as a tool: then it approves nothing in the name of the user.
    """

    principal: Principal = OWNER
    scope: Path | None = None
    directory: Path | None = None
    session: str | None = None
    peer: PeerProcess | None = None
    progress: Progress | None = None
    confirm: Confirm | None = None
    is_model: bool = False

    @property
    def is_user(self) -> bool:
        """Whether the user makes this call, over the Unix socket. Programs that watch use a port."""
        return self.principal.kind == "owner" and self.principal.local


@dataclass(frozen=True)
class RestRoute:
    """A route. `{names}` in the path are parameters, the others are in the query or in the body.

    `names` renames parameters. `statuses` are all possible statuses of a success; `status` selects one of them, and
    without it the first is used.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    statuses: tuple[int, ...] = (200,)
    status: Callable[[Any, Any], int] | None = None
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    # Headers that override parameters of the query.
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    # A second path, without the parameters that it does not contain.
    short_path: str | None = None
    # The media types of a success, if it is not JSON alone.
    media_types: tuple[str, ...] = ("application/json",)
    # The types of the data of server-sent events, by the names of the events.
    events: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if self.short_path is None else (self.short_path, self.path)


@dataclass(frozen=True, eq=False)
class McpTool:
    """A tool. `names` renames parameters, `omit` are those that are not offered, `required` those without a default.

    `fixed` has the values of further parameters that are not offered.
    `present` converts the result, for tools whose result differs, and `result` is the type after that.
    """

    toolset: str
    name: str
    description: str
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    omit: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    present: Callable[[Any], Any] | None = None
    result: Any = None
    # Whether the tool may delete or end something.
    destructive: bool = False
    # Whether unknown arguments are an error.
    forbid_unknown: bool = False
    # Whether the operation may ask the user to confirm.
    confirms: bool = False
    # Whether the views of clients other than the owner's leave it out. It costs tokens, and would be refused.
    owner_only: bool = False


@dataclass(frozen=True)
class CallerRefusal:
    """The error `forbidden` for processes that may not call an operation, instead of the error of approvals.

    The reason why the process is refused is appended to the message.
    """

    message: str
    remedy: str


@dataclass(frozen=True)
class Declaration:
    """The part of an operation that its decorator declares."""

    access: Access
    refusal: CallerRefusal | None
    changes: bool
    cancellable: bool
    time_limit: float
    rest: RestRoute | None
    mcp: McpTool | None
    socketio: str | None
    python: str | None
    absent: Mapping[Interface, str]
    is_setting: bool


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation. `absent` has the reason for each interface that does not offer it."""

    name: str
    summary: str
    parameters: type[msgspec.Struct]
    result: Any
    declared: Declaration
    method: Callable[[Any, Caller, Any], Awaitable[Any]]


@dataclass(frozen=True)
class BoundOperation(Generic[P]):
    """An operation with the services that it runs on. `record` records refusals, and changes of settings."""

    operation: Operation
    owner: Any
    record: RecordDecision = ignore_decision

    async def run(self, caller: Caller, arguments: P) -> Any:
        """Run the operation, if the caller may."""
        try:
            await authorize(self.operation, caller)
        except RookeryError as error:
            self._record(caller, arguments, "operation", "denied", {"why": error.message})
            raise
        result = await self.operation.method(self.owner, caller, arguments)
        if self.operation.declared.is_setting:
            self._record(caller, arguments, "setting", "changed", {})
        return result

    def _record(
        self, caller: Caller, arguments: P, event: Literal["operation", "setting"], verdict: str, more: dict[str, str]
    ) -> None:
        given = msgspec.structs.asdict(arguments)
        name, tool = (value if isinstance(value := given.get(key), str) else "" for key in ("name", "tool"))
        is_server = self.operation.name.startswith("server.")
        workspace = caller.scope or caller.directory
        self.record(
            event,
            verdict,
            principal=caller.principal.name,
            workspace=given.get("workspace") or (str(workspace) if workspace is not None else None),
            session=caller.session,
            server=name if is_server else None,
            tool=tool or None,
            detail={"operation": self.operation.name, "name": "" if is_server else name, **more},
        )


def operation(
    *,
    access: Access = "owner",
    refusal: CallerRefusal | None = None,
    changes: bool = True,
    cancellable: bool = False,
    time_limit: float = DEFAULT_TIME_LIMIT,
    rest: RestRoute | None = None,
    mcp: McpTool | None = None,
    socketio: str | None = None,
    python: str | None = None,
    absent: Mapping[Interface, str] | None = None,
    is_setting: bool = False,
) -> Callable[[F], F]:
    """Declare a method as an operation.

    `changes` says whether it changes anything, `cancellable` whether it ends when its client disconnects. `absent` has
    the reason for each interface without the operation. With `is_setting` each success is a record of the audit.
    """

    def declare(method: F) -> F:
        without = dict(absent or {})
        declared = Declaration(
            access, refusal, changes, cancellable, time_limit, rest, mcp, socketio, python, without, is_setting
        )
        vars(method)["declaration"] = declared
        return method

    return declare


@functools.cache
def list_operations(group: type[Any]) -> tuple[Operation, ...]:
    """Return the operations that a class declares, in their order."""
    return tuple(_find_operations(group))


def _find_operations(group: type[Any]) -> Iterator[Operation]:
    for name, method in vars(group).items():
        declared: Declaration | None = getattr(method, "declaration", None)
        if declared is None:
            continue
        hints = get_type_hints(method, include_extras=True)
        summary = inspect.cleandoc(method.__doc__ or "")
        parameters = hints.get("arguments", NoParameters)
        result = _select_json_result(hints["return"])
        yield Operation(f"{group.group}.{name}", summary, parameters, result, declared, method)


def _select_json_result(result: Any) -> Any:
    """Return the type of a result as JSON, without the forms in which REST may return it instead."""
    others = {Binary, EventResult, TextResult}
    if others.isdisjoint(get_args(result)):
        return result
    (kind,) = (kind for kind in get_args(result) if kind not in others)
    return kind


def bind_operations(*groups: object, record: RecordDecision = ignore_decision) -> list[BoundOperation[Any]]:
    """Return the operations of these instances, each bound to its instance."""
    return [BoundOperation(operation, group, record) for group in groups for operation in list_operations(type(group))]


async def authorize(operation: Operation, caller: Caller) -> None:
    """Raise RookeryError if the operation is not open to the caller."""
    access = operation.declared.access
    refusal = operation.declared.refusal
    if access in ("anyone", "workspace"):
        return
    if caller.scope is not None or caller.principal.kind != "owner":
        message = f"{operation.name} is for the owner; the token of a workspace does not allow it"
        raise RookeryError("tool-denied", message, "use the owner's token")
    try:
        if access == "socket":
            require_socket(caller.principal)
        elif access in ("person", "terminal"):
            await require_person(caller.principal, caller.peer, at_terminal=access == "terminal")
    except RookeryError as error:
        if refusal is None:
            raise
        # Over a port the message is enough: the error of approvals says what is open over the Unix socket alone.
        reason = f": {error.message}" if caller.principal.local else ""
        raise RookeryError("forbidden", f"{refusal.message}{reason}", refusal.remedy) from None


def rename_parameters(
    kind: type[msgspec.Struct],
    names: Mapping[str, str],
    *,
    forbid_unknown: bool,
    omit: frozenset[str] = frozenset(),
    required: frozenset[str] = frozenset(),
    title: str | None = None,
) -> type[msgspec.Struct]:
    """Return a struct with the same fields, some of them with another name in JSON, left out, or without a default.

    `title` is its name in schemas.
    """
    fields: list[Any] = []
    for info in msgspec.structs.fields(kind):
        if info.name in omit:
            continue
        if info.name in required:
            fields.append((info.name, info.type))
        elif info.default_factory is not msgspec.NODEFAULT:
            fields.append((info.name, info.type, msgspec.field(default_factory=info.default_factory)))
        elif info.default is not msgspec.NODEFAULT:
            fields.append((info.name, info.type, info.default))
        else:
            fields.append((info.name, info.type))
    renamed = {info.name: names.get(info.name, info.encode_name) for info in msgspec.structs.fields(kind)}
    return msgspec.defstruct(
        title or kind.__name__, fields, rename=renamed, forbid_unknown_fields=forbid_unknown, kw_only=True, frozen=True
    )
