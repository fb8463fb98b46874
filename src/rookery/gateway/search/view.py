"""A view whose tools can be searched, and a view that lists only the search and a tool to call a match."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.fastpath import provider_params
from rookery.gateway.provider import CatalogProvider
from rookery.gateway.search.index import IndexedTool, ToolIndex
from rookery.gateway.table import Table, Target
from rookery.gateway.view import View
from rookery.system.errors import RookeryError
from rookery.wire.protocol.messages import EMPTY_OBJECT, INVALID_PARAMS, Params, WireError, decode_object, decode_text
from rookery.wire.protocol.provider import Call

FIND = "hub_find_tool"
CALL = "hub_call_tool"

_CALL: Mapping[str, Any] = {
    "name": CALL,
    "description": f"Call a tool found by {FIND}, by its name, with the arguments that its inputSchema requires.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": f"The name of the tool, as {FIND} returns it."},
            "arguments": {"type": "object", "description": "The arguments of the tool."},
        },
        "required": ["name"],
    },
}
_INSTRUCTIONS = f"Tools are not listed here. Search for a tool with {FIND}, in plain words, and call it with {CALL}."


@dataclass(frozen=True)
class ToolMatches:
    """The matches, best first, and how many tools were searched. `absent` describes servers that were not searched."""

    tools: Sequence[Target]
    searched: int
    absent: Sequence[str]


class SearchableView(View):
    """A view with a search. Tools that are hidden or denied in the view are not found."""

    _indexed: tuple[Table, ToolIndex, int] | None = None

    async def find(self, call: Call, question: str, limit: int) -> ToolMatches:
        """Return the tools that match a question of the caller."""
        session = call.session
        conversation = await self._find_conversation(call)
        await self._wait_for_members(session, conversation)
        table = self._table(session, conversation)
        if self._indexed is None or self._indexed[0] is not table:
            targets = [
                target for target in table.tools.values() if target.verdict.action != "deny" and target.public != FIND
            ]
            tools = [
                IndexedTool(target.public, target.member.name, target.name, bytes(target.entry.raw))
                for target in targets
            ]
            # The first parse of a thousand definitions takes a while; in a thread it does not block other requests.
            self._indexed = table, await asyncio.to_thread(ToolIndex, tools), len(tools)
        _, index, among = self._indexed
        matches = [table.tools[name] for name in index.find(question, limit) if name in table.tools]
        return ToolMatches(matches, among, self._membership.describe_absent(session, lambda server: True))


class ViewSearch:
    """Gives the tools of a view access to the view that they belong to, once it is created."""

    view: SearchableView | None = None

    async def find(self, call: Call, question: str, limit: int) -> ToolMatches:
        if self.view is None:
            raise RookeryError("internal-error", "this view has no tools to search")
        return await self.view.find(call, question, limit)


class SearchView(SearchableView):
    """A view that lists only the search and a tool to call a match; other tools can be called by name too.

    `finder` is the toolset that has `hub_find_tool`.
    """

    finder: CatalogProvider | None = None

    @property
    def instructions(self) -> str | None:
        """A fixed text: the instructions of all servers would cost what this view saves."""
        return _INSTRUCTIONS

    async def _list(self, call: Call) -> Raw:
        if call.method != "tools/list" or "cursor" in call.params:
            return await super()._list(call)
        return Raw(b'{"tools":[%b]}' % list_search_tools(self.finder))

    async def _call_tool(self, call: Call) -> Raw | Mapping[str, Any]:
        name = decode_text(call.params, "name")
        if name == FIND and self.finder is not None:
            work = self.finder.handle(call, provider_params(call, FIND))
            return await self._audit.follow("call", call, self.finder.name, FIND, work)
        return await (self._call_inner(call) if name == CALL else super()._call_tool(call))

    async def _call_inner(self, call: Call) -> Raw | Mapping[str, Any]:
        """Call a tool as if the client had called it by its own name. All rules for that tool apply."""
        try:
            name, arguments = _inner_call(call.params)
        except WireError as error:
            return results.tool_failure("invalid-input", f"the arguments of {CALL} are invalid: {error.message}")
        if name in (FIND, CALL):
            return results.tool_failure("invalid-input", f"call {name} directly, not through {CALL}")
        # Also one that is switched off in the conversation, which is refused with the reason.
        known = (self._table(call.session, other).tools for other in (None, await self._find_conversation(call)))
        if (
            not any(name in tools for tools in known)
            and await self._find_after_start(call, None, "tools", name) is None
        ):
            if (withheld := self._find_withheld(call, "tool", name)) is not None:
                return self._deny_withheld(call, *withheld)
            self._audit.record("call", "denied", "not-found", call, None, name)
            message = self._not_found(call, "tool", name).message
            return results.tool_error(RookeryError("invalid-input", message, f"{FIND} returns the available names"))
        params = {**call.params, "name": Raw(msgspec.json.encode(name)), "arguments": arguments}
        return await super()._call_tool(cast(Call, _InnerCall(call, params)))


def list_search_tools(finder: CatalogProvider | None) -> bytes:
    """Return the definitions of all tools that a view in search mode lists."""
    catalog = finder.catalog if finder is not None else None
    definitions = [bytes(entry.raw) for entry in catalog.tools] if catalog is not None else []
    return b",".join([*definitions, msgspec.json.encode(_CALL)])


def _inner_call(params: Params) -> tuple[str, Raw]:
    """Return the name and the arguments of the tool to call."""
    members = decode_object(params.get("arguments", EMPTY_OBJECT), "arguments")
    if unexpected := [key for key in members if key not in ("name", "arguments")]:
        raise WireError(INVALID_PARAMS, f"{unexpected[0]!r} belongs inside `arguments`")
    arguments = members.get("arguments", EMPTY_OBJECT)
    if bytes(arguments).startswith(b'"'):
        # Some models write an object as text.
        arguments = Raw(decode_text(members, "arguments").encode())
    decode_object(arguments, "arguments of the tool")
    return decode_text(members, "name"), arguments


class _InnerCall:
    """A call of one tool inside the arguments of another; its other attributes are those of the outer call."""

    def __init__(self, outer: Call, params: Params) -> None:
        self._outer = outer
        self.params = params

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)
