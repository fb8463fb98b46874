"""`fastmcp_gateway.py PORT UPSTREAM...`: FastMCP's proxy, run by the Python that it is installed for.

Each UPSTREAM is a URL or a command in JSON (a list of words). One is proxied under its own tool names; several are
mounted as `s0`, `s1` and so on. It has its cheapest options: clients that stay connected, and JSON responses.
"""

# pyright: basic, reportMissingImports=false

import contextlib
import json
import logging
import sys

import uvicorn
import uvloop
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response


def client_of(upstream: str) -> Client:
    if not upstream.startswith("["):
        return Client(upstream)
    command, *args = json.loads(upstream)
    return Client(StdioTransport(command, args))


async def serve(port: int, upstreams: list[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(upstream)) for upstream in upstreams]
        proxies = [create_proxy(client) for client in clients]
        if len(proxies) == 1:
            server = proxies[0]
        else:
            server = FastMCP("gateway")
            for number, proxy in enumerate(proxies):
                server.mount(proxy, namespace=f"s{number}")

        @server.custom_route("/api/health", methods=["GET"])
        async def health(request: Request) -> Response:
            return PlainTextResponse("ok")

        app = server.http_app(path="/mcp", json_response=True)
        config = uvicorn.Config(
            app,
            host="127.0.0.1",
            port=port,
            http="httptools",
            access_log=False,
            log_level="warning",
            timeout_keep_alive=300,
        )
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    logging.disable(logging.INFO)
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2:]))
