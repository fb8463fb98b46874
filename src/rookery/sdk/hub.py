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
from rookery.daemon_client.connection import read_authorization
from rookery.sdk.operations import Operations
from rookery.sdk.rest import LOGS_REMEDY, URL, RestClient
from rookery.sdk.results import Result, parse_result
from rookery.sdk.workspaces import Workspace, Workspaces
from rookery.system.errors import RookeryError
from rookery.wire.client.client import Client, Timeouts
from rookery.wire.client.connect import connect_client
from rookery.wire.client.encode import ClientIdentity
from rookery.wire.client.http import HttpTransport
from rookery.wire.protocol.messages import WireError

# Servers may have to start for a list of tools. The time limit of a call is set by the daemon and the caller.
_TIMEOUTS = Timeouts(startup=60.0, catalog=120.0, execution=86_400.0)
# The longest description that OpenAI's API accepts.
_LONGEST_DESCRIPTION = 1024
_FIND = "hub_find_tool"
_HUB = "hub"

T = TypeVar("T")


@dataclass(frozen=True)
class Tool:
    """A tool of an MCP server. `schema` is the JSON Schema of its arguments.

    Concurrent calls of one server's tools may interfere with each other.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    client: Client = field(repr=False, compare=False)
    concurrency_safe: bool = False

    async def execute(
        self, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None, check: bool = True
    ) -> Result:
        """Call the tool. A failure that the tool reports is raised, or with `check=False` returned with `is_error`.

        A call that is abandoned, after `timeout` seconds or because its task is cancelled, is cancelled at its server.
        """
        try:
            async with asyncio.timeout(timeout):
                with _translate_errors():
                    answer = await self.client.call_tool(self.name, dict(arguments or {}))
                result = parse_result(answer)
        except TimeoutError:
            limit = "in time" if timeout is None else f"within {timeout:g} s"
            raise RookeryError("timeout", f"{self.name} did not respond {limit}") from None
        except WireError as error:
            raise RookeryError("tool-failed", f"{self.name}: {error.message}") from None
        except msgspec.DecodeError as error:
            raise RookeryError("tool-failed", f"{self.name}: its result is invalid: {error}") from None
        if check and result.is_error:
            raise result.failure(self.name)
        return result

    def for_openai(self) -> dict[str, Any]:
        """Return the tool as an entry of `tools` in requests to OpenAI's API."""
        description = (
            self.description
            if len(self.description) <= _LONGEST_DESCRIPTION
            else f"{self.description[: _LONGEST_DESCRIPTION - 1]}…"
        )
        return {
            "type": "function",
            "function": {"name": self.name, "description": description, "parameters": self._object_schema},
        }

    def for_anthropic(self) -> dict[str, Any]:
        """Return the tool as an entry of `tools` in requests to Anthropic's API."""
        return {"name": self.name, "description": self.description, "input_schema": self._object_schema}

    @property
    def _object_schema(self) -> dict[str, Any]:
        """The schema with the members that these APIs require."""
        return {"type": "object", "properties": {}, **self.schema}


@contextmanager
def _translate_errors() -> Generator[None]:
    """Report a lost connection as an error of the daemon. Errors of the servers behind it arrive as results."""
    try:
        yield
    except RookeryError as error:
        if error.code != "upstream-failed":
            raise
        raise RookeryError(
            "daemon-unreachable", f"the connection to the daemon was lost: {error.message}", LOGS_REMEDY
        ) from None


class _ListedTool(msgspec.Struct, rename="camel"):
    """A tool as a server lists it.

    An invalid description or schema is ignored, so that the other tools stay available.
    """

    name: str
    description: Raw = Raw(b'""')
    input_schema: Raw = Raw(b"{}")

    def tool(self, client: Client) -> Tool:
        description = _decode_or(self.description, str, "")
        schema = _decode_or(self.input_schema, dict[str, Any], {})
        return Tool(self.name, description, schema, client)


def _decode_or(raw: Raw, kind: type[T], default: T) -> T:
    """Decode a value, or return `default` if it is invalid."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return default


class Hub:
    """The MCP servers behind Rookery: the app-wide ones, or those of a workspace."""

    def __init__(self, rest: RestClient, operations: Operations, workspaces: Workspaces) -> None:
        self._http = rest.http
        self._operations = operations
        self._workspaces = workspaces
        self._clients: dict[tuple[str | None, str], Client] = {}
        self._lock = asyncio.Lock()

    async def tools(
        self, workspace: Workspace | Path | str | None = None, *, toolsets: Sequence[str] = ()
    ) -> dict[str, Tool]:
        """Return the current tools by their public names. Later changes do not affect the result.

        A server that has failed, is disabled, or waits for its user has none. A server that sleeps is woken by the
        first call. `toolsets` names Rookery's own toolsets to include, such as `workspace`, `project` or `admin`.
        """
        client = await self._client(await self._path(workspace), ",".join(toolsets))
        with _translate_errors():
            entries = await client.list_all("tools/list", "tools")
        listed = [msgspec.json.decode(entry, type=_ListedTool) for entry in entries]
        return {tool.name: tool.tool(client) for tool in listed}

    async def find(
        self, question: str, workspace: Workspace | Path | str | None = None, *, limit: int = 5
    ) -> dict[str, Tool]:
        """Return the tools that match a question in plain words, the best first.

        A model that gets these need not be shown all tools.
        """
        client = await self._client(await self._path(workspace), _HUB)
        search = Tool(_FIND, "", {}, client)
        found_tools = (await search.execute({"query": question, "limit": limit})).structured
        matches = [entry for entry in found_tools["tools"] if entry["server"] != _HUB]
        return {
            entry["name"]: Tool(entry["name"], entry["description"], entry["inputSchema"], client) for entry in matches
        }

    async def servers(self, workspace: Workspace | Path | str | None = None) -> dict[str, dict[str, Any]]:
        """Return all servers by name: `status`, `error`, `tools`, `source` and more of each."""
        path = await self._path(workspace)
        return msgspec.to_builtins(await self._operations.server.list(workspace=path))

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def _path(self, workspace: Workspace | Path | str | None) -> str | None:
        if workspace is None:
            return None
        resolved = workspace if isinstance(workspace, Workspace) else await self._workspaces.at(workspace)
        return str(resolved.path)

    async def _client(self, path: str | None, toolsets: str) -> Client:
        """Return a client for these tools; connect it with the first use."""
        async with self._lock:
            if (existing := self._clients.get((path, toolsets))) is not None:
                return existing
            # The path may contain characters that a header cannot contain.
            headers = read_authorization()
            if path is not None:
                headers["X-Workspace-Path"] = quote(path)
            transport = HttpTransport(self._http, f"{URL}/mcp?mode=list&toolsets={quote(toolsets, safe=',')}", headers)
            identity = ClientIdentity({"name": "rookery-python", "version": rookery.__version__})
            client, _ = await connect_client(lambda channel: Client(channel, identity, _TIMEOUTS), transport)
            self._clients[path, toolsets] = client
            return client
