"""The routes about plugins."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api import outsiders
from rookery.api.answers import answer, body_of
from rookery.api.queries import ends_with_client, query
from rookery.api.raw_route import RawRoute
from rookery.plugins.service import Plugins


class Trigger(msgspec.Struct, forbid_unknown_fields=True):
    args: dict[str, Any] = {}


def routes(plugins: Plugins) -> list[Route]:
    made = PluginRoutes(plugins)
    return [
        Route("/api/plugins", made.list),
        Route("/api/plugins/state", made.states),
        RawRoute("/api/plugins/{name}/state", made.state),
        RawRoute("/api/plugins/{name}/actions/{action}", made.trigger, methods=["POST"]),
    ]


class PluginRoutes:
    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    async def list(self, request: Request) -> Response:
        """All plugins, Rookery's and OpenCode's, with their hooks, actions, keys of their state and errors."""
        return answer(await self._plugins.list())

    async def states(self, request: Request) -> Response:
        """What every plugin tells of itself; with `?key=` one key of those that have it."""
        return answer(await self._plugins.states(query(request, "key"), None))

    async def state(self, request: Request) -> Response:
        """What one plugin tells of itself, or `?key=` of it; `?workspace=` chooses where it lies in files."""
        name = request.path_params["name"]
        return answer(await self._plugins.state(name, query(request, "key"), None, query(request, "workspace")))

    async def trigger(self, request: Request) -> Response:
        """Run an action of a plugin with `args`; answers its `result`."""
        asked = await body_of(request, Trigger)
        ends_with_client(request)
        name, action = request.path_params["name"], request.path_params["action"]
        return answer({"result": await self._plugins.trigger(name, action, asked.args, None, require_outsider)})


async def require_outsider() -> None:
    """What agents start must not do what is its user's."""
    await outsiders.require_outsider("this action is for the user", "do it yourself: rookery plugin action")
