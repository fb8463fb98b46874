"""A scripted MCP server over Streamable HTTP."""

import asyncio
from typing import Any

from tests.support.mcp.caller import HANDSHAKE, MODERN
from tests.support.mcp.client import HttpRequest, HttpResponder
from tests.support.mcp.scripted_server import ServerScript, text, tool


class Remote:
    """A server over Streamable HTTP, in either era, that answers calls as a test says."""

    def __init__(self, era: str = HANDSHAKE) -> None:
        self.play = ServerScript(era=era, tools=[tool("echo"), tool("hold")])
        self.era = era
        self.sessions: set[str] = set()
        self.on_call: Any = None
        self.left = asyncio.Event()

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        if asked.method != "POST":
            await out.answer(405)
            return
        message = asked.message
        method = message.get("method", "")
        session = asked.headers.get("mcp-session-id")
        if "id" not in message:
            await out.answer(202)
        elif method == "server/discover" and self.era == MODERN:
            await out.json(asked.result(self.play.about("remote")))
        elif method == "initialize" and self.era == HANDSHAKE:
            made = f"s{len(self.sessions)}"
            self.sessions.add(made)
            await out.json(asked.result(self.play.about("remote")), headers={"Mcp-Session-Id": made})
        elif self.era == HANDSHAKE and session not in self.sessions:
            await out.json(asked.error(-32600, "who?"), status=400 if session is None else 404)
        elif method == "tools/list":
            await out.json(asked.result({"tools": self.play.tools}))
        elif method == "logging/setLevel":
            await out.json(asked.result({}))
        elif method == "tools/call" and self.on_call is not None:
            await self.on_call(asked, out)
        elif method == "tools/call" and message["params"]["name"] == "echo":
            await out.json(asked.result(text({"arguments": message["params"].get("arguments")})))
        elif method == "tools/call":
            await out.left()
            self.left.set()
        else:
            await out.json(asked.error(-32601, f"what is {method}?"))
