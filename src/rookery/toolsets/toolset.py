"""A group of tools of our own, as a view sees it: the same contract as for a server behind us."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.catalog import Catalog, Entry
from rookery.system.errors import RookeryError
from rookery.wire.jsonrpc import EMPTY, INVALID_PARAMS, METHOD_NOT_FOUND, WireError
from rookery.wire.provider import Call, Changes, InputNeeded

logger = logging.getLogger("rookery.toolsets")

_ERROR = {"required": ["error"], "properties": {"error": {"type": "object", "required": ["code", "message"]}}}


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """A tool that takes no arguments."""


@dataclass(frozen=True)
class Blocks:
    """An answer that is content as it stands, such as the text of a file, and no structured content."""

    content: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Tool:
    """`takes` is the struct of its arguments, `gives` the type of its answer; the schemas are made from them."""

    name: str
    description: str
    run: Callable[[Call, Any], Awaitable[Any]]
    takes: type[msgspec.Struct] = Nothing
    gives: Any = dict[str, Any]
    read_only: bool = False
    # Whether it may take something away.
    destructive: bool = False

    def entry(self) -> Entry:
        definition = {
            "name": self.name,
            "description": self.description,
            "inputSchema": _schema(self.takes),
            **({} if self.gives is Blocks else {"outputSchema": _or_error(_object(_whole(_schema(self.gives))))}),
            "annotations": {"readOnlyHint": self.read_only, "destructiveHint": self.destructive},
        }
        return Entry(self.name, Raw(msgspec.json.encode(definition)))


@dataclass
class Toolset:
    """A member of views."""

    name: str
    tools: Sequence[Tool]
    ours: bool = True
    changes: Changes = field(default_factory=Changes)

    def __post_init__(self) -> None:
        self.catalog = Catalog(tools=[tool.entry() for tool in self.tools])
        self._by_name = {tool.name: tool for tool in self.tools}

    def use(self) -> asyncio.Future[bool] | None:
        """It is always there."""

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        """It has no resources."""

    async def handle(self, call: Call, params: Mapping[str, Any]) -> Raw | Mapping[str, Any]:
        tool = self._by_name.get(params.get("name", ""))
        if call.method != "tools/call":
            raise WireError(METHOD_NOT_FOUND, f"{self.name} has no {call.method}")
        if tool is None:
            raise WireError(INVALID_PARAMS, f"there is no tool {params.get('name')}")
        try:
            given = msgspec.json.decode(params.get("arguments", EMPTY), type=tool.takes)
        except msgspec.DecodeError as error:
            return results.failed("invalid-input", f"the arguments of {tool.name} do not fit: {error}")
        try:
            return _answer(await tool.run(call, given))
        except RookeryError as error:
            return results.failed_by(error)
        except (WireError, InputNeeded):
            raise
        except Exception:
            logger.exception("the tool %s crashed", tool.name)
            return results.failed("internal-error", f"{tool.name} failed here; the daemon's log tells why")


def _answer(value: Any) -> Mapping[str, Any]:
    """The value as text, and as structured content, which older revisions want to be an object."""
    if isinstance(value, Blocks):
        return {"content": value.content, "_meta": value.meta}
    plain = msgspec.to_builtins(value)
    text = msgspec.json.encode(plain).decode()
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": plain if isinstance(plain, dict) else {"result": plain},
    }


def _whole(schema: Any) -> Any:
    """The schema of an answer, in which every member is there, also one that a struct has a default for."""
    if isinstance(schema, list):
        return [_whole(one) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    made = {key: _whole(value) for key, value in cast(dict[str, Any], schema).items() if key != "default"}
    if isinstance(made.get("properties"), dict):
        made["required"] = [*made["properties"]]
    return made


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of structured content: of the value itself, or of the object that it is wrapped in."""
    if schema.get("type") == "object":
        return schema
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


def _or_error(schema: dict[str, Any]) -> dict[str, Any]:
    """Either the answer or an error of ours: clients check failures too, and hide those that do not fit."""
    return {"type": "object", "anyOf": [schema, _ERROR]}


def _schema(kind: Any) -> dict[str, Any]:
    """One schema without references to elsewhere; clients differ in how well they follow them."""
    (made,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    return _inlined(made, parts)


def _inlined(made: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(made, list):
        return [_inlined(one, parts) for one in cast(list[Any], made)]
    if not isinstance(made, dict):
        return made
    members = cast(dict[str, Any], made)
    if "$ref" in members:
        # What a struct says of itself is for those who read the code.
        part = {key: value for key, value in parts[members["$ref"]].items() if key not in ("title", "description")}
        return _inlined(part, parts)
    made = {key: _inlined(value, parts) for key, value in members.items()}
    choices: list[dict[str, Any]] = made.get("anyOf", [])
    if choices and all(one.keys() == {"type"} for one in choices):
        # The shorter way to say it, which more clients understand.
        made["type"] = [one["type"] for one in made.pop("anyOf")]
    return made
