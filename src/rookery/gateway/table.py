"""What a view shows at one moment: each list as the bytes that are served, and the target of each name."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway.names import (
    NamingStyle,
    OwnedName,
    gateway_name,
    make_public_names,
    make_public_uris,
    matches_template,
    uri_scheme,
)
from rookery.gateway.provider import LISTS, Catalog, CatalogEntry, CatalogProvider, Kind, WithheldDefinition
from rookery.gateway.rules import ALLOWED, Rules, Verdict

logger = logging.getLogger("rookery.mcp.gateway")


class _Schemas(msgspec.Struct):
    inputSchema: Raw = Raw(b"null")
    outputSchema: Raw = Raw(b"null")


@dataclass(frozen=True, slots=True)
class Target:
    """The provider and the definition behind a public name."""

    member: CatalogProvider
    entry: CatalogEntry
    public: str
    verdict: Verdict = ALLOWED

    @property
    def name(self) -> str:
        """The name that its provider uses."""
        return self.entry.name

    @property
    def allows_error_content(self) -> bool:
        """Whether its structured content may be a RookeryError; a tool with an output schema has its own form."""
        return (
            self.member.is_builtin or bytes(msgspec.json.decode(self.entry.raw, type=_Schemas).outputSchema) == b"null"
        )


@dataclass
class Table:
    """The lists and names of a view. It is built again whenever a provider or a rule changes."""

    tools: dict[str, Target] = field(default_factory=dict[str, Target])
    prompts: dict[str, Target] = field(default_factory=dict[str, Target])
    resources: dict[str, Target] = field(default_factory=dict[str, Target])
    templates: dict[str, Target] = field(default_factory=dict[str, Target])
    lists: dict[str, Raw] = field(default_factory=dict[str, Raw])
    # Those lists that clients of handshake revisions see otherwise.
    handshake_lists: dict[str, Raw] = field(default_factory=dict[str, Raw])
    # By the prefix of a URI: the server it belongs to.
    servers_by_prefix: dict[str, CatalogProvider] = field(default_factory=dict[str, CatalogProvider])
    # By the beginning of the URIs of a toolset's template: the toolset.
    toolsets_by_prefix: dict[str, CatalogProvider] = field(default_factory=dict[str, CatalogProvider])
    members: list[tuple[CatalogProvider, Catalog]] = field(default_factory=list[tuple[CatalogProvider, Catalog]])
    style: NamingStyle = field(default_factory=NamingStyle)
    _publics: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    _schemas: dict[str, Mapping[str, Any] | None] = field(default_factory=dict[str, Mapping[str, Any] | None])

    def targets(self, kind: Kind) -> dict[str, Target]:
        return getattr(self, kind)

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's arguments, decoded once."""
        if tool not in self._schemas:
            target = self.tools.get(tool)
            if target is None:
                return None
            self._schemas[tool] = _read(msgspec.json.decode(target.entry.raw, type=_Schemas).inputSchema)
        return self._schemas[tool]

    def resource(self, uri: str) -> tuple[CatalogProvider, str] | None:
        """Return the provider of a resource, and its own URI: a listed one, one of a template, or one from a result."""
        if (match := self.resources.get(uri)) is not None:
            return match.member, match.name
        for prefix, member in self.toolsets_by_prefix.items():
            if uri.startswith(prefix):
                return member, uri
        for scheme, member in self.servers_by_prefix.items():
            if uri.startswith(scheme):
                return member, uri[len(scheme) :]
        owners = self.possible_owners(uri)
        return (owners[0], uri) if len(owners) == 1 else None

    def possible_owners(self, uri: str) -> Sequence[CatalogProvider]:
        """Return the servers that may have a resource by its own URI, as a result mentions it; the likeliest first.

        If a server lists the URI, no other is asked, and if templates match it, only their servers are. The only server
        of a view gets every URI.
        """
        servers = [(member, catalog) for member, catalog in self.members if not member.is_builtin]
        if self.style.bare:
            return [member for member, _ in servers]
        listing = [member for member, catalog in servers if any(entry.name == uri for entry in catalog.resources)]
        if listing:
            return listing
        matching = [
            member
            for member, catalog in servers
            if any(matches_template(entry.name, uri) for entry in catalog.templates)
        ]
        return matching or [member for member, catalog in servers if "resources" in catalog.capabilities]

    def find_withheld_uri(self, member: CatalogProvider, uri: str) -> WithheldDefinition | None:
        """Return the withheld definition by which a server has a resource, if it has it by no other one."""
        catalog = next((catalog for other, catalog in self.members if other is member), None)
        if catalog is None or not catalog.withheld or any(entry.name == uri for entry in catalog.resources):
            return None
        for withheld in catalog.withheld:
            if withheld.kind == "server" or (withheld.kind in ("skill", "template") and withheld.name == uri):
                return withheld
        if any(matches_template(entry.name, uri) for entry in catalog.templates):
            return None
        templates = (withheld for withheld in catalog.withheld if withheld.kind == "template")
        return next((withheld for withheld in templates if matches_template(withheld.name, uri)), None)

    def public_uri(self, member: CatalogProvider, uri: str) -> str:
        """Return the URI of a provider's resource in this view."""
        if not self._publics:
            self._publics = {(id(target.member), target.name): public for public, target in self.resources.items()}
        public_name = self._publics.get((id(member), uri))
        if public_name is not None or member.is_builtin or self.style.bare or self.style.prefix != "always":
            return public_name or uri
        return uri_scheme(member.name) + uri


