"""A client of the gateway with raw messages over Streamable HTTP, in either era, that records what it receives."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from rookery.operations.table import list_all_operations
from rookery.wire.protocol import revisions
from rookery.wire.protocol.headers import encode_header_value
from tests.support.mcp.client import LIMIT

Message = dict[str, Any]
Answering = Callable[[Message], Awaitable[Any]]

HANDSHAKE, MODERN = revisions.LATEST_HANDSHAKE, revisions.LATEST
ERAS = (HANDSHAKE, MODERN)
ABLE: Message = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}}}
# Tools of Rookery's own that need the view that they are in, and so are not in the table of operations.
_OWN_TOOLS = ("workspace_", "project_list", "get_project_context", "hub_find_tool")
_ABOUT = {"name": "test", "version": "1"}
_ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def words(message: Message) -> str:
    """Return the text of a tool's result."""
    return message["result"]["content"][0]["text"]


def told(message: Message) -> Any:
    """Return the JSON that a tool of a scripted server returned."""
    return json.loads(words(message))


def failure(message: Message) -> str:
    """Return the error code of a tool's failed result."""
    assert message["result"]["isError"] is True, message
    return message["result"]["structuredContent"]["error"]["code"]


class Caller:
    """One client. `answers` contains its replies to questions."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        revision: str = MODERN,
        *,
        able: Mapping[str, Any] = ABLE,
        headers: Mapping[str, str] | None = None,
        limit: float = LIMIT,
    ) -> None:
        self.limit = limit
        self.revision = revision
        self.able = able
        self.session: str | None = None
        self.heard: list[Message] = []
        self.asked: list[Message] = []
        self.answers: dict[str, Answering] = {}
        self.standing: asyncio.Task[Any] | None = None
        self._http = http
        self._url = url
        self._headers = dict(headers or {})
        self._numbers = itertools.count(1)
        self._more = asyncio.Event()
        self._replies: list[asyncio.Task[None]] = []

    @property
    def modern(self) -> bool:
        return self.revision in revisions.MODERN

    # ---- the connection

    async def open(self) -> Message:
        """Open the session, and return the result of the handshake."""
        if self.modern:
            return (await self.ask("server/discover"))["result"]
        about = {"protocolVersion": self.revision, "capabilities": self.able, "clientInfo": _ABOUT}
        hello = await self.ask("initialize", about)
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return hello["result"]

    async def close(self) -> None:
        left = [*self._replies, *([self.standing] if self.standing is not None else [])]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self.session is not None:
            async with self._http.delete(self._url, headers=self._sent({})) as answer:
                assert answer.status in (200, 204, 404)

    async def listen(self, *resources: str) -> None:
        """Receive notifications of changes from now on."""
        begun = asyncio.Event()
        if self.modern:
            wanted: Message = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
            wanted |= {"resourceSubscriptions": list(resources)} if resources else {}
            message = self.message("subscriptions/listen", {"notifications": wanted})
            self.standing = asyncio.create_task(self._stream(self._posted(message), begun))
            await self.hears("notifications/subscriptions/acknowledged")
            return
        for uri in resources:
            assert "result" in await self.ask("resources/subscribe", {"uri": uri})
        self.standing = asyncio.create_task(self._stream(self._http.get(self._url, headers=self._sent({})), begun))
        async with asyncio.timeout(LIMIT):
            await begun.wait()

    # ---- asking

    def message(self, method: str, params: Mapping[str, Any] | None = None, id_: int | str | None = None) -> Message:
        whole = dict(params or {})
        if self.modern:
            known = {
                revisions.META_VERSION: self.revision,
                revisions.META_CAPABILITIES: self.able,
                revisions.META_CLIENT: _ABOUT,
            }
            whole["_meta"] = known | whole.get("_meta", {})
        number = next(self._numbers) if id_ is None else id_
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": whole}

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, id_: int | str | None = None) -> Message:
        """Return the whole response: a message with `result` or `error`."""
        message = self.message(method, params, id_)
        async with asyncio.timeout(self.limit):
            found = await self._stream(self._posted(message), None, message["id"])
        assert found is not None, f"no answer to {message}"
        return found

    async def call(self, tool: str, arguments: Any = None, *, id_: int | str | None = None, **meta: Any) -> Message:
        params: Message = {"name": tool} | ({"arguments": arguments} if arguments is not None else {})
        return await self.ask("tools/call", params | ({"_meta": meta} if meta else {}), id_)

    def begin(
        self, tool: str, arguments: Any = None, *, id_: int | str | None = None, **meta: Any
    ) -> "asyncio.Task[Message]":
        """Start a call without waiting for it. Cancelling it closes its connection."""
        return asyncio.create_task(self.call(tool, arguments, id_=id_, **meta))

    async def tools(self) -> list[str]:
        """Return the tools of servers, and those of the toolset `hub` but its search."""
        own = {tool.name for entry in list_all_operations() if (tool := entry.declared.mcp) is not None}
        return [one["name"] for one in await self.listed("tools") if not self._is_own(one["name"], own)]

    @staticmethod
    def _is_own(name: str, own: Container[str]) -> bool:
        return name != "hub_list_servers" and (name in own or name.startswith(_OWN_TOOLS))

    async def listed(self, kind: str) -> list[Message]:
        method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
        found = await self.ask(method)
        return found["result"][kind]

    async def listed_of_servers(self, kind: str) -> list[Message]:
        """Return all tools except those of our own toolsets."""
        ours = ("boulder://", "test_boulder_")
        return [one for one in await self.listed(kind) if not one.get("uri", one["name"]).startswith(ours)]

    async def post(self, message: Message) -> int:
        """Send a message that gets no response, and return the HTTP status."""
        async with self._posted(message) as answer:
            await answer.read()
            return answer.status

    async def cancel(self, id_: int | str) -> None:
        """Cancel a call as in the handshake era."""
        params = {"requestId": id_}
        await self.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def raw(self, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        async with self._http.post(self._url, data=body, headers=self._sent(headers or {})) as answer:
            return answer.status, await answer.read()

    # ---- hearing

    async def hears(self, method: str, count: int = 1) -> Message:
        """Wait for this many notifications with this method, and return the last."""
        try:
            async with asyncio.timeout(LIMIT):
                while len(self.all(method)) < count:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{method} did not come {count} times; heard: {self.heard}") from None
        return self.all(method)[count - 1]

    def all(self, method: str) -> list[Message]:
        return [one for one in self.heard if one["method"] == method]

    def _sent(self, more: Mapping[str, str]) -> dict[str, str]:
        own = {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.revision} if self.session else {}
        return {**_ACCEPT, **own, **self._headers, **more}

    def _posted(self, message: Message) -> Any:
        routed: dict[str, str] = {}
        if self.modern and "method" in message:
            routed = {"MCP-Protocol-Version": self.revision, "Mcp-Method": message["method"]}
            named_by = revisions.NAME_PARAMETERS.get(message["method"])
            if named_by is not None and named_by in message.get("params", {}):
                routed["Mcp-Name"] = encode_header_value(message["params"][named_by])
        return self._http.post(self._url, data=json.dumps(message).encode(), headers=self._sent(routed))

    async def _stream(self, asking: Any, begun: asyncio.Event | None, wanted: Any = None) -> Message | None:
        """Read the stream to its end, and return the response with the wanted id, if any."""
        async with asking as answer:
            if begun is not None:
                assert answer.status == 200, await answer.text()
                begun.set()
            self.session = answer.headers.get("Mcp-Session-Id") or self.session
            if answer.content_type != "text/event-stream":
                body = await answer.read()
                assert body, f"{answer.status} without a body"
                return json.loads(body)
            data = b""
            async for line in _lines(answer):
                if line.startswith(b"data:"):
                    data += line[5:].strip()
                elif not line and data:
                    message, data = json.loads(data), b""
                    if message.get("id") == wanted and "method" not in message and wanted is not None:
                        return message
                    self._take(message)
        return None

    def _take(self, message: Message) -> None:
        if "id" in message and "method" in message:
            self.asked.append(message)
            self._replies.append(asyncio.create_task(self._reply(message)))
        else:
            self.heard.append(message)
        self._more.set()

    async def _reply(self, question: Message) -> None:
        answering = self.answers.get(question["method"])
        if answering is None:
            error = {"code": -1, "message": "this client does not know"}
            await self.post({"jsonrpc": "2.0", "id": question["id"], "error": error})
        else:
            await self.post(
                {"jsonrpc": "2.0", "id": question["id"], "result": await answering(question.get("params", {}))}
            )


async def _lines(answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    rest = b""
    async for chunk in answer.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")


@asynccontextmanager
async def open_caller(
    http: aiohttp.ClientSession, url: str, revision: str = MODERN, **more: Any
) -> AsyncGenerator[Caller]:
    made = Caller(http, url, revision, **more)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
