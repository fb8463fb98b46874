"""A group of built-in tools, resources and prompts, with the same interface as a server behind the gateway.

The JSON Schemas of tools are generated from the types of their inputs and outputs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.provider import Catalog, CatalogEntry
from rookery.operations.results import ContentBlocks, NotedResult, TextResult, require_all_members
from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.toolsets.resources import Prompt, Resource, complete_prompt, complete_resource, get_prompt, read_resource
from rookery.wire.protocol.messages import EMPTY_OBJECT, INVALID_PARAMS, METHOD_NOT_FOUND, WireError
from rookery.wire.protocol.provider import Call, ChangeNotifier, InputNeeded

_ERROR = {"required": ["error"], "properties": {"error": {"type": "object", "required": ["code", "message"]}}}

# Earlier protocol revisions have no resource links in content.
_LINKS_SINCE = "2025-06-18"

logger = logging.getLogger("rookery.mcp.toolsets")


def input_schema(takes: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    return _schema(takes)


def output_schema(gives: Any) -> dict[str, Any]:
    """Return the JSON Schema of structured content: an object, or an object around the value; or a Rookery error."""
    return _or_error(_require_object(require_all_members(_schema(gives))))


def _require_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of structured content: that of the value, or of the object that wraps it."""
    if schema.get("type") == "object":
        return schema
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


def _or_error(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema for a result or a Rookery error: clients validate failures too, and hide invalid ones."""
    return {"type": "object", "anyOf": [schema, _ERROR]}


def _schema(kind: Any) -> dict[str, Any]:
    """Return a schema without references; clients differ in how well they resolve them."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    return _inline(schema, parts)


def _inline(schema: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inline(item, parts) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast(dict[str, Any], schema)
    if "$ref" in members:
        # The docstring of a struct is meant for readers of the code.
        part = {key: value for key, value in parts[members["$ref"]].items() if key not in ("title", "description")}
        return _inline(part, parts)
    schema = {key: _inline(value, parts) for key, value in members.items()}
    choices: list[dict[str, Any]] = schema.get("anyOf", [])
    if choices and all(choice.keys() == {"type"} for choice in choices):
        # The shorter form, which more clients understand.
        schema["type"] = [choice["type"] for choice in schema.pop("anyOf")]
    return schema


class NoArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of a tool that takes none."""


@dataclass(frozen=True)
class Tool:
    """One tool.

    `input_type` is the struct of its arguments, `output_type` the type of its result; both define its schemas.
    """

    name: str
    description: str
    run: Callable[[Call, Any], Awaitable[Any]]
    input_type: type[msgspec.Struct] = NoArguments
    output_type: Any = dict[str, Any]
    read_only: bool = False
    # Whether the tool may delete or end something.
    destructive: bool = False

    def entry(self) -> CatalogEntry:
        """Return the tool's definition for the catalog."""
        definition = {
            "name": self.name,
            "description": self.description,
            "inputSchema": input_schema(self.input_type),
            **({} if self.output_type is ContentBlocks else {"outputSchema": output_schema(self.output_type)}),
            "annotations": {"readOnlyHint": self.read_only, "destructiveHint": self.destructive},
        }
        return CatalogEntry(self.name, Raw(msgspec.json.encode(definition)))


@dataclass
class Toolset:
    """A provider of tools, resources and prompts that views contain beside the servers."""

    name: str
    tools: Sequence[Tool]
    resources: Sequence[Resource] = ()
    prompts: Sequence[Prompt] = ()
    is_builtin: bool = True
    changes: ChangeNotifier = field(default_factory=ChangeNotifier)
    # Called with the watched resources whenever these have changed; `changes` notifies the clients.
    on_watched: Callable[[frozenset[str]], None] | None = None
    _watched: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])

    def __post_init__(self) -> None:
        self._by_name = {tool.name: tool for tool in self.tools}
        self.catalog = self._catalog()

    def set_resources(self, resources: Sequence[Resource]) -> None:
        """Replace the resources, and notify clients."""
        self.resources = resources
        self.catalog = self._catalog()
        self.changes.list_changed("resources")

    @property
    def is_starting(self) -> bool:
        return False

    def use(self, *, current: bool = False) -> asyncio.Future[bool] | None:
        """Return None: a toolset is always available."""

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        """Set the resources that `watcher` wants to be notified of."""
        previous = self.watched
        self._watched.pop(id(watcher), None)
        if uris:
            self._watched[id(watcher)] = uris
        if self.on_watched is not None and self.watched != previous:
            self.on_watched(self.watched)

    @property
    def watched(self) -> frozenset[str]:
        """The resources that any client wants to be notified of."""
        return frozenset[str]().union(*self._watched.values())

    async def handle(self, call: Call, params: Mapping[str, Any]) -> Raw | Mapping[str, Any]:
        if call.method == "resources/read":
            return await read_resource(self.resources, call, params.get("uri", ""))
        if call.method == "prompts/get":
            return get_prompt(self.prompts, params)
        if call.method == "completion/complete":
            if "uri" in params["ref"]:
                return await complete_resource(self.resources, call, params)
            return await complete_prompt(self.prompts, call, params)
        if call.method != "tools/call":
            raise WireError(METHOD_NOT_FOUND, f"{self.name} has no {call.method}")
        tool = self._by_name.get(params.get("name", ""))
        if tool is None:
            raise WireError(INVALID_PARAMS, f"there is no tool {params.get('name')}")
        try:
            arguments = msgspec.json.decode(params.get("arguments", EMPTY_OBJECT), type=tool.input_type)
        except (msgspec.DecodeError, RecursionError) as error:
            return results.tool_failure("invalid-input", f"invalid arguments for {tool.name}: {error}")
        try:
            result = await tool.run(call, arguments)
            if isinstance(result, ContentBlocks):
                return _make_content_result(call, result)
            return _make_result(result)
        except RookeryError as error:
            return results.tool_error(error)
        except (WireError, InputNeeded):
            raise
        except Exception as error:
            explained = explain_os_error(error) if isinstance(error, OSError) else None
            if explained is not None:
                return results.tool_error(explained)
            logger.exception("the tool %s crashed", tool.name)
            return results.tool_failure(
                "internal-error", f"{tool.name} failed with an internal error; see the daemon's log"
            )

    def _catalog(self) -> Catalog:
        return Catalog(
            tools=[tool.entry() for tool in self.tools],
            prompts=[prompt.entry() for prompt in self.prompts],
            resources=[resource.entry() for resource in self.resources if not resource.is_template],
            templates=[resource.entry() for resource in self.resources if resource.is_template],
        )


