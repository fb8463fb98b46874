"""Requests and responses of the REST routes: typed bodies, queries, raw path segments, and views by the user.

Each name in a path is one percent-encoded segment: `feature%2Fx` is one name. When the user views a workspace or a
session, that is recorded, so that clients can show what has finished since.
"""

import asyncio
import math
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from rookery.system.errors import RookeryError

_FLAGS = {"true": True, "1": True, "false": False, "0": False}

T = TypeVar("T", bound=msgspec.Struct)


def read_query(request: Request, name: str) -> str | None:
    """Return a query parameter; None if it is missing or empty."""
    return request.query_params.get(name) or None


def read_flag(request: Request, name: str) -> bool:
    """Return a query parameter that is true or false; False if it is missing."""
    value = request.query_params.get(name, "false")
    if value not in _FLAGS:
        raise RookeryError("invalid-input", f"{name}={value[:40]!r} is neither true nor false", f"send {name}=true")
    return _FLAGS[value]


def read_number(request: Request, name: str) -> float | None:
    """Return a query parameter that is a finite number; None if it is missing."""
    text = read_query(request, name)
    try:
        number = float(text) if text is not None else None
    except ValueError:
        number = math.nan
    if number is not None and not math.isfinite(number):
        raise RookeryError("invalid-input", f"{name}={(text or '')[:40]!r} is not a number", f"send {name}=1")
    return number


def cancel_with_client(request: Request) -> None:
    """Cancel the current request when its client disconnects."""
    task = asyncio.current_task()
    assert task is not None
    request.scope["extensions"]["rookery.on_lost"](task.cancel)


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the body of a request as `kind`. An empty body counts as an empty object."""
    data = await request.body()
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fields = ", ".join(kind.__struct_fields__)
        raise RookeryError(
            "invalid-input", f"the body is invalid: {error}", f"send an object with: {fields}"
        ) from error


class RawRoute(Route):
    """A route that is matched on the encoded path, so that an encoded slash in a name does not separate segments."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["raw_path"].decode("latin-1")
        # Checked first: the matching of Starlette costs more, and nearly all routes do not match.
        if scope["type"] != "http" or self.path_regex.match(path) is None:
            return Match.NONE, {}
        match, child_scope = super().matches({**scope, "path": path})
        params: dict[str, Any] = child_scope.get("path_params", {})
        for name, value in params.items():
            params[name] = unquote(value)
        return match, child_scope


def is_user_view(request: Request) -> bool:
    """Return whether the user made this request, over the Unix socket. Programs that watch use a port."""
    return request.state.principal.kind == "owner" and request.state.principal.local
