"""What a view shows at one moment: every list as the bytes that are served, and where each public name leads."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway.catalog import LISTS, Catalog, Entry, Kind
from rookery.gateway.member import Member
from rookery.gateway.names import Owned, Style, face_name, public_names, public_uris, scheme_of
from rookery.gateway.rules import ALLOWED, Rules, Verdict

logger = logging.getLogger("rookery.gateway")


class _Schemas(msgspec.Struct):
    inputSchema: Raw = Raw(b"null")
    outputSchema: Raw = Raw(b"null")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a public name leads."""

    member: Member
    entry: Entry
    public: str
    verdict: Verdict = ALLOWED

    @property
    def name(self) -> str:
        """What its own provider calls it."""
        return self.entry.name

    @property
    def tells_errors(self) -> bool:
        """Whether its structured content may be an error of ours; those of other tools have a form of their own."""
        return self.member.ours or bytes(msgspec.json.decode(self.entry.raw, type=_Schemas).outputSchema) == b"null"


@dataclass
class Table:
    """Made anew whenever a provider or a rule changes."""

    tools: dict[str, Target] = field(default_factory=dict[str, Target])
    prompts: dict[str, Target] = field(default_factory=dict[str, Target])
    resources: dict[str, Target] = field(default_factory=dict[str, Target])
    templates: dict[str, Target] = field(default_factory=dict[str, Target])
    lists: dict[str, Raw] = field(default_factory=dict[str, Raw])
    # By what stands in front of a URI: the server it belongs to.
    schemes: dict[str, Member] = field(default_factory=dict[str, Member])
    # By how the URIs of a template of ours begin: the toolset that has it.
    own: dict[str, Member] = field(default_factory=dict[str, Member])
    members: list[tuple[Member, Catalog]] = field(default_factory=list[tuple[Member, Catalog]])
    style: Style = field(default_factory=Style)
    _publics: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    _schemas: dict[str, Mapping[str, Any] | None] = field(default_factory=dict[str, Mapping[str, Any] | None])

    def of(self, kind: Kind) -> dict[str, Target]:
        return getattr(self, kind)

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """The schema of a tool's arguments, read once."""
        if tool not in self._schemas:
            target = self.tools.get(tool)
            if target is None:
                return None
            self._schemas[tool] = _read(msgspec.json.decode(target.entry.raw, type=_Schemas).inputSchema)
        return self._schemas[tool]

    def resource(self, uri: str) -> tuple[Member, str] | None:
        """Who has a resource, and under which URI: a listed one, one that fits a template, or one from a result."""
        if (listed := self.resources.get(uri)) is not None:
            return listed.member, listed.name
        for front, member in self.own.items():
            if uri.startswith(front):
                return member, uri
        for scheme, member in self.schemes.items():
            if uri.startswith(scheme):
                return member, uri[len(scheme) :]
        # A result may mention a resource by its server's own URI.
        owners = {id(one.member): one.member for one in self.resources.values() if one.name == uri}
        if not owners:
            owners = {id(m): m for m, catalog in self.members if catalog.resources or catalog.templates}
        return (next(iter(owners.values())), uri) if len(owners) == 1 else None

    def public_uri(self, member: Member, uri: str) -> str:
        """How a view calls a resource of one of its servers."""
        if not self._publics:
            self._publics = {(id(one.member), one.name): public for public, one in self.resources.items()}
        listed = self._publics.get((id(member), uri))
        if listed is not None or member.ours or self.style.bare or self.style.prefix != "always":
            return listed or uri
        return scheme_of(member.name) + uri


def _read(schema: Raw) -> Mapping[str, Any] | None:
    try:
        return msgspec.json.decode(schema, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None  # no object, or with a number in it that no client could read


def build(members: Sequence[Member], style: Style, rules: Rules) -> Table:
    """Pure: what these providers, at this moment, look like from outside."""
    made = Table(style=style)
    made.members = [(one, catalog) for one in members if (catalog := one.catalog) is not None]
    # A server may be called as one of our toolsets is.
    owners = {(one.ours, one.name): one for one in members}
    for kind in LISTS:
        offered = {
            Owned(member.name, entry.name, member.ours): entry
            for member, catalog in made.members
            for entry in catalog.of(kind)
        }
        named = (public_names if LISTS[kind][2] == "name" else public_uris)(list(offered), style)
        order = {one: place for place, one in enumerate(offered)}
        shown: list[bytes] = []
        for public, one in sorted(named.items(), key=lambda pair: order[pair[1]]):
            target = _target(owners[one.ours, one.owner], offered[one], public, kind, rules)
            if target is None:
                continue
            made.of(kind)[public] = target
            if target.verdict.action != "deny":
                shown.append(target.entry.renamed(kind, public))
        method, key, _ = LISTS[kind]
        made.lists[method] = Raw(b'{"%b":[%b]}' % (key.encode(), b",".join(shown)))
    if not style.bare:
        made.own = {one.name.partition("{")[0]: one.member for one in made.templates.values() if one.member.ours}
        made.schemes = {scheme_of(member.name): member for member, _ in made.members if not member.ours}
    return made


def _target(member: Member, entry: Entry, public: str, kind: Kind, rules: Rules) -> Target | None:
    if kind != "tools":
        return Target(member, entry, public)
    # Rules are about one name of a tool, whatever this view calls it.
    face = entry.name if member.ours else face_name(member.name, entry.name)
    if not rules.shows(member.name, entry.name, face):
        return None
    try:
        verdict = rules.verdict(member.name, entry.name, face)
    except Exception:
        # What guards something fails closed.
        logger.exception("the policy failed on %s", public)
        verdict = Verdict("deny", "the policy could not be evaluated; the daemon's log tells why")
    return Target(member, entry, public, verdict)