def _make_content_result(call: Call, blocks: ContentBlocks) -> Mapping[str, Any]:
    content = blocks.content
    if blocks.links and call.client.revision >= _LINKS_SINCE:
        content = [*content, *blocks.links]
    if blocks.error is None:
        return {"content": content, "_meta": blocks.meta}
    return {**results.tool_error(blocks.error), "content": content, "_meta": blocks.meta}


def _make_result(value: Any) -> Mapping[str, Any]:
    """Return the value as text and as structured content, which older protocol revisions require to be an object."""
    if isinstance(value, TextResult):
        content = [{"type": "text", "text": value.text}]
        return {"content": content, "structuredContent": Raw(value.text.encode())}
    noted = value if isinstance(value, NotedResult) else NotedResult(value)
    result = noted.value
    if noted.error is not None:
        result = {**msgspec.to_builtins(result), "error": noted.error.as_dict()}
    # Encoded once: parts that are JSON already, such as definitions of tools, stay as they are.
    data = msgspec.json.encode(result)
    texts = [data.decode(), *([f"[{noted.note}]"] if noted.note else [])]
    return {
        "content": [*({"type": "text", "text": text} for text in texts), *noted.blocks],
        "structuredContent": Raw(data) if data.startswith(b"{") else {"result": Raw(data)},
        **({"isError": True} if noted.error is not None else {}),
    }
