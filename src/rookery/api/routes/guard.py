"""The routes of the guard: what waits for the user's approval, and what has it. On the Unix socket only."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.guard.approvals import Approvals
from rookery.guard.definitions import KIND, Parts, parts_of
from rookery.guard.risks import risks_of
from rookery.guard.subject import Key, Subject
from rookery.guard.terminal import require_person, require_socket
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.wire.gate import Peer


@dataclass(frozen=True)
class Guard:
    """`waiting` answers all that is there to be approved as it is now; `changed` is called with what was decided on."""

    approvals: Approvals
    events: Bus
    waiting: Callable[[], Awaitable[list[Subject]]]
    changed: Callable[[Key], Awaitable[None]]


class Approve(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    place: str
    name: str
    digest: str


class Revoke(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    place: str
    name: str


def routes(guard: Callable[[], Guard]) -> list[Route]:
    made = GuardRoutes(guard)
    return [
        Route("/api/guard/approvals", made.approvals),
        Route("/api/guard/approve", made.approve, methods=["POST"]),
        Route("/api/guard/revoke", made.revoke, methods=["POST"]),
    ]


class GuardRoutes:
    def __init__(self, guard: Callable[[], Guard]) -> None:
        self._guard = guard

    async def approvals(self, request: Request) -> Response:
        """What waits for the user's approval, with what was approved last, and what is approved; socket only."""
        require_socket(request.state.principal)
        approvals = self._guard().approvals
        found = [(subject, await approvals.state(subject)) for subject in await self._guard().waiting()]
        waiting = [await self._shown(subject) | {"state": state} for subject, state in found if state != "approved"]
        return answer({"waiting": waiting, "approved": await approvals.list()})

    async def approve(self, request: Request) -> Response:
        """Approve the content that has this digest; only for a person at a terminal, over the socket."""
        asked = await body_of(request, Approve)
        await require_person(request.state.principal, _peer_of(request), at_terminal=True)
        key = Key(asked.kind, asked.place, asked.name)
        found = [one for one in await self._guard().waiting() if one.key == key]
        if not found:
            raise _not_found(key, "waits for approval")
        # Workspaces of a project may differ in content; what is none of them has changed since it was shown.
        subject = next((one for one in found if one.digest == asked.digest), found[0])
        await self._guard().approvals.approve(subject, asked.digest)
        await self._tell("guard.approved", key, digest=asked.digest)
        return answer(msgspec.to_builtins(asked) | {"approved": True})

    async def revoke(self, request: Request) -> Response:
        """Take back every approval of a name; not for processes that Rookery started, over the socket."""
        asked = await body_of(request, Revoke)
        await require_person(request.state.principal, _peer_of(request), at_terminal=False)
        key = Key(asked.kind, asked.place, asked.name)
        if not await self._guard().approvals.revoke(key):
            raise _not_found(key, "is approved")
        await self._tell("guard.revoked", key)
        return answer(msgspec.to_builtins(asked) | {"revoked": True})

    async def _shown(self, subject: Subject) -> dict[str, Any]:
        last = await self._guard().approvals.last(subject.key)
        told = {
            **subject.key._asdict(),
            "digest": subject.digest,
            "source": subject.source,
            "problem": subject.problem,
            "content": subject.content,
            "folder": subject.folder,
            "files": subject.files,
            "shown": subject.shown,
            "last": last.content if last is not None else None,
        }
        if subject.kind == KIND:
            parts = parts_of(subject.content)
            told |= msgspec.to_builtins({"parts": parts, "risks": risks_of(parts)})
        else:
            told["risks"] = msgspec.to_builtins(risks_of(Parts([subject.content], "", "", {}, {}, {})))
        return told

    async def _tell(self, event: str, key: Key, **more: str) -> None:
        self._guard().events.publish(event, **key._asdict(), **more)
        await self._guard().changed(key)


def _peer_of(request: Request) -> Peer | None:
    return request.scope["state"].get("peer")


def _not_found(key: Key, what: str) -> RookeryError:
    return RookeryError(
        "approval-not-found", f"nothing named {key.name} {what} in {key.place}", "see: rookery guard list"
    )
