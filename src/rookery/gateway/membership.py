"""The providers of a view at each moment, and the clients that are notified when they change."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from rookery.gateway.names import NamingStyle
from rookery.gateway.provider import LISTS, CatalogProvider
from rookery.gateway.rules import Rules
from rookery.gateway.table import Table, build_table
from rookery.wire.protocol.provider import ChangeNotifier, ListKind

_ANNOUNCE_SECONDS = 0.02
# While servers are starting, more changes are about to come.
_SETTLE_SECONDS = 1.0
_CHANGES: tuple[ListKind, ...] = ("tools", "prompts", "resources")


class Membership(Protocol):
    """The members and the rules of a view. A session may have members or rules of its own, and so may a conversation.

    `ALL_CONVERSATIONS` stands for what any conversation has, or a caller without one.
    """

    @property
    def workspace(self) -> str | None: ...

    def session_key(self, session: str | None) -> str | None:
        """Return the session if it sees anything else than callers without a session, else None."""
        ...

    def conversation_key(self, conversation: str | None) -> str | None:
        """Return the conversation if it sees anything else than callers without one, else None."""
        ...

    def members(self, session: str | None, conversation: str | None = None) -> Sequence[CatalogProvider]: ...

    def rules(self, session: str | None, conversation: str | None = None) -> Rules: ...

    def describe_absent(self, session: str | None, may_own: Callable[[str], bool]) -> Sequence[str]:
        """Describe the members that are not available, and that `may_own` what was requested, judged by their names."""
        ...

    def is_present(self, member: CatalogProvider) -> bool:
        """Return whether a provider is still a member, for any session."""
        ...

    def listen(self, on_changed: Callable[[], None], on_session_ended: Callable[[str], None]) -> Callable[[], None]:
        """Add a listener and return a function that removes it.

        `on_changed` is called when members or rules change, `on_session_ended` when a session ends.
        """
        ...


class ViewMembers:
    """Keeps the tables of a view, listens to its members, and notifies the view's clients through `changes`."""

    def __init__(self, membership: Membership, style: NamingStyle, changes: ChangeNotifier) -> None:
        self._membership = membership
        self._style = style
        self._changes = changes
        # By session and conversation.
        self._tables: dict[tuple[str | None, str | None], Table] = {}
        self._subscribed: dict[int, tuple[CatalogProvider, Callable[[], None]]] = {}
        self._pending: set[ListKind] = set()
        self._announcing: asyncio.TimerHandle | None = None
        self._stop_listening = membership.listen(self._on_members_changed, self._on_session_ended)
        changes.on_watched_changed = self._update_subscriptions

    def close(self) -> None:
        self._stop_listening()
        self._drop_members(lambda member: False)

    def table(self, session: str | None, conversation: str | None = None) -> Table:
        """Return what a session sees now, or a conversation in it.

        The table is built on first use, and again after a change.
        """
        membership = self._membership
        key = (
            membership.session_key(session),
            membership.conversation_key(conversation) if conversation is not None else None,
        )
        table = self._tables.get(key)
        if table is None:
            members = membership.members(*key)
            for member in members:
                self._listen_to(member)
            table = self._tables[key] = build_table(members, self._style, membership.rules(*key))
        return table

    def _listen_to(self, member: CatalogProvider) -> None:
        if id(member) not in self._subscribed:
            stop = member.changes.listen(lambda method, uri: self._on_member_changed(member, method, uri))
            self._subscribed[id(member)] = member, stop

    def _drop_members(self, is_present: Callable[[CatalogProvider], bool]) -> None:
        for number, (member, stop) in list(self._subscribed.items()):
            if not is_present(member):
                stop()
                member.watch(self, frozenset())
                del self._subscribed[number]

    def _on_member_changed(self, member: CatalogProvider, method: str, uri: str | None) -> None:
        """Handle a change that a member reports. It is announced even if the list looks the same."""
        if uri is not None:
            # A server may report many more resources than clients watch.
            tables = {id(table): table for table in (self.table(None), *self._tables.values())}
            for public in {table.public_uri(member, uri) for table in tables.values()}:
                if self._changes.is_watched(public):
                    self._changes.resource_updated(public)
            return
        self._tables.clear()
        self._update_subscriptions(self._changes.watched)
        self._announce({change for change in _CHANGES if method.split("/")[1] == change})

    def _on_members_changed(self) -> None:
        """Rebuild the tables after members or rules changed, and announce the lists that differ."""
        before = self._tables.get((None, None))
        sessions = list(self._tables)
        self._tables.clear()
        self._drop_members(self._membership.is_present)
        after = self.table(None)
        self._update_subscriptions(self._changes.watched)
        methods = [method for method, _, _ in LISTS.values()]
        changed = {
            method.split("/")[0] for method in methods if before is None or before.lists[method] != after.lists[method]
        }
        self._announce({change for change in _CHANGES if change in changed or len(sessions) > 1})

    def _on_session_ended(self, session: str) -> None:
        ended = [key for key in self._tables if key[0] == session]
        for key in ended:
            del self._tables[key]
        if ended:
            self._drop_members(self._membership.is_present)

    def _announce(self, changes: set[ListKind]) -> None:
        """Notify the clients after a delay: changes that come together, as at a start, are announced once."""
        if not changes:
            return
        self._pending |= changes
        loop = asyncio.get_running_loop()
        if self._announcing is None:
            self._announcing = loop.call_later(_SETTLE_SECONDS, self._notify)
        soon = loop.time() + _ANNOUNCE_SECONDS
        if self._announcing.when() > soon and not any(member.is_starting for member, _ in self._subscribed.values()):
            self._announcing.cancel()
            self._announcing = loop.call_at(soon, self._notify)

    def _notify(self) -> None:
        self._announcing = None
        due, self._pending = self._pending, set()
        for change in due:
            self._changes.list_changed(change)

    def _update_subscriptions(self, uris: frozenset[str]) -> None:
        """Subscribe at the members to the resources that clients watch."""
        by_member: dict[int, set[str]] = {}
        tables = {id(table): table for table in (self.table(None), *self._tables.values())}
        for uri in uris:
            for table in tables.values():
                if (owner := table.resource(uri)) is not None:
                    by_member.setdefault(id(owner[0]), set()).add(owner[1])
        for number, (member, _) in self._subscribed.items():
            member.watch(self, frozenset(by_member.get(number, ())))
