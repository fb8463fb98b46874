"""A view: what one kind of client may see and call. An endpoint serves a view, which finds each request's provider.

A call starts at once, or in round trips if a modern client may be asked something, or continues if it was parked. The
user is asked first if the policy requires it and the client can ask. A list waits for servers that are still starting,
unless they take much longer than the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.audit import NO_RECORDER, CallRecorder, ViewAudit
from rookery.gateway.conversations import ALL_CONVERSATIONS, Conversations, ask_in_session
from rookery.gateway.elicitation import CallResult, CallWork, ParkedCalls
from rookery.gateway.fastpath import FastToolRoute, count_call, deny_call, deny_withheld, provider_params
from rookery.gateway.hooks import Hooks, ToolCall
from rookery.gateway.membership import Membership, ViewMembers
from rookery.gateway.names import NamingStyle, gateway_name
from rookery.gateway.provider import (
    LISTS,
    Catalog,
    CatalogProvider,
    FastProvider,
    Kind,
    WithheldDefinition,
    describe_withheld,
)
from rookery.gateway.relay import can_ask_client
from rookery.gateway.table import Table, Target
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.text import escape_invisible
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import (
    EMPTY_OBJECT,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Params,
    WireError,
    decode_object,
    decode_text,
)
from rookery.wire.protocol.provider import Call, ChangeNotifier, ClientQuestion

# How long the remaining servers may take, relative to the slowest that is ready, and the minimum.
_PATIENCE = 1.3
_MIN_SECONDS = 2.0
_CONSENT_METHOD = "elicitation/create"
_CONSENT_KEY = "consent"
_MAX_SHOWN_LENGTH = 2000
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Run it", "description": "Run this tool once"}},
    "required": ["allow"],
}
_NO_RETRY = "Do not work around it, and do not try again unless the user wants that."
_MAX_WAIT_SECONDS = 35.0
_CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}
# Capabilities that a view of one server declares as the server does: requests of extensions pass unchanged.
_RELAYED_CAPABILITIES = ("extensions", "experimental")


class RoundTripCalls:
    """Starts the calls of a view. `table` returns what clients without a session see, as all modern ones are."""

    def __init__(self, parking: ParkedCalls, table: Callable[[], Table]) -> None:
        self.seconds = parking.seconds
        self.on_disconnected = parking.cancel_all
        self._parking = parking
        self._table = table

    def begin(self, call: Call, work: CallWork) -> Coroutine[Any, Any, CallResult]:
        """Run a call with `work`, which may ask the client something."""
        if not call.client.modern or call.method not in revisions.INPUT_METHODS:
            return work(call)
        if self._parking.is_continuation(call):
            return self._convert_errors(call, self._parking.resume(self, call))
        return (
            self._convert_errors(call, self._parking.start(self, call, work))
            if self._may_be_asked(call)
            else work(call)
        )

    def close(self) -> None:
        self._parking.cancel_all(self)

    def _may_be_asked(self, call: Call) -> bool:
        """Return whether the client may be asked something. Other calls need no task of their own."""
        if call.client.capabilities.keys().isdisjoint(revisions.REQUIRED_CAPABILITIES.values()):
            return False
        if call.method != "tools/call":
            return True
        target = self._target(call)
        if target is None or target.verdict.action == "ask":
            return True
        return isinstance(target.member, FastProvider) and target.member.may_ask

    def _target(self, call: Call) -> Target | None:
        return self._table().tools.get(decode_text(call.params, "name"))

    async def _convert_errors(self, call: Call, work: Coroutine[Any, Any, CallResult]) -> CallResult:
        """Convert an error of the round trips themselves to the form that the method requires."""
        try:
            return await work
        except RookeryError as error:
            if call.method != "tools/call":
                raise results.wire_error(error) from None
            target = self._target(call)
            return results.tool_error(error, structured=target is None or target.allows_error_content)


async def wait_for_most(starting: Iterable[asyncio.Future[bool]], max_seconds: float) -> None:
    """Wait until all have ended, or until the remaining ones take much longer than those that have."""
    waiting = set(starting)
    loop = asyncio.get_running_loop()
    start = loop.time()
    limit = max_seconds
    while waiting and (remaining := start + limit - loop.time()) > 0:
        ended, waiting = await asyncio.wait(waiting, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
        # A server that failed or was removed says nothing about how long the others need.
        if any(not future.cancelled() and future.result() for future in ended):
            limit = min(max_seconds, max(_MIN_SECONDS, (loop.time() - start) * _PATIENCE))


class _Content(msgspec.Struct):
    allow: bool = False


class _Answer(msgspec.Struct):
    """The answer of the user. Everything but a clear yes is a no."""

    action: str
    content: _Content | None = None


class Consent(msgspec.Struct, frozen=True):
    """Whether the user has allowed a call: `why` it must not be made, empty if it may.

    `reply` is how the question was answered; empty if the user was not asked.
    """

    why: str
    reply: Literal["", "allowed", "declined", "unanswered", "refused"] = ""


async def ask_consent(call: Call, target: Target, seconds: float) -> Consent:
    """Ask the user through the client whether a tool may be run."""
    if not call.can_ask or not can_ask_client(call, _CONSENT_METHOD, {}):
        return Consent(target.verdict.why)
    try:
        async with asyncio.timeout(seconds):
            answer = (await call.ask_raw({_CONSENT_KEY: ClientQuestion(_CONSENT_METHOD, _question(call, target))}))[
                _CONSENT_KEY
            ]
    except TimeoutError:
        return Consent(_describe_timeout(target, seconds), "unanswered")
    except WireError as error:
        reason = escape_invisible(error.message)[:_MAX_SHOWN_LENGTH]
        why = f"The tool {target.public} was not run: the client refused to ask the user: {reason}"
        return Consent(why, "refused")
    return Consent("", "allowed") if _is_yes(answer) else Consent(_refusal(target), "declined")


def _describe_switch(target: Target, conversation: str) -> str:
    server = target.member.name
    return (
        f"The tool {target.public} was not run: the user has switched it off in this conversation. {_NO_RETRY} "
        f"To switch it on: rookery mcp enable {server} --session {conversation}"
    )


def _describe_timeout(target: Target, seconds: float) -> str:
    return f"The tool {target.public} was not run: the user did not answer within {seconds:g} s."


def _refusal(target: Target, reason: str = "") -> str:
    return f"The tool {target.public} was not run: the user did not allow it{reason}. {_NO_RETRY}"


def _show_arguments(call: Call) -> str:
    arguments = escape_invisible(bytes(call.params.get("arguments", EMPTY_OBJECT)).decode())
    if len(arguments) <= _MAX_SHOWN_LENGTH:
        return arguments
    return f"{arguments[:_MAX_SHOWN_LENGTH]}… ({len(arguments)} characters)"


def _question(call: Call, target: Target) -> dict[str, Any]:
    owner = "Rookery" if target.member.is_builtin else f'the MCP server "{escape_invisible(target.member.name)}"'
    message = f"May the tool {target.public} of {owner} be run with these arguments? {_show_arguments(call)}"
    return {"mode": "form", "message": message, "requestedSchema": _FORM}


def _is_yes(answer: Raw) -> bool:
    try:
        decoded = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, RecursionError):
        return False
    return decoded.action == "accept" and decoded.content is not None and decoded.content.allow


_KIND_OF_LIST: Mapping[str, Kind] = {method: kind for kind, (method, _, _) in LISTS.items()}


class View:
    """A provider that combines other providers."""

    def __init__(
        self,
        membership: Membership,
        style: NamingStyle,
        info: Mapping[str, Any],
        hooks: Hooks,
        parking: ParkedCalls,
        recorder: CallRecorder = NO_RECORDER,
        conversations: Conversations | None = None,
    ) -> None:
        self.changes = ChangeNotifier()
        self._audit = ViewAudit(recorder, membership.workspace)
        self._membership = membership
        self._style = style
        self._info = info
        self._hooks = hooks
        self._conversations = conversations
        self._round_trips = RoundTripCalls(parking, lambda: self.table(None))
        self.on_disconnected = self._round_trips.on_disconnected
        self._members = ViewMembers(membership, style, self.changes)
        self.table = self._table = self._members.table
        self._methods: Mapping[str, Callable[[Call], Coroutine[Any, Any, Raw | Mapping[str, Any]]]] = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "completion/complete": self._complete,
        } | dict.fromkeys(_KIND_OF_LIST, self._list)

    def close(self) -> None:
        self._round_trips.close()
        self._members.close()

    # Description

    @property
    def info(self) -> Mapping[str, Any]:
        only = self._only()
        return (only.info if only is not None and only.info else None) or self._info

    @property
    def capabilities(self) -> Mapping[str, Any]:
        only = self._only()
        if only is None:
            return _CAPABILITIES
        relayed = {key: only.capabilities[key] for key in _RELAYED_CAPABILITIES if key in only.capabilities}
        return {key: options for key, options in _CAPABILITIES.items() if key in only.capabilities} | relayed

    @property
    def instructions(self) -> str | None:
        instructions = [(member.name, catalog.instructions) for member, catalog in self._table(None).members]
        if self._style.bare:
            return next((text for _, text in instructions if text), None)
        return "\n\n".join(f"# {name}\n{text}" for name, text in instructions if text) or None

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return self._table(None).input_schema(tool)

    def _only(self) -> Catalog | None:
        """Return the catalog of the only server in a view with bare names."""
        members = self._table(None).members if self._style.bare else ()
        return next((catalog for _, catalog in members), None)

    # Requests

    def handle(self, call: Call) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        method = self._methods.get(call.method)
        if method is None:
            raise WireError(METHOD_NOT_FOUND, f"there is no method {call.method}")
        return self._round_trips.begin(call, method)

    async def _list(self, call: Call) -> Raw:
        if "cursor" in call.params:
            raise WireError(INVALID_PARAMS, "there is no such cursor: lists have a single page")
        # A program lists once for all its conversations, and hides in each what is off there.
        conversation = ALL_CONVERSATIONS if call.conversation is not None else None
        await self._wait_for_members(call.session, conversation)
        table = self._table(call.session, conversation)
        if self._style.bare and not table.members and self._membership.members(call.session, conversation):
            # An empty list would look as if the server worked, and offered nothing.
            absent = self._membership.describe_absent(call.session, lambda owner: True)
            if absent:
                raise results.wire_error(RookeryError("upstream-failed", f"MCP server {absent[0]}"))
        listed = None if call.client.modern else table.handshake_lists.get(call.method)
        return listed or table.lists[call.method]

    async def _call_tool(self, call: Call) -> Raw | Mapping[str, Any]:
        name = decode_text(call.params, "name")
        if "task" in call.params:
            # The methods of tasks are not relayed: the client could never fetch the result.
            raise WireError(INVALID_PARAMS, f"{name} cannot be called as a task here: call it without `task`")
        conversation = await self._find_conversation(call)
        target = self._table(call.session, conversation).tools.get(name)
        if target is None and conversation is not None:
            off = self._table(call.session, ALL_CONVERSATIONS).tools.get(name)
            if off is not None:
                self._audit.record("call", "denied", "switched-off", call, off.member.name, off.name)
                return deny_call(off, _describe_switch(off, conversation))
        target = target or await self._find_after_start(call, conversation, "tools", name)
        if target is None:
            if (withheld := self._find_withheld(call, "tool", name)) is not None:
                return self._deny_withheld(call, *withheld)
            self._audit.record("call", "denied", "not-found", call, None, name)
            raise self._not_found(call, "tool", name)
        if target.verdict.action != "allow" and (why := await self._ask_consent(call, target, conversation)):
            return deny_call(target, why)
        work = self._call_with_hooks(call, target) if self._hooks else self._forward(call, target.member, target.name)
        return await count_call(target, self._audit.follow("call", call, target.member.name, target.name, work))

    async def _ask_consent(self, call: Call, target: Target, conversation: str | None) -> str:
        """Return why the policy denies a call, after asking the user if it says so; empty if it may be made."""
        started = SYSTEM_CLOCK.monotonic()
        if target.verdict.action == "deny":
            consent = Consent(target.verdict.why)
        elif conversation is None:
            consent = await ask_consent(call, target, self._round_trips.seconds)
        else:
            consent = await self._ask_in_session(call, target, conversation)
        why = consent.why
        if not why:
            current = self._table(call.session, conversation).tools.get(target.public)
            if current is None:
                why = f"The tool {target.public} was not run: it no longer exists."
            elif current.verdict.action == "deny":
                why = current.verdict.why
        server = target.member.name
        own_name = target.name
        if consent.reply:
            verdict = "allowed" if consent.reply == "allowed" else "denied"
            self._audit.record("ask", verdict, consent.reply, call, server, own_name, started)
        if why:
            self._audit.record("call", "denied", f"rule-{target.verdict.action}", call, server, own_name, started)
        return why

    async def _find_conversation(self, call: Call) -> str | None:
        """Return the conversation of an agent that a call belongs to, if any."""
        workspace = self._membership.workspace
        if call.conversation in (None, ALL_CONVERSATIONS) or self._conversations is None or workspace is None:
            return None
        root = await self._conversations.find_root(Path(workspace), call.conversation)
        # While the agent has not reported its sessions, what is switched in one of them applies nevertheless.
        return root or self._membership.conversation_key(call.conversation)

    async def _ask_in_session(self, call: Call, target: Target, root: str) -> Consent:
        """Ask the owner in the agent's session whether a tool may be run."""
        assert self._conversations is not None and self._membership.workspace is not None
        assert call.conversation is not None
        owner = target.member
        tool = target.name if owner.is_builtin else gateway_name(owner.name, target.name)
        about = escape_invisible(tool), "" if owner.is_builtin else owner.name, _show_arguments(call)
        with self._conversations.ask(Path(self._membership.workspace), call.conversation, root, *about) as reply:
            try:
                reason = await ask_in_session(call, reply, self._round_trips.seconds)
            except TimeoutError:
                return Consent(_describe_timeout(target, self._round_trips.seconds), "unanswered")
        return Consent(_refusal(target, f": {reason}"), "declined") if reason else Consent("", "allowed")

    def find_route(self, call: Call) -> FastToolRoute | None:
        """Return the fast path for calls like this one, or None if there is none."""
        if call.conversation is not None:
            return None  # it may have switches of its own
        table = self._table(call.session)
        target = table.tools.get(decode_text(call.params, "name"))
        if (
            target is None
            or target.verdict.action != "allow"
            or not isinstance(target.member, FastProvider)
            or self._hooks
        ):
            return None
        route = target.member.fast_path(call, provider_params(call, target.name))
        hooks = self._hooks
        if route is None:
            return None
        return FastToolRoute(
            target,
            route,
            lambda: not hooks and self._table(call.session) is table,
            self._round_trips.begin,
            self._audit,
            self._audit.origin(call, target.member.name, target.name),
        )

    async def _call_with_hooks(self, call: Call, target: Target) -> Raw | Mapping[str, Any]:
        """Call a tool, and run the hooks before and after it."""
        arguments = call.params.get("arguments", EMPTY_OBJECT)
        workspace = self._membership.workspace
        hook_call = ToolCall(target.member.name, target.name, target.public, arguments, workspace)
        hook_call = await self._hooks.run_before(hook_call)
        replaced = {"arguments": hook_call.arguments} if hook_call.arguments is not arguments else {}
        result = await self._forward(call, target.member, target.name, **replaced)
        raw = result if isinstance(result, Raw) else Raw(msgspec.json.encode(result))
        return await self._check_result(target.member, target.name, await self._hooks.run_after(hook_call, raw))

    async def _check_result(
        self, member: CatalogProvider, name: str, result: Raw | Mapping[str, Any]
    ) -> Raw | Mapping[str, Any]:
        """Return what is served of a result of a server. Results of Rookery's own toolsets are not checked."""
        if self._hooks.check_result is None or member.is_builtin:
            return result
        raw = result if isinstance(result, Raw) else Raw(msgspec.json.encode(result))
        return await self._hooks.check_result(member.name, name, raw)

    async def _get_prompt(self, call: Call) -> Raw | Mapping[str, Any]:
        name = decode_text(call.params, "name")
        conversation = await self._find_conversation(call)
        target = self._table(call.session, conversation).prompts.get(name)
        target = target or await self._find_after_start(call, conversation, "prompts", name)
        if target is None:
            if (withheld := self._find_withheld(call, "prompt", name)) is not None:
                self._audit.record("prompt", "denied", "withheld", call, withheld[0], withheld[1].name)
                raise results.wire_error(describe_withheld(*withheld))
            self._audit.record("prompt", "denied", "not-found", call, None, name)
            raise self._not_found(call, "prompt", name)
        work = self._relayed(call, target.member, target.name)
        return await self._audit.follow("prompt", call, target.member.name, target.name, work)

    async def _read(self, call: Call) -> Raw | Mapping[str, Any]:
        uri = decode_text(call.params, "uri")
        conversation = await self._find_conversation(call)
        owner = await self._resource(call, conversation, uri)
        if owner is not None:
            member, own = owner
            self._check_uri(call, member, own)
            work = self._relayed(call, member, own)
            result = await self._audit.follow("resource", call, member.name, own, work)
            return result if own == uri else results.replace_uri(result, own, uri)
        error = WireError(INVALID_PARAMS if call.client.modern else -32002, f"there is no resource {uri}")
        # A result may mention a URI that several servers could have: the first one that has it is the one.
        for member in self._table(call.session, conversation).possible_owners(uri):
            self._check_uri(call, member, uri)
            work = self._relayed(call, member, uri)
            try:
                return await self._audit.follow("resource", call, member.name, uri, work)
            except WireError as refusal:
                error = refusal
        raise error

    async def _complete(self, call: Call) -> Raw | Mapping[str, Any]:
        ref: Params = decode_object(call.params.get("ref", EMPTY_OBJECT), "ref")
        owner: tuple[CatalogProvider, str] | None = None
        key = "uri" if decode_text(ref, "type") == "ref/resource" else "name"
        public = decode_text(ref, key)
        conversation = await self._find_conversation(call)
        table = self._table(call.session, conversation)
        if key == "name":
            target = table.prompts.get(public) or await self._find_after_start(call, conversation, "prompts", public)
            owner = (target.member, target.name) if target is not None else None
        else:
            template = table.templates.get(public)
            owner = (template.member, template.name) if template else await self._resource(call, conversation, public)
        if owner is None:
            raise WireError(INVALID_PARAMS, f"nothing can be completed for {public}")
        member, own = owner
        if key == "uri":
            self._check_uri(call, member, own)
        return await self._relayed(call, member, None, ref={**ref, key: own})

    async def _relayed(
        self, call: Call, member: CatalogProvider, name: str | None, **more: Any
    ) -> Raw | Mapping[str, Any]:
        try:
            result = await self._forward(call, member, name, **more)
            return await self._check_result(member, name or call.method, result)
        except RookeryError as error:
            raise results.wire_error(error) from None

    def _forward(
        self, call: Call, member: CatalogProvider, name: str | None, **more: Any
    ) -> Awaitable[Raw | Mapping[str, Any]]:
        return member.handle(call, provider_params(call, name, **more))

    # Lookup

    async def _wait_for_members(self, session: str | None, conversation: str | None = None) -> None:
        """Wait for members that cannot be listed yet, but not for those that take much longer than the others."""
        members = self._membership.members(session, conversation)
        starting = [future for member in members if (future := member.use()) is not None]
        if starting:
            await wait_for_most(starting, _MAX_WAIT_SECONDS)

    async def _find_after_start(self, call: Call, conversation: str | None, kind: Kind, name: str) -> Target | None:
        """Look up a name again after the members that may own it have started: they may have something new."""
        members = [
            member
            for member in self._membership.members(call.session, conversation)
            if self._style.may_own(member.name, name)
        ]
        starting = [future for member in members if (future := member.use(current=True)) is not None]
        if starting:
            # Without a prefix it may be anybody's, and one that hangs must not delay the answer about the others.
            certain = not self._style.bare and self._style.prefix == "always"
            if certain or len(starting) == 1:
                await asyncio.wait(starting, timeout=_MAX_WAIT_SECONDS)
            else:
                await wait_for_most(starting, _MAX_WAIT_SECONDS)
        return self._table(call.session, conversation).targets(kind).get(name)

    def _not_found(self, call: Call, what: str, name: str) -> WireError:
        """Return the error for a name that does not exist, with the members that may own it and are not available."""
        absent = self._membership.describe_absent(call.session, lambda owner: self._style.may_own(owner, name))
        message = f"there is no {what} {name}"
        return WireError(INVALID_PARAMS, f"{message}: {'; '.join(absent)}" if absent else message)

    def _find_withheld(self, call: Call, kind: str, name: str) -> tuple[str, WithheldDefinition] | None:
        """Return the server and the definition that is withheld under a public name, if there is one."""
        for member, catalog in self._table(call.session).members:
            for withheld in catalog.withheld:
                publics = (withheld.name,) if self._style.bare else (gateway_name(member.name, withheld.name),)
                if not self._style.bare and self._style.prefix != "always":
                    publics = (withheld.name, *publics)
                if withheld.kind == kind and name in publics:
                    return member.name, withheld
                if withheld.kind == "server" and self._style.may_own(member.name, name):
                    return member.name, withheld
        return None

    def _deny_withheld(self, call: Call, server: str, withheld: WithheldDefinition) -> Mapping[str, Any]:
        self._audit.record("call", "denied", "withheld", call, server, withheld.name)
        return deny_withheld(server, withheld)

    def _check_uri(self, call: Call, member: CatalogProvider, uri: str) -> None:
        """Raise if a server has a resource only by what is withheld: a skill, a template, or all of it."""
        withheld = self._table(call.session).find_withheld_uri(member, uri)
        if withheld is not None:
            self._audit.record("resource", "denied", "withheld", call, member.name, uri)
            raise results.wire_error(describe_withheld(member.name, withheld))

    async def _resource(self, call: Call, conversation: str | None, uri: str) -> tuple[CatalogProvider, str] | None:
        """Return the provider of a resource and its own URI. If unknown, look again after the members have started."""
        owner = self._table(call.session, conversation).resource(uri)
        if owner is None:
            await self._wait_for_members(call.session, conversation)
            owner = self._table(call.session, conversation).resource(uri)
        return owner
