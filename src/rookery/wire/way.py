"""How calls of one tool get to a server and back without a task, for as long as nothing about them changes."""

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Raw

from rookery.wire.provider import Call
from rookery.wire.sent import Sent


class Way(Protocol):
    """For calls that differ in their id and their arguments alone."""

    @property
    def rounds(self) -> bool:
        """Whether a result that asks back is answered here, and not by the client."""
        ...

    def holds(self) -> bool:
        """Whether all that it was found by is still so."""
        ...

    def send(self, arguments: Raw, sent: Sent) -> bool:
        """Whether it could be sent at once; nothing has happened if it could not."""
        ...

    def answered(self) -> None:
        """One that was sent has its result."""
        ...

    def handle(self, call: Call, sent: Sent) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        """Wait for one that was sent, and answer it as a provider does."""
        ...


@runtime_checkable
class Ways(Protocol):
    """A provider that has some."""

    def way(self, call: Call) -> Way | None:
        """For calls like this one; whether it may be made was not looked at yet."""
        ...
