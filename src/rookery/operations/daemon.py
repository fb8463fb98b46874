"""The operations on the daemon itself: status, events, log, metrics, reload and stop."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rookery.operations.operation import (
    ADMIN_TOOLSET,
    Caller,
    McpTool,
    NoParameters,
    Parameters,
    RestRoute,
    operation,
)
from rookery.operations.results import Binary, BusEvents, PlainText
from rookery.operations.status import (
    ClientSession,
    DaemonHealth,
    DaemonStatus,
    EndpointLookup,
    ReloadedSettings,
    StatusReport,
    StopStarted,
    add_endpoint,
)
from rookery.system import metrics
from rookery.system.bus import Bus, Event
from rookery.system.log import is_below
from rookery.upstreams.server_set import ServerRecord
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.projects import Projects

_EVENTS = "text/event-stream"
# Ids of events and numbers of records have at most this many digits.
_MAX_ID = 10**18 - 1
_MAX_COUNT = 10**9 - 1

_EventId = Annotated[int, Meta(ge=0, le=_MAX_ID)]
# A browser that reconnects sends this header, and the same `?since=` as at first.
_LAST_ID = {"since": "Last-Event-ID"}


class ReadEvents(Parameters):
    since: Annotated[
        _EventId | None, Meta(description="Id of the last event that the client received; default: only new events")
    ] = None


class ReadLog(Parameters):
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Only records of this level and above")
    ] = "debug"
    logger: Annotated[str | None, Meta(description="Only records of this logger, and of those below it")] = None
    last: Annotated[int, Meta(ge=0, le=_MAX_COUNT, description="How many of the last records come first")] = 200
    since: Annotated[
        _EventId | None,
        Meta(description="Id of the last record that the client received; the records after it come instead of `last`"),
    ] = None


class StopDaemon(Parameters):
    reason: Annotated[str, Meta(description="The reason, for the daemon's log")] = "asked to"


@dataclass(frozen=True)
class DaemonServices:
    """What these operations use.

    `describe` returns the status of the daemon, without its clients. `reload` reads the settings again, and `stop`
    begins the stop of the daemon, for a reason. `make_document` returns the OpenAPI document as JSON.
    """

    instance: str
    version: str
    describe: Callable[[], DaemonStatus]
    projects: Projects
    workspaces: WorkspaceOperations
    endpoints: Callable[[], EndpointLookup]
    list_servers: Callable[[], Awaitable[list[ServerRecord]]]
    list_clients: Callable[[], Sequence[ClientSession]]
    events: Bus
    logs: Bus
    reload: Callable[[], Awaitable[ReloadedSettings]]
    stop: Callable[[str], None]
    make_document: Callable[[], bytes]


class DaemonOperations:
    """The operations on the daemon."""

    group = "daemon"

    def __init__(self, services: DaemonServices) -> None:
        self._services = services
        # Made when it is first needed.
        self._document: bytes | None = None

    @operation(
        access="anyone",
        changes=False,
        time_limit=60.0,
        rest=RestRoute("GET", "/api/health"),
        absent={"mcp": "for supervisors without a token; a client of MCP has to be authorized before it can ask"},
    )
    async def health(self, caller: Caller, arguments: NoParameters) -> DaemonHealth:
        """Whether the daemon is alive, and which instance it is; needs no token."""
        return DaemonHealth(instance=self._services.instance, version=self._services.version)

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/status"),
        absent={
            "mcp": "too large for a model, because each workspace repeats the schemas of its tools; `daemon_status`, "
            "`project_list`, `workspace_list` and `hub_list_servers` return its parts"
        },
    )
    async def report(self, caller: Caller, arguments: NoParameters) -> StatusReport:
        """The data that `rookery status --json` prints."""
        services = self._services
        daemon = self._describe()
        entries = await services.workspaces.overview.all(status=True)
        return StatusReport(
            daemon,
            await services.projects.all(),
            workspaces=[await add_endpoint(entry, services.endpoints(), daemon.url) for entry in entries],
            servers=await services.list_servers(),
        )

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/daemon"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "daemon_status",
            "Get the status of Rookery's daemon: its process, version and addresses, its problems, the background "
            "tasks that crashed, and the MCP clients that have a session.",
            forbid_unknown=True,
        ),
    )
    async def status(self, caller: Caller, arguments: NoParameters) -> DaemonStatus:
        """The daemon alone: its process, problems and crashed tasks, and the clients that have a session."""
        return self._describe()

    def _describe(self) -> DaemonStatus:
        return msgspec.structs.replace(self._services.describe(), clients=self._services.list_clients())

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/events", media_types=(_EVENTS,), headers=_LAST_ID),
        absent={
            "mcp": "a stream without end, and the result of a tool ends; `wait_for` and subscriptions to resources "
            "report changes of sessions"
        },
    )
    async def events(self, caller: Caller, arguments: ReadEvents) -> BusEvents:
        """All changes as server-sent events; `?since=<id>` continues after that event."""
        return BusEvents(self._services.events, arguments.since)

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/logs", media_types=(_EVENTS,), headers=_LAST_ID),
        absent={
            "mcp": "a stream without end, and the result of a tool ends; `agent_logs` returns the output of an agent, "
            "and `daemon_status` the problems of the daemon"
        },
    )
    async def logs(self, caller: Caller, arguments: ReadLog) -> BusEvents:
        """The log as server-sent events, the last records first; `?level=`, `?logger=` and `?last=` limit them."""
        levels = logging.getLevelNamesMapping()
        logger = arguments.logger
        logs = self._services.logs
        minimum = levels[arguments.level.upper()]

        def matches(event: Event) -> bool:
            if logger is not None and not is_below(event.data["logger"], logger):
                return False
            return levels[event.data["level"].upper()] >= minimum

        since = logs.id_before_last(arguments.last) if arguments.since is None else arguments.since
        return BusEvents(logs, since, matches)

    @operation(
        rest=RestRoute("POST", "/api/daemon/reload"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "daemon_reload",
            "Make Rookery's daemon read its settings again. Returns the settings that changed: those that are now in "
            "use, and those that need a restart of the daemon.",
            forbid_unknown=True,
        ),
    )
    async def reload(self, caller: Caller, arguments: NoParameters) -> ReloadedSettings:
        """Read the settings again; returns which of them are in use now and which need a restart."""
        return await self._services.reload()

    @operation(
        rest=RestRoute("POST", "/api/daemon/stop", (202,)),
        absent={"mcp": "the daemon serves this connection: it would end, and with it the agents of all workspaces"},
    )
    async def stop(self, caller: Caller, arguments: StopDaemon) -> StopStarted:
        """Stop the daemon; returns immediately."""
        self._services.stop(arguments.reason)
        return StopStarted()

    @operation(
        changes=False,
        rest=RestRoute("GET", "/metrics", media_types=("text/plain",)),
        absent={"mcp": "a text format for Prometheus, which reads it over HTTP; `daemon_status` is for models"},
    )
    async def metrics(self, caller: Caller, arguments: NoParameters) -> PlainText:
        """Counters and gauges in the text format of Prometheus."""
        return PlainText(metrics.render(), "text/plain; version=0.0.4; charset=utf-8")

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/openapi.json"),
        absent={"mcp": "it describes the REST routes; a client of MCP gets the schemas of its tools from `tools/list`"},
    )
    async def openapi(self, caller: Caller, arguments: NoParameters) -> dict[str, Any] | Binary:
        """This document: all REST routes with their parameters, bodies and responses, as OpenAPI 3.1."""
        if self._document is None:
            self._document = self._services.make_document()
        return Binary(self._document, "application/json")
