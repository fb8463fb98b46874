"""The routes about plugins."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.requests import RawRoute, cancel_with_client, json_response, read_body, read_query
from rookery.plugins.service import Plugins


class TriggerAction(msgspec.Struct, forbid_unknown_fields=True):
    args: dict[str, Any] = {}


def plugin_routes(plugins: Plugins) -> list[Route]:
    routes = PluginRoutes(plugins)
    return [
        Route("/api/plugins", routes.list),
        Route("/api/plugins/state", routes.states),
        RawRoute("/api/plugins/{name}/state", routes.state),
        RawRoute("/api/plugins/{name}/actions/{action}", routes.trigger, methods=["POST"]),
    ]


class PluginRoutes:
    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    async def list(self, request: Request) -> Response:
        """All plugins of Rookery and OpenCode, with their hooks, actions, state keys and errors."""
        return json_response(await self._plugins.list())

    async def states(self, request: Request) -> Response:
        """The state of every plugin; with `?key=` one key of those that have it."""
        return json_response(await self._plugins.states(read_query(request, "key"), None))

    async def state(self, request: Request) -> Response:
        """The state of one plugin, or `?key=` of it; `?workspace=` selects the workspace if it is stored in files."""
        name = request.path_params["name"]
        return json_response(
            await self._plugins.state(name, read_query(request, "key"), None, read_query(request, "workspace"))
        )

    async def trigger(self, request: Request) -> Response:
        """Run an action of a plugin with `args`; returns its `result`."""
        body = await read_body(request, TriggerAction)
        cancel_with_client(request)
        name, action = request.path_params["name"], request.path_params["action"]
        return json_response({"result": await self._plugins.trigger(name, action, body.args, None)})
