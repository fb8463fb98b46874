"""A group of tools, resources and prompts of ours, as a view sees it: the same contract as for a server behind us."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.catalog import Catalog, Entry
from rookery.system.errors import RookeryError
from rookery.toolsets.prompts import Prompt, complete_prompt, get_prompt
from rookery.toolsets.resources import Resource, complete, read_resource
from rookery.toolsets.schemas import input_schema, output_schema
from rookery.wire.jsonrpc import EMPTY, INVALID_PARAMS, METHOD_NOT_FOUND, WireError
from rookery.wire.provider import Call, Changes, InputNeeded

logger = logging.getLogger("rookery.toolsets")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """A tool that takes no arguments."""


@dataclass(frozen=True)
class Blocks:
    """An answer that is content as it stands, such as the text of a file, and no structured content.

    With an `error` it is a failed result all the same, and the error stands there as structured content.
    """

    content: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: RookeryError | None = None


@dataclass(frozen=True)
class Written:
    """An answer that is an object in JSON already, as large ones are: it is not taken apart again."""

    text: str


@dataclass(frozen=True)
class Told:
    """An answer with something beside it: `blocks` of content, a `note`, or that it is what came of a failure."""

    value: Any
    note: str | None = None
    error: RookeryError | None = None
    blocks: Sequence[Mapping[str, Any]] = ()


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
            "inputSchema": input_schema(self.takes),
            **({} if self.gives is Blocks else {"outputSchema": output_schema(self.gives)}),
            "annotations": {"readOnlyHint": self.read_only, "destructiveHint": self.destructive},
        }
        return Entry(self.name, Raw(msgspec.json.encode(definition)))


@dataclass
class Toolset:
    """A member of views."""

    name: str
    tools: Sequence[Tool]
    resources: Sequence[Resource] = ()
    prompts: Sequence[Prompt] = ()
    ours: bool = True
    changes: Changes = field(default_factory=Changes)
    # Told which resources clients want to hear of, whenever these have changed; `changes` tells them.
    on_watched: Callable[[frozenset[str]], None] | None = None
    _watched: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])

    def __post_init__(self) -> None:
        self._by_name = {tool.name: tool for tool in self.tools}
        self.catalog = self._catalog()

    def offer(self, resources: Sequence[Resource]) -> None:
        """Have other resources from now on; clients are told."""
        self.resources = resources
        self.catalog = self._catalog()
        self.changes.list_changed("resources")

    def use(self) -> asyncio.Future[bool] | None:
        """It is always there."""

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        before = self.watched
        self._watched.pop(id(watcher), None)
        if uris:
            self._watched[id(watcher)] = uris
        if self.on_watched is not None and self.watched != before:
            self.on_watched(self.watched)

    @property
    def watched(self) -> frozenset[str]:
        """The resources that any client wants to hear of."""
        return frozenset[str]().union(*self._watched.values())

    async def handle(self, call: Call, params: Mapping[str, Any]) -> Raw | Mapping[str, Any]:
        if call.method == "resources/read":
            return await read_resource(self.resources, call, params.get("uri", ""))
        if call.method == "prompts/get":
            return get_prompt(self.prompts, params)
        if call.method == "completion/complete":
            if "uri" in params["ref"]:
                return await complete(self.resources, call, params)
            return await complete_prompt(self.prompts, call, params)
        if call.method != "tools/call":
            raise WireError(METHOD_NOT_FOUND, f"{self.name} has no {call.method}")
        tool = self._by_name.get(params.get("name", ""))
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

    def _catalog(self) -> Catalog:
        return Catalog(
            tools=[tool.entry() for tool in self.tools],
            prompts=[prompt.entry() for prompt in self.prompts],
            resources=[one.entry() for one in self.resources if not one.is_template],
            templates=[one.entry() for one in self.resources if one.is_template],
        )


def _answer(value: Any) -> Mapping[str, Any]:
    """The value as text, and as structured content, which older revisions want to be an object."""
    if isinstance(value, Blocks):
        failed: Mapping[str, Any] = results.failed_by(value.error) if value.error is not None else {}
        return {**failed, "content": value.content, "_meta": value.meta}
    if isinstance(value, Written):
        content = [{"type": "text", "text": value.text}]
        return {"content": content, "structuredContent": Raw(value.text.encode())}
    told = value if isinstance(value, Told) else Told(value)
    plain = msgspec.to_builtins(told.value)
    plain = {**plain, "error": told.error.as_dict()} if told.error is not None else plain
    texts = [msgspec.json.encode(plain).decode(), *([f"[{told.note}]"] if told.note else [])]
    return {
        "content": [*({"type": "text", "text": text} for text in texts), *told.blocks],
        "structuredContent": plain if isinstance(plain, dict) else {"result": plain},
        **({"isError": True} if told.error is not None else {}),
    }
