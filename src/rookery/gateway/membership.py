"""What a view is made of at each moment, and who is told when that changes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from rookery.gateway.catalog import LISTS
from rookery.gateway.member import Member
from rookery.gateway.names import Style
from rookery.gateway.rules import Rules
from rookery.gateway.table import Table, build
from rookery.wire.provider import Change, Changes

_ANNOUNCE_SECONDS = 0.02
_CHANGES: tuple[Change, ...] = ("tools", "prompts", "resources")


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

    def present(self, member: Member) -> bool:
        """Whether it still is a member, for whichever session."""
        ...

    def listen(self, changed: Callable[[], None], ended: Callable[[str], None]) -> Callable[[], None]:
        """Answers how to stop listening.

        `changed` is called when members or rules are no longer what they were, `ended` when a session is over.
        """
        ...


class Audience:
    """Keeps the tables of a view, hears its members, and tells the view's clients through `changes`."""

    def __init__(self, membership: Membership, style: Style, changes: Changes) -> None:
        self._membership = membership
        self._style = style
        self._changes = changes
        self._tables: dict[str | None, Table] = {}
        self._heard: dict[int, tuple[Member, Callable[[], None]]] = {}
        self._due: set[Change] = set()
        self._stop = membership.listen(self._members_changed, self._session_ended)
        changes.on_watched = self._watched

    def close(self) -> None:
        self._stop()
        self._forget(lambda member: False)

    def table(self, session: str | None) -> Table:
        """What is shown to a session now; made when it is asked for, and again when something has changed."""
        key = self._membership.own(session)
        found = self._tables.get(key)
        if found is None:
            members = self._membership.members(key)
            for member in members:
                self._hear(member)
            found = self._tables[key] = build(members, self._style, self._membership.rules(key))
        return found

    def _hear(self, member: Member) -> None:
        if id(member) not in self._heard:
            stop = member.changes.listen(lambda method, uri: self._changed(member, method, uri))
            self._heard[id(member)] = member, stop

    def _forget(self, present: Callable[[Member], bool]) -> None:
        for number, (member, stop) in list(self._heard.items()):
            if not present(member):
                stop()
                member.watch(self, frozenset())
                del self._heard[number]

    def _changed(self, member: Member, method: str, uri: str | None) -> None:
        """A member says so: it may know better than its list whether something is different."""
        if uri is not None:
            # A server may speak of many more resources than anybody watches.
            tables = {id(table): table for table in (self.table(None), *self._tables.values())}
            for public in {table.public_uri(member, uri) for table in tables.values()}:
                if self._changes.is_watched(public):
                    self._changes.resource_updated(public)
            return
        self._tables.clear()
        self._watched(self._changes.watched)
        self._announce({change for change in _CHANGES if method.split("/")[1] == change})

    def _members_changed(self) -> None:
        """Members or rules are others now; clients are told of what looks different for it."""
        before = self._tables.get(None)
        sessions = list(self._tables)
        self._tables.clear()
        self._forget(self._membership.present)
        after = self.table(None)
        self._watched(self._changes.watched)
        methods = [method for method, _, _ in LISTS.values()]
        other = {one.split("/")[0] for one in methods if before is None or before.lists[one] != after.lists[one]}
        self._announce({change for change in _CHANGES if change in other or len(sessions) > 1})

    def _session_ended(self, session: str) -> None:
        if self._tables.pop(session, None) is not None:
            self._forget(self._membership.present)

    def _announce(self, changes: set[Change]) -> None:
        """Tell the clients soon: what comes in one go is told once."""
        if changes and not self._due:
            asyncio.get_running_loop().call_later(_ANNOUNCE_SECONDS, self._tell)
        self._due |= changes

    def _tell(self) -> None:
        due, self._due = self._due, set()
        for change in due:
            self._changes.list_changed(change)

    def _watched(self, uris: frozenset[str]) -> None:
        """Clients want to hear of these resources: their servers are told."""
        by_member: dict[int, set[str]] = {}
        tables = {id(table): table for table in (self.table(None), *self._tables.values())}
        for uri in uris:
            for table in tables.values():
                if (found := table.resource(uri)) is not None:
                    by_member.setdefault(id(found[0]), set()).add(found[1])
        for number, (member, _) in self._heard.items():
            member.watch(self, frozenset(by_member.get(number, ())))
