"""What one kind of client may see. An endpoint serves a view; a view finds out which provider answers."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.audience import Audience, Membership
from rookery.gateway.catalog import LISTS, Catalog, Kind
from rookery.gateway.consent import refused
from rookery.gateway.hooks import Hooks, ToolCall
from rookery.gateway.member import Member, Passages
from rookery.gateway.names import Style
from rookery.gateway.parking import Parking
from rookery.gateway.table import Target
from rookery.gateway.turns import Turns
from rookery.gateway.waiting import wait_for_most
from rookery.gateway.ways import ToolWay, counted, denied, passed
from rookery.system.errors import RookeryError
from rookery.wire.jsonrpc import EMPTY, INVALID_PARAMS, METHOD_NOT_FOUND, Params, WireError, object_of, text_of
from rookery.wire.provider import Call, Changes

_LONGEST_WAIT = 35.0
_ABLE: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}
_KIND_OF_LIST: Mapping[str, Kind] = {method: kind for kind, (method, _, _) in LISTS.items()}


class View:
    """A provider that is made of others."""

    def __init__(
        self, membership: Membership, style: Style, info: Mapping[str, Any], hooks: Hooks, parking: Parking
    ) -> None:
        self.changes = Changes()
        self._membership = membership
        self._style = style
        self._info = info
        self._hooks = hooks
        self._turns = Turns(parking, lambda: self.table(None))
        self.left = self._turns.left
        self._audience = Audience(membership, style, self.changes)
        self.table = self._table = self._audience.table
        self._methods: Mapping[str, Callable[[Call], Coroutine[Any, Any, Raw | Mapping[str, Any]]]] = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "completion/complete": self._complete,
        } | dict.fromkeys(_KIND_OF_LIST, self._list)

    def close(self) -> None:
        self._turns.close()
        self._audience.close()

    # ---- what it says of itself

    @property
    def info(self) -> Mapping[str, Any]:
        only = self._only()
        return (only.info if only is not None and only.info else None) or self._info

    @property
    def capabilities(self) -> Mapping[str, Any]:
        only = self._only()
        return _ABLE if only is None else {key: able for key, able in _ABLE.items() if key in only.capabilities}

    @property
    def instructions(self) -> str | None:
        told = [(member.name, catalog.instructions) for member, catalog in self._table(None).members]
        if self._style.bare:
            return next((text for _, text in told if text), None)
        return "\n\n".join(f"# {name}\n{text}" for name, text in told if text) or None

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return self._table(None).input_schema(tool)

    def _only(self) -> Catalog | None:
        """The catalog of the one server that a view with bare names shows."""
        members = self._table(None).members if self._style.bare else ()
        return next((catalog for _, catalog in members), None)

    # ---- answering

    def handle(self, call: Call) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        method = self._methods.get(call.method)
        if method is None:
            raise WireError(METHOD_NOT_FOUND, f"there is no method {call.method}")
        return self._turns.begin(call, method)

    async def _list(self, call: Call) -> Raw:
        if "cursor" in call.params:
            raise WireError(INVALID_PARAMS, "there is no such cursor: lists come in one piece")
        await self._settle(call.session)
        return self._table(call.session).lists[call.method]

    async def _call_tool(self, call: Call) -> Raw | Mapping[str, Any]:
        name = text_of(call.params, "name")
        target = self._table(call.session).tools.get(name) or await self._look(call, "tools", name)
        if target is None:
            raise self._nothing(call, f"there is no tool {name}")
        if target.verdict.action != "allow":
            why = await refused(call, target, self._turns.seconds, lambda: self._table(call.session).tools.get(name))
            if why:
                return denied(target, why)
        work = self._hooked(call, target) if self._hooks else self._pass(call, target.member, target.name)
        return await counted(target, work)

    def way(self, call: Call) -> ToolWay | None:
        table = self._table(call.session)
        target = table.tools.get(text_of(call.params, "name"))
        if target is None or target.verdict.action != "allow" or not isinstance(target.member, Passages) or self._hooks:
            return None
        passage = target.member.passage(call, passed(call, target.name))
        hooks = self._hooks
        if passage is None:
            return None
        return ToolWay(target, passage, lambda: not hooks and self._table(call.session) is table, self._turns.begin)

    async def _hooked(self, call: Call, target: Target) -> Raw | Mapping[str, Any]:
        given, workspace = call.params.get("arguments", EMPTY), self._membership.workspace
        seen = ToolCall(target.member.name, target.name, target.public, given, workspace)
        seen = await self._hooks.run_before(seen)
        replaced = {"arguments": seen.arguments} if seen.arguments is not given else {}
        result = await self._pass(call, target.member, target.name, **replaced)
        raw = result if isinstance(result, Raw) else Raw(msgspec.json.encode(result))
        return await self._hooks.run_after(seen, raw)

    async def _get_prompt(self, call: Call) -> Raw | Mapping[str, Any]:
        name = text_of(call.params, "name")
        target = self._table(call.session).prompts.get(name) or await self._look(call, "prompts", name)
        if target is None:
            raise self._nothing(call, f"there is no prompt {name}")
        return await self._relayed(call, target.member, target.name)

    async def _read(self, call: Call) -> Raw | Mapping[str, Any]:
        uri = text_of(call.params, "uri")
        found = await self._resource(call, uri)
        if found is None:
            raise WireError(INVALID_PARAMS if call.client.modern else -32002, f"there is no resource {uri}")
        member, own = found
        result = await self._relayed(call, member, own)
        return result if own == uri else results.with_uri(result, own, uri)

    async def _complete(self, call: Call) -> Raw | Mapping[str, Any]:
        ref: Params = object_of(call.params.get("ref", EMPTY), "ref")
        found: tuple[Member, str] | None = None
        key = "uri" if text_of(ref, "type") == "ref/resource" else "name"
        public = text_of(ref, key)
        if key == "name":
            target = self._table(call.session).prompts.get(public) or await self._look(call, "prompts", public)
            found = (target.member, target.name) if target is not None else None
        else:
            template = self._table(call.session).templates.get(public)
            found = (template.member, template.name) if template else await self._resource(call, public)
        if found is None:
            raise WireError(INVALID_PARAMS, f"there is nothing to complete at {public}")
        member, own = found
        return await self._relayed(call, member, None, ref={**ref, key: own})

    async def _relayed(self, call: Call, member: Member, name: str | None, **more: Any) -> Raw | Mapping[str, Any]:
        try:
            return await self._pass(call, member, name, **more)
        except RookeryError as error:
            raise results.wire_error_of(error) from None

    def _pass(self, call: Call, member: Member, name: str | None, **more: Any) -> Awaitable[Raw | Mapping[str, Any]]:
        return member.handle(call, passed(call, name, **more))

    # ---- finding

    async def _settle(self, session: str | None) -> None:
        """Wait for members that are starting, but not for one that takes much longer than the others."""
        starting = [wait for one in self._membership.members(session) if (wait := one.use()) is not None]
        if starting:
            await wait_for_most(starting, _LONGEST_WAIT)

    async def _look(self, call: Call, kind: Kind, name: str) -> Target | None:
        """Look once more when everybody who is to come has come: the caller may know a name from yesterday."""
        await self._settle(call.session)
        return self._table(call.session).of(kind).get(name)

    def _nothing(self, call: Call, words: str) -> WireError:
        absent = "; ".join(self._membership.absent(call.session))
        return WireError(INVALID_PARAMS, f"{words}: {absent}" if absent else words)

    async def _resource(self, call: Call, uri: str) -> tuple[Member, str] | None:
        found = self._table(call.session).resource(uri)
        if found is None:
            await self._settle(call.session)
            found = self._table(call.session).resource(uri)
        return found
