"""A view whose tools can be looked for, and one that shows nothing but how to look for a tool and how to call it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.member import Member
from rookery.gateway.searching import Index, Listed
from rookery.gateway.table import Table, Target
from rookery.gateway.view import View
from rookery.gateway.ways import passed
from rookery.system.errors import RookeryError
from rookery.wire.jsonrpc import EMPTY, INVALID_PARAMS, Params, WireError, object_of, text_of
from rookery.wire.provider import Call

FIND = "hub_find_tool"
CALL = "hub_call_tool"

_CALL: Mapping[str, Any] = {
    "name": CALL,
    "description": f"Call a tool that {FIND} has found, by its name, with the arguments that its inputSchema asks for.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": f"The name of the tool, as {FIND} tells it."},
            "arguments": {"type": "object", "description": "What the tool takes."},
        },
        "required": ["name"],
    },
}
_INSTRUCTIONS = (
    f"Tools are not listed here. Look for one with {FIND}, in plain words, and call what it finds with {CALL}."
)


@dataclass(frozen=True)
class Finds:
    """What was found, the best first, among so many. `absent` tells of servers that could not be looked through."""

    tools: Sequence[Target]
    among: int
    absent: Sequence[str]


class FindingView(View):
    """What is hidden from the view, or denied in it, is not found either."""

    _indexed: tuple[Table, Index, int] | None = None

    async def find(self, session: str | None, question: str, limit: int) -> Finds:
        await self._settle(session)
        table = self._table(session)
        if self._indexed is None or self._indexed[0] is not table:
            shown = [one for one in table.tools.values() if one.verdict.action != "deny" and one.public != FIND]
            listed = [Listed(one.public, one.member.name, one.name, bytes(one.entry.raw)) for one in shown]
            # A thousand definitions take a while to read for the first time, and nobody else has to wait for that.
            self._indexed = table, await asyncio.to_thread(Index, listed), len(listed)
        _, index, among = self._indexed
        found = [table.tools[name] for name in index.find(question, limit) if name in table.tools]
        return Finds(found, among, self._membership.absent(session))


class Sight:
    """Through which the tools of a view see the view that they belong to, once that is made."""

    view: FindingView | None = None

    async def find(self, session: str | None, question: str, limit: int) -> Finds:
        if self.view is None:
            raise RookeryError("internal-error", "this view shows no tools to look for")
        return await self.view.find(session, question, limit)


class SearchView(FindingView):
    """`finder` is the toolset that answers `hub_find_tool`. A tool whose name is known can also be called by it."""

    finder: Member | None = None

    @property
    def instructions(self) -> str | None:
        """Those of all servers would cost what this view is to save."""
        return _INSTRUCTIONS

    async def _list(self, call: Call) -> Raw:
        if call.method != "tools/list" or "cursor" in call.params:
            return await super()._list(call)
        return Raw(b'{"tools":[%b]}' % shown_by(self.finder))

    async def _call_tool(self, call: Call) -> Raw | Mapping[str, Any]:
        name = text_of(call.params, "name")
        if name == FIND and self.finder is not None:
            return await self.finder.handle(call, passed(call, FIND))
        return await (self._call_inner(call) if name == CALL else super()._call_tool(call))

    async def _call_inner(self, call: Call) -> Raw | Mapping[str, Any]:
        """As if its client had called the tool by its own name: everything that holds for the tool holds here."""
        try:
            name, arguments = _wanted(call.params)
        except WireError as error:
            return results.failed("invalid-input", f"the arguments of {CALL} do not fit: {error.message}")
        if name in (FIND, CALL):
            return results.failed("invalid-input", f"{name} is called by itself, not through {CALL}")
        if name not in self._table(call.session).tools and await self._look(call, "tools", name) is None:
            told = self._nothing(call, f"there is no tool {name!r}").message
            return results.failed_by(RookeryError("invalid-input", told, f"{FIND} tells the names there are"))
        params = {**call.params, "name": Raw(msgspec.json.encode(name)), "arguments": arguments}
        return await super()._call_tool(cast(Call, _Inner(call, params)))


def shown_by(finder: Member | None) -> bytes:
    """All that a view in search mode lists."""
    catalog = finder.catalog if finder is not None else None
    found = [bytes(one.raw) for one in catalog.tools] if catalog is not None else []
    return b",".join([*found, msgspec.json.encode(_CALL)])


def _wanted(params: Params) -> tuple[str, Raw]:
    """The name and the arguments of the tool that is to be called."""
    given = object_of(params.get("arguments", EMPTY), "arguments")
    if other := [key for key in given if key not in ("name", "arguments")]:
        raise WireError(INVALID_PARAMS, f"{other[0]!r} belongs inside of `arguments`")
    arguments = given.get("arguments", EMPTY)
    if bytes(arguments).startswith(b'"'):
        # Some models write an object as text.
        arguments = Raw(text_of(given, "arguments").encode())
    object_of(arguments, "arguments of the tool")
    return text_of(given, "name"), arguments


class _Inner:
    """A call of one tool that came in as the arguments of another; whatever else is asked of it is the outer one's."""

    def __init__(self, outer: Call, params: Params) -> None:
        self._outer = outer
        self.params = params

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)