def _read(schema: Raw) -> Mapping[str, Any] | None:
    try:
        return msgspec.json.decode(schema, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None  # not an object, or with a number in it that no client could read


def build_table(members: Sequence[CatalogProvider], style: NamingStyle, rules: Rules) -> Table:
    """Return the table of these providers as they are now. Has no side effects."""
    table = Table(style=style)
    table.members = [(member, catalog) for member in members if (catalog := member.catalog) is not None]
    # A server may have the same name as a toolset.
    owners = {(member.is_builtin, member.name): member for member in members}
    for kind in LISTS:
        entries = {
            OwnedName(member.name, entry.name, member.is_builtin): entry
            for member, catalog in table.members
            for entry in catalog.entries(kind)
        }
        owned_by_public = (make_public_names if LISTS[kind][2] == "name" else make_public_uris)(list(entries), style)
        order = {owned: position for position, owned in enumerate(entries)}
        listed: list[Target] = []
        for public, owned in sorted(owned_by_public.items(), key=lambda pair: order[pair[1]]):
            target = _target(owners[owned.is_builtin, owned.owner], entries[owned], public, kind, rules)
            if target is None:
                continue
            table.targets(kind)[public] = target
            if target.verdict.action != "deny":
                listed.append(target)
        method = LISTS[kind][0]
        table.lists[method] = _encode_list(kind, listed)
        if any(target.entry.handshake_raw is not None for target in listed):
            table.handshake_lists[method] = _encode_list(kind, listed, for_handshake=True)
    if not style.bare:
        table.toolsets_by_prefix = {
            target.name.partition("{")[0]: target.member
            for target in table.templates.values()
            if target.member.is_builtin
        }
        table.servers_by_prefix = {
            uri_scheme(member.name): member for member, _ in table.members if not member.is_builtin
        }
    return table


def _encode_list(kind: Kind, targets: Sequence[Target], *, for_handshake: bool = False) -> Raw:
    definitions = [target.entry.renamed(kind, target.public, for_handshake=for_handshake) for target in targets]
    return Raw(b'{"%b":[%b]}' % (LISTS[kind][1].encode(), b",".join(definitions)))


def _target(member: CatalogProvider, entry: CatalogEntry, public: str, kind: Kind, rules: Rules) -> Target | None:
    if kind != "tools":
        return Target(member, entry, public)
    # Rules use one name of a tool, whatever its name in this view.
    rule_name = entry.name if member.is_builtin else gateway_name(member.name, entry.name)
    if not rules.is_shown(member.name, entry.name, rule_name):
        return None
    try:
        verdict = rules.verdict(member.name, entry.name, rule_name)
    except Exception:
        # The policy fails closed.
        logger.exception("the policy failed on %s", public)
        verdict = Verdict("deny", "the policy could not be evaluated; see the daemon's log")
    return Target(member, entry, public, verdict)
