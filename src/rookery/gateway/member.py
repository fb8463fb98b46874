"""The one contract between a view and what it shows: a toolset of ours, or a server behind us."""

from asyncio import Future
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Raw

from rookery.gateway.catalog import Catalog
from rookery.wire.provider import Call, Changes
from rookery.wire.sent import Sent


class Member(Protocol):
    """One provider of a view."""

    @property
    def name(self) -> str: ...

    @property
    def ours(self) -> bool:
        """Whether it is a toolset of Rookery's own, whose names carry no prefix."""
        ...

    @property
    def changes(self) -> Changes:
        """Tells when its lists or its resources change, and when it comes or goes."""
        ...

    @property
    def catalog(self) -> Catalog | None:
        """What it offers; None while that is not known, or while it must not be shown."""
        ...

    def use(self) -> Future[bool] | None:
        """Somebody wants its catalog: what to wait for until it is current, None where it is.

        The future never fails; it tells whether the provider could be reached.
        """
        ...

    async def handle(self, call: Call, params: Mapping[str, Any]) -> Raw | Mapping[str, Any]:
        """Answer a call, with parameters that name things as this provider does."""
        ...

    def watch(self, watcher: object, uris: frozenset[str]) -> None:
        """Tell of changes of these resources from now on; `watcher` says for whom, so that it can be changed."""
        ...


class Through(Protocol):
    """How calls that are alike get to a member and back without a task; see `wire/way.py`."""

    @property
    def rounds(self) -> bool: ...

    def holds(self) -> bool: ...

    def send(self, arguments: Raw, sent: Sent) -> bool: ...

    def answered(self) -> None: ...

    def handle(
        self, call: Call, params: Mapping[str, Any], sent: Sent
    ) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]: ...


@runtime_checkable
class Passages(Protocol):
    """A member that can be called so."""

    @property
    def asks(self) -> bool:
        """Whether it may ask something in the middle of a call, and not only with its result."""
        ...

    def passage(self, call: Call, params: Mapping[str, Any]) -> Through | None:
        """For calls like this one, if one could be sent now."""
        ...
