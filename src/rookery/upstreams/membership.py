"""Who belongs to a view: our toolsets and the servers of a directory, or one server alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rookery.gateway.member import Member
from rookery.gateway.rules import Judge, Rules, ViewRules
from rookery.upstreams.fleet import Fleet
from rookery.upstreams.permissions import Permissions


@dataclass(frozen=True)
class FleetMembers:
    """`only` names the server of a view with bare names. Without `with_servers` there are only toolsets."""

    fleet: Fleet
    judge: Callable[[Permissions], Judge]
    toolsets: Sequence[Member] = ()
    only: str | None = None
    with_servers: bool = True

    @property
    def workspace(self) -> str | None:
        return self.fleet.workspace

    def own(self, session: str | None) -> str | None:
        return self.fleet.own(session)

    def members(self, session: str | None) -> Sequence[Member]:
        if not self.with_servers:
            return self.toolsets
        servers = self.fleet.servers(session)
        if self.only is not None:
            return [one for one in servers if one.name == self.only]
        return [*self.toolsets, *servers]

    def rules(self, session: str | None) -> Rules:
        return ViewRules(
            {slot.definition.name: slot.definition.tools for slot in self.fleet.slots(session)},
            self.fleet.found.permissions.shown,
            self.fleet.switches,
            self.fleet.subjects(session),
            self.judge(self.fleet.found.permissions),
        )

    def absent(self, session: str | None) -> Sequence[str]:
        """The servers that could have had what was asked for, and why they are not there."""
        return [
            f"{record.name} is {record.status}{f' ({record.error})' if record.error else ''}"
            for record in self.fleet.records(session)
            if record.status not in ("connected", "stopped") and not record.shadowed
            if self.with_servers and self.only in (None, record.name)
        ]

    def present(self, member: Member) -> bool:
        return member.ours or self.fleet.has(member)

    def listen(self, changed: Callable[[], None], ended: Callable[[str], None]) -> Callable[[], None]:
        return self.fleet.listen(changed, ended)
