"""What one kind of client may see. An endpoint serves a view; a view finds out which provider answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.catalog import LISTS, Catalog, Kind
from rookery.gateway.hooks import Hooks, ToolCall
from rookery.gateway.member import Member
from rookery.gateway.names import Style
from rookery.gateway.rules import Rules
from rookery.gateway.table import Table, Target, build
from rookery.gateway.waiting import wait_for_most
from rookery.system import metrics
from rookery.system.errors import RookeryError
from rookery.wire.jsonrpc import (
    EMPTY,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Params,
    WireError,
    object_of,
    text_of,
)
from rookery.wire.provider import Call, Change, Changes

CALLS = metrics.counter("rookery_tool_calls_total", "Calls of tools through the gateway.", "server", "outcome")

_LONGEST_WAIT = 35.0
_ANNOUNCE_SECONDS = 0.02
_ABLE: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}
_KIND_OF_LIST: Mapping[str, Kind] = {method: kind for kind, (method, _, _) in LISTS.items()}


class Membership(Protocol):
    """Who belongs to a view, and what rules hold in it. A session may have members or rules of its own."""

    @property
    def workspace(self) -> str | None: ...

    def own(self, session: str | None) -> str | None:
        """The session, if it sees anything but what everybody sees; else None."""
        ...

    def members(self, session: str | None) -> Sequence[Member]: ...

    def rules(self, session: str | None) -> Rules: ...

    def absent(self, session: str | None) -> Sequence[str]:
        """Members that could have had what was asked for, and why they are not there, in words."""
        ...

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """`changed` is called when members or rules are no longer what they were; answers how to stop listening."""
        ...


class View:
    """A provider that is made of others."""

    def __init__(self, membership: Membership, style: Style, info: Mapping[str, Any], hooks: Hooks) -> None:
        self.changes = Changes()
        self._membership = membership
        self._style = style
        self._info = info
        self._hooks = hooks
        self._tables: dict[str | None, Table] = {}
        self._heard: dict[int, tuple[Member, Callable[[], None]]] = {}
        self._due: set[Change] = set()
        self._methods: Mapping[str, Callable[[Call], Awaitable[Raw | Mapping[str, Any]]]] = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "completion/complete": self._complete,
        } | dict.fromkeys(_KIND_OF_LIST, self._list)
        self._stop = membership.listen(self._members_changed)
        self.changes.on_watched = self._watched

    def close(self) -> None:
        self._stop()
        for member, stop in self._heard.values():
            stop()
            member.watch(self, frozenset())

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
        told = [(name, catalog.instructions) for name, (_, catalog) in self._table(None).members.items()]
        if self._style.bare:
            return next((text for _, text in told if text), None)
        return "\n\n".join(f"# {name}\n{text}" for name, text in told if text) or None

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return self._table(None).input_schema(tool)

    def _only(self) -> Catalog | None:
        """The catalog of the one server that a view with bare names shows."""
        members = self._table(None).members.values() if self._style.bare else ()
        return next((catalog for _, catalog in members), None)

    # ---- answering

    async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
        method = self._methods.get(call.method)
        if method is None:
            raise WireError(METHOD_NOT_FOUND, f"there is no method {call.method}")
        return await method(call)

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
        server = target.member.name
        if target.verdict.action != "allow":
            CALLS.add(server, "denied")
            return results.failed("tool-denied", target.verdict.why)
        try:
            result = await (self._hooked(call, target) if self._hooks else self._pass(call, target.member, target.name))
        except RookeryError as error:
            CALLS.add(server, error.code)
            return results.failed(error.code, results.words_of(error))
        except WireError:
            CALLS.add(server, "error")
            raise
        except asyncio.CancelledError:
            CALLS.add(server, "cancelled")
            raise
        CALLS.add(server, "answered")
        return result

    async def _hooked(self, call: Call, target: Target) -> Raw | Mapping[str, Any]:
        seen = ToolCall(
            target.member.name,
            target.name,
            target.public,
            call.params.get("arguments", EMPTY),
            self._membership.workspace,
        )
        seen = await self._hooks.run_before(seen)
        result = await self._pass(call, target.member, target.name, arguments=seen.arguments)
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
        return result if own == uri else _with_uri(result, own, uri)

    async def _complete(self, call: Call) -> Raw | Mapping[str, Any]:
        ref: Params = object_of(call.params.get("ref", EMPTY), "ref")
        found: tuple[Member, str] | None = None
        key = "uri" if "uri" in ref else "name"
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
        params: dict[str, Any] = dict(call.params)
        params.pop("_meta", None)
        if name is not None:
            params["uri" if "uri" in params else "name"] = name
        if more:
            params |= more
        return member.handle(call, params)

    # ---- finding

    def _table(self, session: str | None) -> Table:
        key = self._membership.own(session)
        found = self._tables.get(key)
        if found is None:
            members = self._membership.members(key)
            self._hear(members)
            found = self._tables[key] = build(members, self._style, self._membership.rules(key))
        return found

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

    # ---- changes

    def _hear(self, members: Sequence[Member]) -> None:
        """Listen to every member, once."""
        for member in members:
            if id(member) not in self._heard:
                stop = member.changes.listen(lambda method, uri, member=member: self._changed(member, method, uri))
                self._heard[id(member)] = member, stop

    def _changed(self, member: Member, method: str, uri: str | None) -> None:
        if uri is not None:
            self.changes.resource_updated(self._table(None).public_uri(member, uri))
            return
        kind = method.split("/")[1]
        self._tables.clear()
        self._announce({change for change in ("tools", "prompts", "resources") if change == kind})

    def _members_changed(self) -> None:
        self._tables.clear()
        now = {id(one) for one in self._membership.members(None)}
        for number in [number for number in self._heard if number not in now]:
            member, stop = self._heard.pop(number)
            stop()
            member.watch(self, frozenset())
        self._announce({"tools", "prompts", "resources"})

    def _announce(self, kinds: set[Change]) -> None:
        """Tell the clients soon: what comes in one go is told once."""
        if not self._due:
            asyncio.get_running_loop().call_later(_ANNOUNCE_SECONDS, self._tell)
        self._due |= kinds

    def _tell(self) -> None:
        due, self._due = self._due, set()
        for kind in due:
            self.changes.list_changed(kind)

    def _watched(self, uris: frozenset[str]) -> None:
        """Clients want to hear of these resources: their servers are told."""
        by_member: dict[int, set[str]] = {}
        for uri in uris:
            if (found := self._table(None).resource(uri)) is not None:
                by_member.setdefault(id(found[0]), set()).add(found[1])
        for number, (member, _) in self._heard.items():
            member.watch(self, frozenset(by_member.get(number, ())))


def _with_uri(result: Raw | Mapping[str, Any], own: str, public: str) -> Raw | Mapping[str, Any]:
    """What was read, under the URI by which the client knows it."""
    members: dict[str, Any] = dict(object_of(result, "result") if isinstance(result, Raw) else result)
    try:
        contents: list[dict[str, Any]] = msgspec.json.decode(members["contents"], type=list[dict[str, Raw]])
    except (KeyError, TypeError, msgspec.DecodeError):
        return result
    mine = msgspec.json.encode(own)
    members["contents"] = [one | ({"uri": public} if bytes(one.get("uri", b"")) == mine else {}) for one in contents]
    return members
