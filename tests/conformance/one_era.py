"""The fixture's service, limited to one era: it responds to the other as a server that does not support it."""

from typing import Any

from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import METHOD_NOT_FOUND, UNSUPPORTED_VERSION, Params, Request, WireError
from rookery.wire.protocol.provider import Provider
from rookery.wire.server.service import Service
from rookery.wire.server.session import Session, Sessions


class _OnlyHandshake(Service):
    async def modern(self, request: Request, *about: Any, **more: Any) -> tuple[bytes, int]:
        error = WireError(METHOD_NOT_FOUND, f"there is no method {request.method}")
        return error.encode(request.id), error.code


class _NoSessions(Sessions):
    def open(self, params: Params, owner: str) -> tuple[Session, dict[str, Any]]:
        raise WireError(UNSUPPORTED_VERSION, "only 2026-07-28 is spoken here", {"supported": list(revisions.MODERN)})


def service(provider: Provider, only: str | None) -> Service:
    if only == "handshake":
        return _OnlyHandshake(provider)
    return Service(provider, _NoSessions(provider) if only == "modern" else None)
