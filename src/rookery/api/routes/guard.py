"""The routes of the guard: pending and granted approvals of the user. Unix socket only."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.requests import json_response, read_body
from rookery.guard.approvals import Approval, Approvals
from rookery.guard.risks import find_risks
from rookery.guard.server import KIND, ServerDefinition, read_definition
from rookery.guard.subject import Key, Subject
from rookery.guard.terminal import require_person, require_socket
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.wire.http.auth import PeerProcess


@dataclass(frozen=True)
class GuardServices:
    """The services behind these routes.

    `list_subjects` returns everything in the repositories that needs an approval, approved or not; `on_changed` is
    called after each decision.
    """

    approvals: Approvals
    events: Bus
    list_subjects: Callable[[], Awaitable[list[Subject]]]
    on_changed: Callable[[Key], Awaitable[None]]


class ApproveRequest(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    place: str
    name: str
    digest: str


class RevokeRequest(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    place: str
    name: str


def guard_routes(guard: Callable[[], GuardServices]) -> list[Route]:
    routes = GuardRoutes(guard)
    return [
        Route("/api/guard/approvals", routes.approvals),
        Route("/api/guard/digests", routes.digests),
        Route("/api/guard/approve", routes.approve, methods=["POST"]),
        Route("/api/guard/revoke", routes.revoke, methods=["POST"]),
    ]


class GuardRoutes:
    def __init__(self, guard: Callable[[], GuardServices]) -> None:
        self._guard = guard

    async def approvals(self, request: Request) -> Response:
        """The pending approvals, each with the content approved last, and the approved ones; Unix socket only."""
        require_socket(request.state.principal)
        approvals = self._guard().approvals
        subjects = [(subject, await approvals.state(subject)) for subject in await self._guard().list_subjects()]
        pending = [await self._format(subject) | {"state": state} for subject, state in subjects if state != "approved"]
        by_digest = [
            _digest_approval(subject, source)
            for subject, _ in subjects
            if (source := approvals.find_digest_source(subject))
        ]
        return json_response({"waiting": pending, "approved": [*await approvals.list(), *by_digest]})

    async def digests(self, request: Request) -> Response:
        """The digests of everything in repositories that needs approval, to approve in advance; Unix socket only."""
        require_socket(request.state.principal)
        subjects = [
            (subject, await self._guard().approvals.state(subject)) for subject in await self._guard().list_subjects()
        ]
        return json_response([{**_format_key(subject), "state": state} for subject, state in subjects])

    async def approve(self, request: Request) -> Response:
        """Approve the content with this digest; only for a person at a terminal, over the Unix socket."""
        body = await read_body(request, ApproveRequest)
        await require_person(request.state.principal, _peer_of(request), at_terminal=True)
        key = Key(body.kind, body.place, body.name)
        subjects = [candidate for candidate in await self._guard().list_subjects() if candidate.key == key]
        if not subjects:
            raise _not_found(key, "waits for approval")
        # The workspaces of a project may differ in content. If no content has this digest, it has changed since it was
        # shown.
        subject = next((candidate for candidate in subjects if candidate.digest == body.digest), subjects[0])
        await self._guard().approvals.approve(subject, body.digest)
        await self._publish("guard.approved", key, digest=body.digest)
        return json_response(msgspec.to_builtins(body) | {"approved": True})

    async def revoke(self, request: Request) -> Response:
        """Revoke all approvals of a name; not for processes that Rookery started, only over the Unix socket."""
        body = await read_body(request, RevokeRequest)
        await require_person(request.state.principal, _peer_of(request), at_terminal=False)
        key = Key(body.kind, body.place, body.name)
        if not await self._guard().approvals.revoke(key):
            raise _not_found(key, "is approved")
        await self._publish("guard.revoked", key)
        return json_response(msgspec.to_builtins(body) | {"revoked": True})

    async def _format(self, subject: Subject) -> dict[str, Any]:
        """Return a pending approval with its content, risks and the content approved last."""
        last = await self._guard().approvals.find_newest(subject.key)
        fields = {
            **_format_key(subject),
            "digest": subject.digest,
            "content": subject.content,
            "folder": subject.folder,
            "files": subject.files,
            "shown": subject.text,
            "last": last.content if last is not None else None,
        }
        if subject.kind == KIND:
            parts = read_definition(subject.content)
            fields |= msgspec.to_builtins({"parts": parts, "risks": find_risks(parts)})
        else:
            fields["risks"] = msgspec.to_builtins(find_risks(ServerDefinition([subject.content], "", "", {}, {}, {})))
        return fields

    async def _publish(self, event: str, key: Key, **more: str) -> None:
        """Publish a decision, and call `changed`."""
        self._guard().events.publish(event, **key._asdict(), **more)
        await self._guard().on_changed(key)


def _format_key(subject: Subject) -> dict[str, Any]:
    return {
        **subject.key._asdict(),
        "sha256": subject.sha256,
        "source": subject.source,
        "problem": subject.problem,
    }


def _digest_approval(subject: Subject, source: str) -> Approval:
    return Approval(*subject.key, subject.digest, subject.text, 0.0, "digest", source)


def _peer_of(request: Request) -> PeerProcess | None:
    return request.scope["state"].get("peer")


def _not_found(key: Key, what: str) -> RookeryError:
    return RookeryError(
        "approval-not-found",
        f"nothing named {key.name} {what} in {key.place}",
        "list the approvals: rookery guard list",
    )
