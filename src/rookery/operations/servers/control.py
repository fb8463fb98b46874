"""The operations on MCP servers: list, add, define, remove, connect, switch, debug and check them."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rookery.gateway.rules import Level
from rookery.operations.operation import ADMIN_TOOLSET, Caller, McpTool, NoParameters, Parameters, RestRoute, operation
from rookery.system.errors import RookeryError
from rookery.upstreams.check import CheckReport, check_servers
from rookery.upstreams.config.definition import ConfigLevel, ConfigProblem
from rookery.upstreams.config.edit import choose_file, find_file
from rookery.upstreams.config.redact import redact_definition
from rookery.upstreams.debug import DebugReport
from rookery.upstreams.hub import Hub
from rookery.upstreams.server_set import ServerRecord
from rookery.upstreams.tool_costs import ToolCost

SERVER_PATH = "/api/mcp/{name}"

_Text = Annotated[str, Meta(min_length=1)]


class ForWorkspace(Parameters):
    """The servers of a workspace, or the app-wide ones."""

    workspace: Annotated[
        _Text | None,
        Meta(
            description="Path of a workspace, or <project>/<name>; default: the one that the client has selected, if "
            "any, else the app-wide servers"
        ),
    ] = None


class ForSession(ForWorkspace):
    """The servers as a client session sees them, or as all do."""

    session: Annotated[
        _Text | None, Meta(description="Id of a client session, which may have servers and switches of its own")
    ] = None


class ForConversation(ForSession):
    """The servers as a client session or a conversation of an agent sees them, or as all do."""

    session: Annotated[
        _Text | None,
        Meta(
            description="Id of a session of an agent, or the beginning of it, whatever its workspace; or id of a "
            "client session. Each may have switches of its own"
        ),
    ] = None


class OneServer(ForSession, kw_only=True):
    name: Annotated[str, Meta(description="Name of the server")]


class DebugServer(OneServer, kw_only=True):
    trace: Annotated[
        bool, Meta(description="If true, run it with strace, and return the system calls that its sandbox refused")
    ] = False


class ServerInConversation(ForConversation, kw_only=True):
    name: Annotated[str, Meta(description="Name of the server")]


class AddServer(OneServer, kw_only=True):
    config: Annotated[
        dict[str, Any],
        Meta(description="Its entry as in a configuration file: `command` and `environment`, or `url` and `headers`"),
    ]


class DefineServer(ForWorkspace, kw_only=True):
    name: Annotated[str, Meta(description="Name of the server")]
    config: Annotated[
        dict[str, Any],
        Meta(description="Its entry: `command` and `environment`, or `url` and `headers`; in any program's form"),
    ]
    place: Annotated[
        ConfigLevel, Meta(description="Whether the file of the user, or of the project's workspace, is written")
    ] = "user"
    client: Annotated[
        Literal["rookery", "opencode", "claude"], Meta(description="The program whose file is written, in its form")
    ] = "rookery"
    file: Annotated[
        str | None, Meta(description="Absolute path of the file; default: selected by `place` and `client`")
    ] = None
    force: Annotated[bool, Meta(description="If true, replace an entry with the same name")] = False


class SwitchServer(ServerInConversation, kw_only=True):
    tool: Annotated[
        str | None,
        Meta(description="Name of a tool at its server, or a pattern with * and ?; default: the server itself"),
    ] = None
    level: Annotated[
        Level | None,
        Meta(
            description="For whom; default: the conversation, the client session or the workspace that is named, else "
            "everywhere (app)"
        ),
    ] = None


class ListServerTools(ForSession):
    server: Annotated[str | None, Meta(description="Name of a server; default: all")] = None


class CheckServers(ForWorkspace):
    servers: Annotated[Sequence[str], Meta(description="Names of the servers to check; empty for all")] = ()


class ListedServer(ServerRecord):
    """A server. `shadows` are the sources of servers with the same name that are not used."""

    shadows: list[str] = msgspec.field(default_factory=list[str])


class ShownDefinition(msgspec.Struct, frozen=True):
    """The definition of a server, without secrets. `written` is its entry as it is in its file."""

    kind: str
    source: str
    dialect: str
    scope: str
    digest: str
    written: dict[str, Any]


class ServerDetails(ListedServer, kw_only=True):
    """A server, with its definition."""

    definition: ShownDefinition


class WrittenServer(msgspec.Struct, frozen=True):
    """An entry that was written. `record` is the server with this name, null if the file is not read here."""

    name: str
    file: str
    dialect: str
    place: ConfigLevel
    record: ListedServer | None


class RemovedServer(msgspec.Struct, frozen=True):
    """A server that was removed, and where it was defined."""

    removed: str
    source: str


class ToolListCosts(msgspec.Struct, frozen=True):
    """What it costs a model in tokens to list all tools, and to list the two tools that search them."""

    list_tokens: int
    search_tokens: int


class ServerStatus(msgspec.Struct):
    """One server, as in `rookery status --json`."""

    name: str
    status: str
    error: str | None
    tools: int
    source: str
    shadowed: bool
    scope: str
    era: str | None


class ServerStatuses(msgspec.Struct):
    servers: list[ServerStatus]


class ServerSelection(msgspec.Struct, frozen=True):
    """The servers of a directory, as all, a client session or a conversation sees them."""

    directory: Path | None
    session: str | None = None
    conversation: str | None = None


class ServerSelector:
    """Selects the servers that an operation is about.

    `find_folder` returns the folder of a workspace, by its path or as `<project>/<name>`. `find_conversation` returns
    the workspace and the id of a conversation, by the id of a session of it.
    """

    def __init__(
        self,
        hub: Hub,
        find_folder: Callable[[str], Awaitable[Path]],
        find_conversation: Callable[[str], Awaitable[tuple[Path, str]]],
    ) -> None:
        self.hub = hub
        self._find_folder = find_folder
        self._find_conversation = find_conversation

    async def select(self, caller: Caller, arguments: ForConversation) -> ServerSelection:
        """Return the selected servers. A conversation has those of its own workspace."""
        session = arguments.session
        if session is None or self.hub.is_session_open(session):
            return ServerSelection(await self.find_directory(caller, arguments), session)
        # An agent that does not run has no sessions, but may have had switches for them.
        workspace = self.hub.switches.find_conversation(session)
        if workspace is not None:
            directory = Path(workspace)
            conversation = session
        else:
            try:
                directory, conversation = await self._find_conversation(session)
            except RookeryError as error:
                if error.code != "session-not-found":
                    raise
                message = f"there is no session {session!r} of an agent or a client"
                remedy = "list those of agents: rookery session list; and of clients: rookery status --json"
                raise RookeryError("session-not-found", message, remedy) from None
        await self.hub.config_watcher.catch_up(directory)
        return ServerSelection(directory, None, conversation)

    async def find_directory(self, caller: Caller, arguments: ForWorkspace) -> Path | None:
        """Return the directory of the servers, None for the app-wide ones. Reads changed configuration files first."""
        directory = caller.directory
        if arguments.workspace is not None:
            directory = await self._find_folder(arguments.workspace)
        await self.hub.config_watcher.catch_up(directory)
        return directory

    async def get_record(self, selection: ServerSelection, name: str) -> ListedServer:
        """Return the record of one server; raise if there is none with this name."""
        server_set = await self.hub.server_set(selection.directory, selection.session)
        server_set.find(name, selection.session)
        return _index_records(server_set.records(selection.session, selection.conversation))[name]

    async def list_records(self, selection: ServerSelection) -> dict[str, ListedServer]:
        server_set = await self.hub.server_set(selection.directory, selection.session)
        return _index_records(server_set.records(selection.session, selection.conversation))


def _index_records(records: Iterable[ServerRecord]) -> dict[str, ListedServer]:
    """Return the records of the servers in use by name."""
    by_name: dict[str, ListedServer] = {}
    shadows: dict[str, list[str]] = {}
    for record in records:
        if record.shadowed:
            shadows.setdefault(record.name, []).append(record.source)
        else:
            by_name[record.name] = ListedServer(**msgspec.structs.asdict(record))
    for name, server in by_name.items():
        server.shadows = shadows.get(name, [])
    return by_name


class ServerOperations:
    """The operations on MCP servers. `search_tokens` is the cost of a view in search mode."""

    group = "server"

    def __init__(self, selector: ServerSelector, search_tokens: int) -> None:
        self._selector = selector
        self._hub = selector.hub
        self._search_tokens = search_tokens

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/mcp"),
        python="hub.servers",
        absent={"mcp": "`hub_list_servers` lists the same servers, and shadowed ones as entries of their own"},
    )
    async def list(self, caller: Caller, arguments: ForConversation) -> dict[str, ListedServer]:
        """All configured servers by name: status, error and other details."""
        return await self._selector.list_records(await self._selector.select(caller, arguments))

    @operation(
        access="workspace",
        changes=False,
        mcp=McpTool(
            "hub",
            "hub_list_servers",
            "List the MCP servers behind this gateway: status, error, number of tools, and where each is defined.",
            forbid_unknown=True,
        ),
        absent={
            "rest": "`GET /api/mcp` returns the same servers by name, with more details",
            "python": "`hub.servers` returns the same servers by name, with more details",
        },
    )
    async def list_statuses(self, caller: Caller, arguments: NoParameters) -> ServerStatuses:
        """The servers that the client sees, also those that are shadowed by another with the same name."""
        records = await self._hub.records(caller.directory, caller.session)
        return ServerStatuses([msgspec.convert(record, ServerStatus, from_attributes=True) for record in records])

    @operation(
        rest=RestRoute("POST", "/api/mcp", (201,)),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_add",
            "Add an MCP server until Rookery stops, and connect it. Returns all servers by name; the status and the "
            "error of the new one say whether it is connected. server_define adds a server permanently.",
            forbid_unknown=True,
        ),
        is_setting=True,
    )
    async def add(self, caller: Caller, arguments: AddServer) -> dict[str, ListedServer]:
        """Add a server until Rookery stops, and connect it; returns the records of all servers."""
        directory = await self._selector.find_directory(caller, arguments)
        await self._hub.add(directory, arguments.session, arguments.name, arguments.config)
        return await self._selector.list_records(ServerSelection(directory, arguments.session))

    @operation(
        changes=False,
        # It waits for servers that are starting.
        rest=RestRoute("GET", "/api/tools"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_list_tools",
            "List the tools of all MCP servers, or of one, with their definitions and their cost in tokens for a "
            "model. Waits for servers that are starting.",
            forbid_unknown=True,
        ),
    )
    async def tools(self, caller: Caller, arguments: ListServerTools) -> Sequence[ToolCost]:
        """The tools of all servers, or of `?server=`, with their cost in tokens for a model; waits for all servers."""
        directory = await self._selector.find_directory(caller, arguments)
        return await self._hub.tools(directory, arguments.session, arguments.server)

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/problems"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_problems",
            "List the problems in the files that define MCP servers, with file and line.",
            forbid_unknown=True,
        ),
    )
    async def problems(self, caller: Caller, arguments: ForWorkspace) -> Sequence[ConfigProblem]:
        """The problems in the files that define servers, with file and line."""
        server_set = await self._hub.server_set(await self._selector.find_directory(caller, arguments))
        return server_set.config.problems

    @operation(
        changes=False,
        rest=RestRoute("GET", SERVER_PATH),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_get",
            "Get an MCP server: its status and error, its definition without secrets, and its last output to stderr.",
            forbid_unknown=True,
        ),
    )
    async def get(self, caller: Caller, arguments: ServerInConversation) -> ServerDetails:
        """One server: its record, its definition without secrets, and its last output to stderr."""
        selection = await self._selector.select(caller, arguments)
        server_set = await self._hub.server_set(selection.directory, selection.session)
        slot = server_set.find(arguments.name, selection.session)
        record = await self._selector.get_record(selection, arguments.name)
        definition = msgspec.convert(redact_definition(slot.definition), ShownDefinition)
        return ServerDetails(**msgspec.structs.asdict(record), definition=definition)

    @operation(
        rest=RestRoute("PUT", SERVER_PATH, (201,)),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_define",
            "Write an MCP server permanently into a configuration file: the user's own, or one of the workspace. "
            "Returns the file, and the server with this name. One of a workspace needs the user's approval before it "
            "can start.",
            destructive=True,
            forbid_unknown=True,
        ),
        is_setting=True,
    )
    async def define(self, caller: Caller, arguments: DefineServer) -> WrittenServer:
        """Write a server to a file permanently; returns the file, and the record of the server with this name."""
        directory = await self._selector.find_directory(caller, arguments)
        path = Path(arguments.file) if arguments.file else None
        if path is not None and not path.is_absolute():
            message = f"{arguments.file!r} is not an absolute path"
            raise RookeryError("invalid-input", message, "send an absolute path")
        file = find_file(directory, path) if path else choose_file(directory, arguments.place, arguments.client)
        await self._hub.write(file, arguments.name, arguments.config, arguments.force)
        record = (await self._selector.list_records(ServerSelection(directory))).get(arguments.name)
        return WrittenServer(arguments.name, str(file.path), file.dialect, file.place, record)

    @operation(
        rest=RestRoute("DELETE", SERVER_PATH),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_remove",
            "Remove an MCP server: one that was added while running, or its entry in the file that defines it.",
            destructive=True,
            forbid_unknown=True,
        ),
        is_setting=True,
    )
    async def remove(self, caller: Caller, arguments: OneServer) -> RemovedServer:
        """Remove a server: one that was added while running, or its entry in the file that defines it."""
        directory = await self._selector.find_directory(caller, arguments)
        definition = await self._hub.remove(directory, arguments.session, arguments.name)
        return RemovedServer(arguments.name, str(definition.source))

    @operation(
        rest=RestRoute("POST", f"{SERVER_PATH}/connect"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_connect",
            "Connect an MCP server now, regardless of earlier failures. Returns the server; its status and error say "
            "whether that succeeded.",
            forbid_unknown=True,
        ),
    )
    async def connect(self, caller: Caller, arguments: OneServer) -> ListedServer:
        """Connect now, regardless of earlier failures; returns the server's record."""
        directory = await self._selector.find_directory(caller, arguments)
        await self._hub.connect(directory, arguments.session, arguments.name)
        return await self._selector.get_record(ServerSelection(directory, arguments.session), arguments.name)

    @operation(
        rest=RestRoute("POST", f"{SERVER_PATH}/disconnect"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_disconnect",
            "Disconnect an MCP server until it is connected again, and return it.",
            destructive=True,
            forbid_unknown=True,
        ),
    )
    async def disconnect(self, caller: Caller, arguments: OneServer) -> ListedServer:
        """Disconnect a server until it is connected again; returns its record."""
        directory = await self._selector.find_directory(caller, arguments)
        await self._hub.disconnect(directory, arguments.session, arguments.name)
        return await self._selector.get_record(ServerSelection(directory, arguments.session), arguments.name)

    @operation(
        rest=RestRoute("POST", f"{SERVER_PATH}/enable"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_enable",
            "Enable an MCP server, or those of its tools that match `tool`, and return the server. With `session` in "
            "one conversation of an agent. Survives restarts.",
            forbid_unknown=True,
        ),
        is_setting=True,
    )
    async def enable(self, caller: Caller, arguments: SwitchServer) -> ListedServer:
        """Enable a server, or those of its tools that match `tool`, also in one conversation; survives restarts."""
        return await self._switch(caller, arguments, enabled=True)

    @operation(
        rest=RestRoute("POST", f"{SERVER_PATH}/disable"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_disable",
            "Disable an MCP server, or those of its tools that match `tool`, and return the server. With `session` in "
            "one conversation of an agent. Survives restarts.",
            destructive=True,
            forbid_unknown=True,
        ),
        is_setting=True,
    )
    async def disable(self, caller: Caller, arguments: SwitchServer) -> ListedServer:
        """Disable a server, or those of its tools that match `tool`, also in one conversation; survives restarts."""
        return await self._switch(caller, arguments, enabled=False)

    @operation(
        rest=RestRoute("POST", f"{SERVER_PATH}/debug"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_debug",
            "Test an MCP server on a separate connection. Returns each step with its time, without secrets.",
            forbid_unknown=True,
        ),
    )
    async def debug(self, caller: Caller, arguments: DebugServer) -> DebugReport:
        """Test a server on a separate connection; returns each step with its time, without secrets."""
        directory = await self._selector.find_directory(caller, arguments)
        return await self._hub.debug(directory, arguments.session, arguments.name, trace=arguments.trace)

    @operation(
        rest=RestRoute("POST", "/api/check"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_check",
            "Start all configured MCP servers once, or the named ones, beside those that run, and check the tools that "
            "they list. Returns the servers and the findings.",
            forbid_unknown=True,
        ),
    )
    async def check(self, caller: Caller, arguments: CheckServers) -> CheckReport:
        """Start all configured servers once, or the named ones, and check them; returns the results."""
        server_set = await self._hub.server_set(await self._selector.find_directory(caller, arguments))
        return await check_servers(server_set, self._hub.pool, arguments.servers, self._search_tokens)

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/costs"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "server_costs",
            "Get the cost in tokens of listing all tools to a model, and of listing the two tools that search them.",
            forbid_unknown=True,
        ),
    )
    async def costs(self, caller: Caller, arguments: ForWorkspace) -> ToolListCosts:
        """The cost of all tools in a list for a model, and the cost of the two tools that search them."""
        directory = await self._selector.find_directory(caller, arguments)
        tools = await self._hub.tools(directory, None, None)
        return ToolListCosts(sum(tool.tokens for tool in tools if tool.shown), self._search_tokens)

    async def _switch(self, caller: Caller, arguments: SwitchServer, *, enabled: bool) -> ListedServer:
        selection = await self._selector.select(caller, arguments)
        narrowest: Level = "session" if selection.session else "workspace" if selection.directory else "app"
        level = arguments.level or narrowest
        if selection.conversation is not None and arguments.level in (None, "session"):
            level = "conversation"
        await self._hub.switch(
            selection.directory,
            selection.session,
            arguments.name,
            tool=arguments.tool,
            level=level,
            enabled=enabled,
            conversation=selection.conversation,
        )
        return await self._selector.get_record(selection, arguments.name)
