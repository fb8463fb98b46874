"""The contract between a view and its providers, and the catalog of one provider.

A provider is a toolset of Rookery or a server behind it. Definitions are kept as the bytes that were received.
"""

from asyncio import Future
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.client.inflight import FastChannel, PostedRequest
from rookery.wire.protocol.provider import Call, ChangeNotifier

Kind = Literal["tools", "prompts", "resources", "templates"]

# By kind: the method that lists it, the key of the list in the result, and the member that identifies an item.
LISTS: Mapping[Kind, tuple[str, str, str]] = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
CAPABILITY: Mapping[Kind, str] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}

_object = msgspec.json.Decoder(dict[str, Raw])


class CatalogEntry(msgspec.Struct, frozen=True):
    """One definition. `name` is the name that its provider uses; for a resource it is a URI.

    `handshake_raw` is the definition for clients of handshake revisions, if it has to be another one.
    """

    name: str
    raw: Raw
    handshake_raw: Raw | None = None

    def renamed(self, kind: Kind, name: str, *, for_handshake: bool = False) -> bytes:
        """Return the definition under another name, otherwise unchanged."""
        raw = self.handshake_raw if for_handshake and self.handshake_raw is not None else self.raw
        if name == self.name:
            return bytes(raw)
        members: dict[str, Any] = dict(_object.decode(raw))
        members[LISTS[kind][2]] = name
        return msgspec.json.encode(members)


class WithheldDefinition(msgspec.Struct, frozen=True):
    """A definition that is not served until the user decides.

    `kind` is `tool`, `prompt`, `template`, `skill`, `instructions`, or `server` if everything of it is withheld;
    `reason` a key of `WITHHELD_REASONS`.
    """

    kind: str
    name: str
    reason: str


WITHHELD_REASONS: Mapping[str, str] = {
    "blocked": "the user blocked it",
    "changed": "its definition has changed since it was pinned",
    "new": "it is new since the server was pinned",
    "severe": "the scanner has severe findings in its definition",
    "lost": "the pins of its server were lost",
    "unlocked": "it is not as mcp.lock has it",
}


def describe_withheld(server: str, withheld: WithheldDefinition) -> RookeryError:
    """Return the error for the use of a definition that is withheld. It names the command that shows why."""
    subject = f'MCP server "{server}"' if withheld.kind == "server" else f"{withheld.kind} {withheld.name!r}"
    of = "" if withheld.kind == "server" else f' of MCP server "{server}"'
    reason = WITHHELD_REASONS.get(withheld.reason, withheld.reason)
    remedy = f"only the user can decide about it, in a terminal: rookery guard diff {server}"
    return RookeryError("definition-withheld", f"{subject}{of} is withheld: {reason}", remedy)


class Catalog(msgspec.Struct, frozen=True):
    """Everything that a provider offers, and how it describes itself."""

    tools: Sequence[CatalogEntry] = ()
    prompts: Sequence[CatalogEntry] = ()
    resources: Sequence[CatalogEntry] = ()
    templates: Sequence[CatalogEntry] = ()
    capabilities: Mapping[str, Any] = {}
    info: Mapping[str, Any] = {}
    instructions: str | None = None
    # For how many seconds a list may be kept; one whose changes the server reports is kept until then.
    lifetimes: Mapping[Kind, float] = {}
    # What of each list was repaired or left out, because clients could not read it.
    problems: Mapping[Kind, Sequence[str]] = {}
    # What the provider lists and is in none of the lists above.
    withheld: Sequence[WithheldDefinition] = ()

    def entries(self, kind: Kind) -> Sequence[CatalogEntry]:
        return getattr(self, kind)


class CatalogProvider(Protocol):
    """One provider of a view."""

    @property
    def name(self) -> str: ...

    @property
    def is_builtin(self) -> bool:
        """Whether it is a toolset of Rookery itself, whose names have no prefix."""
        ...

    @property
    def changes(self) -> ChangeNotifier:
        """Notifies when lists or resources change, and when the provider appears or disappears."""
        ...

    @property
    def catalog(self) -> Catalog | None:
        """The current catalog; None while it is not known, or while it must not be shown."""
        ...

    @property
    def is_starting(self) -> bool:
        """Whether it is being started, so that its catalog may change soon."""
        ...

    def use(self, *, current: bool = False) -> Future[bool] | None:
        """Request the catalog. Return what to wait for until it can be listed, or None if it can be now.

        With `current` it has to be that of the running server, not one that is known from before. The future never
        fails; its result is whether the provider could be reached.
        """
        ...

    async def handle(self, call: Call, params: Mapping[str, Any]) -> Raw | Mapping[str, Any]:
        """Return the result of a call, with parameters that use this provider's own names."""
        ...

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        """Report changes of these resources from now on. They replace the earlier ones of the same `watcher`."""
        ...


class MemberFastPath(FastChannel, Protocol):
    """The fast path to a member."""

    def on_result(self) -> None:
        """Note that a call that was sent has its result."""
        ...

    def handle(
        self, call: Call, params: Mapping[str, Any], sent: PostedRequest
    ) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        """Wait for a call that was sent, and return its result. `params` are those that the member receives."""
        ...


@runtime_checkable
class FastProvider(Protocol):
    """A member that may have a fast path."""

    @property
    def may_ask(self) -> bool:
        """Whether it may ask something during a call, and not only with its result."""
        ...

    def fast_path(self, call: Call, params: Mapping[str, Any]) -> MemberFastPath | None:
        """Return the fast path for calls like this one, or None if one cannot be sent now."""
        ...
