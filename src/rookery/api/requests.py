"""Routes that are matched on the encoded path, JSON responses, and the cancellation of a request with its client.

Each name in a path is one percent-encoded segment: `feature%2Fx` is one name.
"""

import asyncio
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope


def cancel_with_client(request: Request) -> None:
    """Cancel the current request when its client disconnects."""
    task = asyncio.current_task()
    assert task is not None
    request.scope["extensions"]["rookery.on_lost"](task.cancel)


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


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
