"""The operations on approvals of the user: list the pending and the given ones, approve, revoke. Unix socket only."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta

from rookery.guard.approvals import Approvals
from rookery.guard.records import (
    Approval,
    ApprovalGiven,
    ApprovalList,
    ApprovalRevoked,
    DigestRecord,
    PendingApproval,
    State,
)
from rookery.guard.risks import find_risks
from rookery.guard.server import KIND, ServerDefinition, read_definition
from rookery.guard.subject import Key, Subject
from rookery.operations.operation import Caller, Interface, NoParameters, Parameters, RestRoute, operation
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError

_NO_LIST: Mapping[Interface, str] = {
    "mcp": "approvals are listed only over the Unix socket: an agent that reads what waits could prepare what it shows"
}
_NO_DECISION: Mapping[Interface, str] = {
    "mcp": "a person decides, over the Unix socket; behind MCP there is a model, which could approve its own tools"
}

Kind = Annotated[str, Meta(description="Kind of the content, such as mcp-server")]
Place = Annotated[str, Meta(description="Path of the checkout that the approval is valid for")]
Name = Annotated[str, Meta(description="Name of the content")]


class Approve(Parameters):
    kind: Kind
    place: Place
    name: Name
    digest: Annotated[str, Meta(description="Digest of the content, as it was listed")]


class Revoke(Parameters):
    kind: Kind
    place: Place
    name: Name


class GuardOperations:
    """The operations on approvals.

    `list_subjects` returns everything in the repositories that needs an approval, approved or not; `on_changed` is
    called after each decision, `on_approved` with what was approved before that.
    """

    group = "guard"

    def __init__(
        self,
        approvals: Approvals,
        events: Bus,
        list_subjects: Callable[[], Awaitable[list[Subject]]],
        on_changed: Callable[[Key], Awaitable[None]],
        on_approved: Callable[[Subject], Awaitable[None]],
    ) -> None:
        self._approvals = approvals
        self._events = events
        self._list_subjects = list_subjects
        self._on_changed = on_changed
        self._on_approved = on_approved

    @operation(access="socket", changes=False, rest=RestRoute("GET", "/api/guard/approvals"), absent=_NO_LIST)
    async def approvals(self, caller: Caller, arguments: NoParameters) -> ApprovalList:
        """The pending approvals, each with the content approved last, and the approved ones; Unix socket only."""
        subjects = await self._list_states()
        pending = [await self._describe(subject, state) for subject, state in subjects if state != "approved"]
        by_digest = [
            Approval(*subject.key, subject.digest, subject.text, 0.0, "digest", source)
            for subject, _ in subjects
            if (source := self._approvals.find_digest_source(subject))
        ]
        return ApprovalList(pending, [*await self._approvals.list(), *by_digest])

    @operation(access="socket", changes=False, rest=RestRoute("GET", "/api/guard/digests"), absent=_NO_LIST)
    async def digests(self, caller: Caller, arguments: NoParameters) -> Sequence[DigestRecord]:
        """The digests of everything in repositories that needs approval, to approve in advance; Unix socket only."""
        return [
            DigestRecord(
                **subject.key._asdict(),
                sha256=subject.sha256,
                source=subject.source,
                problem=subject.problem,
                state=state,
            )
            for subject, state in await self._list_states()
        ]

    @operation(access="terminal", rest=RestRoute("POST", "/api/guard/approve"), absent=_NO_DECISION)
    async def approve(self, caller: Caller, arguments: Approve) -> ApprovalGiven:
        """Approve the content with this digest; only for a person at a terminal, over the Unix socket."""
        key = Key(arguments.kind, arguments.place, arguments.name)
        digest = arguments.digest
        subjects = [candidate for candidate in await self._list_subjects() if candidate.key == key]
        if not subjects:
            raise _not_found(key, "waits for approval")
        # The workspaces of a project may differ in content. If no content has this digest, it has changed since it was
        # shown.
        subject = next((candidate for candidate in subjects if candidate.digest == digest), subjects[0])
        await self._approvals.approve(subject, digest)
        await self._on_approved(subject)
        await self._publish("guard.approved", key, digest=digest)
        return ApprovalGiven(**key._asdict(), digest=digest)

    @operation(access="person", rest=RestRoute("POST", "/api/guard/revoke"), absent=_NO_DECISION)
    async def revoke(self, caller: Caller, arguments: Revoke) -> ApprovalRevoked:
        """Revoke all approvals of a name; not for processes that Rookery started, only over the Unix socket."""
        key = Key(arguments.kind, arguments.place, arguments.name)
        if not await self._approvals.revoke(key):
            raise _not_found(key, "is approved")
        await self._publish("guard.revoked", key)
        return ApprovalRevoked(**key._asdict())

    async def _list_states(self) -> list[tuple[Subject, State]]:
        return [(subject, await self._approvals.state(subject)) for subject in await self._list_subjects()]

    async def _describe(self, subject: Subject, state: State) -> PendingApproval:
        """Return a pending approval with its content, risks and the content approved last."""
        last = await self._approvals.find_newest(subject.key)
        is_server = subject.kind == KIND
        parts = (
            read_definition(subject.content) if is_server else ServerDefinition([subject.content], "", "", {}, {}, {})
        )
        return PendingApproval(
            **subject.key._asdict(),
            sha256=subject.sha256,
            source=subject.source,
            problem=subject.problem,
            digest=subject.digest,
            content=subject.content,
            folder=subject.folder,
            files=subject.files,
            shown=subject.text,
            last=last.content if last is not None else None,
            parts=parts if is_server else UNSET,
            risks=find_risks(parts),
            state=state,
        )

    async def _publish(self, event: str, key: Key, **more: str) -> None:
        """Publish a decision, and call `on_changed`."""
        self._events.publish(event, **key._asdict(), **more)
        await self._on_changed(key)


def _not_found(key: Key, what: str) -> RookeryError:
    return RookeryError(
        "approval-not-found",
        f"nothing named {key.name} {what} in {key.place}",
        "list the approvals: rookery guard list",
    )
