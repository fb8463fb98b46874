"""The routes that judge servers, and tell what their tools cost."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.api.mcp import Mcp, McpRoutes, require_outsider
from rookery.upstreams.checking import check


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """Names of servers; none means all."""

    servers: list[str] = []


def routes(mcp: Mcp) -> list[Route]:
    made = CheckRoutes(mcp)
    return [
        Route("/api/check", made.check, methods=["POST"]),
        Route("/api/costs", made.costs),
    ]


class CheckRoutes(McpRoutes):
    def __init__(self, mcp: Mcp) -> None:
        super().__init__(mcp)
        # Of a view in search mode.
        self._search_tokens = mcp.search_tokens

    async def check(self, request: Request) -> Response:
        """Start every configured server once, or those that are named, and judge it; answers what was found."""
        asked = await body_of(request, Wanted)
        await require_outsider()
        fleet = await self._hub.fleet(await self._where(request))
        return answer(await check(fleet, self._hub.pool, asked.servers, self._search_tokens))

    async def costs(self, request: Request) -> Response:
        """What all tools cost a model to read in a list, and what two tools cost that search them."""
        tools = await self._hub.tools(await self._where(request), None, None)
        costs = {"list_tokens": sum(one.tokens for one in tools if one.shown), "search_tokens": self._search_tokens}
        return answer(costs)
