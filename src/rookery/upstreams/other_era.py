"""The second connection of a server that speaks both protocol eras, for calls that may ask their client something.

A server can ask as its connection allows: during the call in the handshake era, with the result in the stateless one.
So a call whose client can be asked goes over a connection of the client's own era, as it would without Rookery. All
other calls use the main connection.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from rookery.system.errors import RookeryError
from rookery.wire.client.client import Client
from rookery.wire.client.connect import ConnectionState, Era, EraRefused, ReconnectingClient
from rookery.wire.protocol import revisions
from rookery.wire.protocol.provider import Call

# Opens a connection in this era, or fails.
OpenInEra = Callable[[Literal["modern", "handshake"]], Awaitable[Client]]

_ASKED = frozenset(revisions.REQUIRED_CAPABILITIES.values())
# How often a server that fails in the other era, and never was connected in it, is tried beside a connection.
_MAX_ATTEMPTS = 2

logger = logging.getLogger("rookery.mcp.servers")


class OtherEra:
    """Opens the connection in the other era when a call needs it. `has_root` says that servers are told a root."""

    def __init__(self, name: str, open_connection: OpenInEra, clean: Callable[[str], str], *, has_root: bool) -> None:
        self._name = name
        self._open = open_connection
        self._clean = clean
        self._has_root = has_root
        self._era: Literal["modern", "handshake"] = "handshake"
        self._connection = ReconnectingClient(self._connect, self._on_state)
        self._main: Client | None = None
        # The main connection for which the other era was given up.
        self._refused_beside: Client | None = None
        self._was_connected = False
        self.stop = self._connection.stop
        self.close = self._connection.close
        self.fail = self._connection.fail

    @property
    def connected(self) -> Client | None:
        return self._connection.connected

    def is_needed(self, call: Call, main: Client, era: Era | None) -> bool:
        """Return whether a call needs the era that the main connection does not have, and the server may speak it.

        `era` is what is known of the server. A server of one era is asked once whether it speaks the handshake too.
        """
        is_modern = call.client.modern
        if is_modern is main.modern or main is self._refused_beside or (is_modern and era != "both") or era == "sse":
            return False
        return not _ASKED.isdisjoint(call.client.capabilities) or (self._has_root and not is_modern)

    async def get_client(self, main: Client) -> Client | None:
        """Return the client in the era that `main` does not have. Connect first if necessary; None if that fails."""
        self._main, self._era = main, "handshake" if main.modern else "modern"
        connected = self._connection.connected
        if connected is not None and connected.modern is main.modern:
            await self._connection.stop()  # the main connection has changed its era
        try:
            return await self._connection.get_client()
        except RookeryError:
            if not self._was_connected and self._connection.failures >= _MAX_ATTEMPTS:
                self._refused_beside = main
            return None

    async def _connect(self, known: Era | None) -> tuple[Client, Era]:
        try:
            client = await self._open(self._era)
        except EraRefused:
            self._refused_beside = self._main
            raise
        self._was_connected = True
        return client, self._era

    def _on_state(self, state: ConnectionState, error: str | None) -> None:
        if error is not None:
            logger.info("%s: no second connection in the era %s: %s", self._name, self._era, self._clean(error))
