"""The way of calls to a connected server that need not wait for anything."""

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from rookery.gateway.legs import with_meta
from rookery.wire.channel import Posting
from rookery.wire.client import Client
from rookery.wire.provider import Call
from rookery.wire.sent import Sent

if TYPE_CHECKING:
    from rookery.upstreams.server import Server

# Where a call was sent already, and as what.
Begun = tuple[Client, Sent] | tuple[None, None]
NEW: Begun = None, None

# Who calls matters only to servers that are for one caller at a time, and these have no passages.
_ANYBODY = ""


class Passage:
    """For calls like one of them, over one connection. It holds as long as that one."""

    __slots__ = ("_channel", "_client", "_server", "_written", "rounds")

    def __init__(
        self, server: "Server", client: Client, channel: Posting, call: Call, params: Mapping[str, Any]
    ) -> None:
        self._server = server
        self._client = client
        self._channel = channel
        self._written = client.template(call.method, with_meta(call, params, client), call.client.capabilities)
        self.rounds = client.modern and not call.client.modern

    def holds(self) -> bool:
        return self._server.client is self._client and not self._server.held

    def send(self, arguments: Raw, sent: Sent) -> bool:
        if not self._server.turnstile.enters(_ANYBODY):
            return False
        client = self._client
        number = next(client.numbers)
        message = self._written((number, arguments, number))
        if sent.post(self._channel, client.in_flight, number, message, client.timeouts.execution):
            return True
        self._server.turnstile.leave(_ANYBODY)
        return False

    def answered(self) -> None:
        self._server.turnstile.leave(_ANYBODY)
        self._server.touch()

    def handle(self, call: Call, params: Mapping[str, Any], sent: Sent) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        return self._server.handle(call, params, (self._client, sent))


def passage_to(server: "Server", client: Client | None, call: Call, params: Mapping[str, Any]) -> Passage | None:
    """None where it would have to wait for something, or might."""
    if client is None or server.held or server.turnstile.exclusive or not isinstance(client.channel, Posting):
        return None
    return Passage(server, client, client.channel, call, params)
