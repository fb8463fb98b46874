"""The operations on the audit: find records, also those to come, and verify that nothing was changed."""

from typing import Annotated, get_args

from msgspec import Meta

from rookery.guard.audit.log import AuditLog
from rookery.guard.audit.records import AuditFilter, AuditPage, AuditVerification, Event
from rookery.operations.operation import (
    ADMIN_TOOLSET,
    Caller,
    McpTool,
    NoParameters,
    Parameters,
    RestRoute,
    operation,
)
from rookery.system.errors import RookeryError

_MAX_ID = 10**15
_EVENTS: tuple[str, ...] = tuple(sorted({event for part in get_args(Event) for event in (get_args(part) or (part,))}))
_Time = Annotated[float, Meta(ge=0, le=1e12)]
_Id = Annotated[int, Meta(ge=0, le=_MAX_ID)]


class FindRecords(Parameters):
    since: Annotated[_Time | None, Meta(description="Only records from this time on, in seconds since 1970")] = None
    until: Annotated[_Time | None, Meta(description="Only records up to this time, in seconds since 1970")] = None
    event: Annotated[str | None, Meta(description=f"Only these events, separated by commas: {', '.join(_EVENTS)}")] = (
        None
    )
    workspace: Annotated[str | None, Meta(description="Only this workspace: its path, or the end of its path")] = None
    server: Annotated[str | None, Meta(description="Only this server; * and ? are wildcards")] = None
    tool: Annotated[
        str | None, Meta(description="Only this tool, by its own name or as `server/tool`; * and ? are wildcards")
    ] = None
    verdict: Annotated[
        str | None,
        Meta(description="Only this verdict or outcome, such as `allowed`, `denied`, `approved` or `timed-out`"),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most records to return")] = 100
    after: Annotated[
        _Id | None, Meta(description="The first records after this id come, instead of the newest ones")
    ] = None
    before: Annotated[_Id | None, Meta(description="The newest records before this id come")] = None
    wait: Annotated[
        Annotated[float, Meta(ge=0, le=300)],
        Meta(description="With `after`: how many seconds to wait for a record if there is none yet"),
    ] = 0.0


class AuditOperations:
    """The operations on the audit."""

    group = "audit"

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    @operation(
        changes=False,
        cancellable=True,
        rest=RestRoute("GET", "/api/audit"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "audit_list",
            "List records of the audit, the oldest first: who called which tool when and with what verdict, what the "
            "user approved, sign-ins, and changes of settings. Arguments and results of calls are not recorded.",
            omit=frozenset({"wait"}),
            forbid_unknown=True,
        ),
    )
    async def records(self, caller: Caller, arguments: FindRecords) -> AuditPage:
        """The newest records of the audit that match, in the order of their ids, or those after an id."""
        wanted = AuditFilter(
            since=arguments.since,
            until=arguments.until,
            events=_parse_events(arguments.event),
            workspace=arguments.workspace,
            server=arguments.server,
            tool=arguments.tool,
            verdict=arguments.verdict,
        )
        if arguments.after is not None and arguments.before is not None:
            raise RookeryError("invalid-input", "after and before exclude each other", "leave one of them out")
        if arguments.after is not None and arguments.wait:
            return await self._audit.wait(wanted, arguments.limit, arguments.after, arguments.wait)
        return await self._audit.find(wanted, arguments.limit, after=arguments.after, before=arguments.before)

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/audit/verification"),
        mcp=McpTool(
            ADMIN_TOOLSET,
            "audit_verify",
            "Verify that the records of the audit are those that were written. Returns the parts that were changed or "
            "removed.",
            forbid_unknown=True,
        ),
    )
    async def verify(self, caller: Caller, arguments: NoParameters) -> AuditVerification:
        """Check the chain of hashes through the audit; returns the parts that were changed or removed."""
        return await self._audit.verify()


def _parse_events(text: str | None) -> frozenset[str]:
    events = frozenset(part.strip() for part in (text or "").split(",") if part.strip())
    if unknown := sorted(events - set(_EVENTS)):
        raise RookeryError("invalid-input", f"there is no event {unknown[0]!r}", f"use {', '.join(_EVENTS)}")
    return events
