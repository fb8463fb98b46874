"""Routes whose every name is one percent-encoded segment: `feature%2Fx` is a name, not two."""

from typing import Any
from urllib.parse import unquote

from starlette.routing import Match, Route
from starlette.types import Scope


class RawRoute(Route):
    """Matched on the path as it was sent, where a slash in a name is not one between names."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["raw_path"].decode("latin-1")
        # Asked first: all that Starlette does about a route costs more, and nearly all of them do not match.
        if scope["type"] != "http" or self.path_regex.match(path) is None:
            return Match.NONE, {}
        match, found = super().matches({**scope, "path": path})
        params: dict[str, Any] = found.get("path_params", {})
        for name, value in params.items():
            params[name] = unquote(value)
        return match, found
