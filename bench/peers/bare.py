"""`bare.py PORT`: Starlette returns the same bytes with the least possible work: no session, no checks."""

import sys
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

_SESSION = {"mcp-session-id": "bare"}
_META = {"io.modelcontextprotocol/serverInfo": {"name": "echo", "version": "1"}}


async def mcp(request: Request) -> Response:
    message = orjson.loads(await request.body())
    if message["method"] != "tools/call":
        return Response(orjson.dumps({}), media_type="application/json", headers=_SESSION)
    params = message["params"]
    result: dict[str, Any] = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    if "_meta" in params:
        result["resultType"] = "complete"
        result["_meta"] = _META
    response = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return Response(orjson.dumps(response), media_type="application/json")


async def health(request: Request) -> Response:
    return PlainTextResponse("ok")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/mcp", mcp, methods=["POST"]), Route("/api/health", health)])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=300,
    )
