"""Routes whose every name is one percent-encoded segment: `feature%2Fx` is a name, not two."""

from typing import Any
from urllib.parse import unquote

from starlette.routing import Match, Route
from starlette.types import Scope


class RawRoute(Route):
    """Matched on the path as it was sent, where a slash in a name is not one between names."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        sent = {**scope, "path": scope["raw_path"].decode("latin-1")} if scope["type"] == "http" else scope
        match, found = super().matches(sent)
        params: dict[str, Any] = found.get("path_params", {})
        for name, value in params.items():
            params[name] = unquote(value)
        return match, found
