"""The tools of every MCP server behind Rookery, for any loop around a model."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Raw

import rookery
from rookery.face.line import LOGS, URL, Line
from rookery.face.results import Result, result_of
from rookery.face.workspaces import Workspace, Workspaces
from rookery.system.errors import RookeryError
from rookery.wire.client import Client, Timeouts
from rookery.wire.client_http import HttpChannel
from rookery.wire.connect import connect
from rookery.wire.jsonrpc import WireError
from rookery.wire.writing import Identity

# Servers may have to start for it. How long a call may take is for the daemon and the caller to say.
_TIMEOUTS = Timeouts(startup=60.0, catalog=120.0, execution=86_400.0)
# The longest description that OpenAI's API takes.
_LONGEST = 1024
_FIND, _HUB = "hub_find_tool", "hub"

T = TypeVar("T")


@dataclass(frozen=True)
class Tool:
    """`schema` is the JSON Schema of the arguments. Calls of one server's tools may disturb each other."""

    name: str
    description: str
    schema: Mapping[str, Any]
    client: Client = field(repr=False, compare=False)
    concurrency_safe: bool = False

    async def execute(
        self, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None, check: bool = True
    ) -> Result:
        """Call it. What it says has failed is raised, or with `check=False` answered with `is_error`.

        A call that is given up, after `timeout` seconds or because its task is cancelled, is cancelled at its server.
        """
        try:
            async with asyncio.timeout(timeout):
                with _over_the_daemon():
                    answer = await self.client.call_tool(self.name, dict(arguments or {}))
                found = result_of(answer)
        except TimeoutError:
            raise RookeryError("timeout", f"{self.name} did not answer within {timeout:g} s") from None
        except WireError as error:
            raise RookeryError("tool-failed", f"{self.name}: {error.message}") from None
        except msgspec.DecodeError as error:
            raise RookeryError("tool-failed", f"{self.name}: its answer does not fit: {error}") from None
        if check and found.is_error:
            raise found.failure(self.name)
        return found

    def for_openai(self) -> dict[str, Any]:
        """As an entry of `tools` in requests to OpenAI's API."""
        said = self.description if len(self.description) <= _LONGEST else f"{self.description[: _LONGEST - 1]}…"
        return {"type": "function", "function": {"name": self.name, "description": said, "parameters": self._object}}

    def for_anthropic(self) -> dict[str, Any]:
        """As an entry of `tools` in requests to Anthropic's API."""
        return {"name": self.name, "description": self.description, "input_schema": self._object}

    @property
    def _object(self) -> dict[str, Any]:
        """The schema with what these APIs insist on."""
        return {"type": "object", "properties": {}, **self.schema}


@contextmanager
def _over_the_daemon() -> Generator[None]:
    """What breaks off is the daemon; what it says of the servers behind it are answers."""
    try:
        yield
    except RookeryError as error:
        if error.code != "upstream-failed":
            raise
        raise RookeryError("daemon-unreachable", f"the daemon broke off: {error.message}", LOGS) from None


class _Listed(msgspec.Struct, rename="camel"):
    """What a server writes that is no text or no schema counts for nothing, and keeps nobody from the other tools."""

    name: str
    description: Raw = Raw(b'""')
    input_schema: Raw = Raw(b"{}")

    def tool(self, client: Client) -> Tool:
        described, schema = _read(self.description, str, ""), _read(self.input_schema, dict[str, Any], {})
        return Tool(self.name, described, schema, client)


def _read(said: Raw, kind: type[T], otherwise: T) -> T:
    try:
        return msgspec.json.decode(said, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return otherwise


class Hub:
    """The servers behind Rookery: those of everywhere, or as a workspace has them."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._clients: dict[tuple[str | None, str], Client] = {}
        self._connecting = asyncio.Lock()

    async def tools(
        self, workspace: Workspace | Path | str | None = None, *, toolsets: Sequence[str] = ()
    ) -> dict[str, Tool]:
        """The tools by their public names, as they are now: what comes or goes later changes nothing in the answer.

        A server that is failed, disabled, or waits for its user has none; one that sleeps is woken by the first call.
        `toolsets` names those of Rookery's own that are wanted too, such as `workspace` or `project`.
        """
        client = await self._client(await self._path(workspace), ",".join(toolsets))
        with _over_the_daemon():
            told = await client.list_all("tools/list", "tools")
        listed = [msgspec.json.decode(one, type=_Listed) for one in told]
        return {one.name: one.tool(client) for one in listed}

    async def find(
        self, question: str, workspace: Workspace | Path | str | None = None, *, limit: int = 5
    ) -> dict[str, Tool]:
        """The tools that fit a question in plain words, the best first: a model need not be shown all there are."""
        client = await self._client(await self._path(workspace), _HUB)
        search = Tool(_FIND, "", {}, client)
        told = (await search.execute({"query": question, "limit": limit})).structured
        found = [one for one in told["tools"] if one["server"] != _HUB]
        return {one["name"]: Tool(one["name"], one["description"], one["inputSchema"], client) for one in found}

    async def servers(self, workspace: Workspace | Path | str | None = None) -> dict[str, dict[str, Any]]:
        """All servers by name: `status`, `error`, `tools`, `source` and more of each."""
        path = await self._path(workspace)
        return await self._line.ask("GET", "/api/mcp", dict[str, dict[str, Any]], workspace=path)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def _path(self, workspace: Workspace | Path | str | None) -> str | None:
        if workspace is None:
            return None
        found = workspace if isinstance(workspace, Workspace) else await Workspaces(self._line).at(workspace)
        return str(found.path)

    async def _client(self, path: str | None, toolsets: str) -> Client:
        async with self._connecting:
            if (known := self._clients.get((path, toolsets))) is not None:
                return known
            # The path of a folder may have letters that no header can carry.
            headers = {"X-Workspace-Path": quote(path)} if path is not None else {}
            channel = HttpChannel(self._line.http, f"{URL}/mcp?mode=list&toolsets={quote(toolsets, safe=',')}", headers)
            identity = Identity({"name": "rookery-python", "version": rookery.__version__})
            made, _ = await connect(lambda one: Client(one, identity, _TIMEOUTS), channel)
            self._clients[path, toolsets] = made
            return made
