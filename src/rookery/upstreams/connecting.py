"""From a definition to a client that speaks with its server."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import rookery
from rookery.gateway.relay import roots
from rookery.system.buffers import Ring
from rookery.system.errors import RookeryError
from rookery.upstreams.connector import Connector
from rookery.upstreams.definition import Definition
from rookery.upstreams.waiting import NotYet, needs_approval
from rookery.wire.asking import Notified
from rookery.wire.channel import Channel
from rookery.wire.client import Client
from rookery.wire.connect import Era, connect
from rookery.wire.jsonrpc import METHOD_NOT_FOUND, WireError
from rookery.wire.writing import Identity

logger = logging.getLogger("rookery.upstreams")

# Whoever may be behind us is spoken for, so that a server can ask; who cannot be asked is answered for.
IDENTITY = Identity(
    {"name": "rookery", "version": rookery.__version__},
    {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
)
_LOG_SECONDS = 5.0


@dataclass(frozen=True)
class Opening:
    """Opens the connections of one server; `checkout` is where it was defined, `directory` where it works."""

    connector: Connector
    definition: Definition
    directory: Path
    checkout: Path | None
    errors: Ring

    @cached_property
    def root(self) -> Path | None:
        """The workspace it works for; none where it is for all of them."""
        return None if self.checkout is None or self.definition.everywhere else self.directory

    async def open(self, known: Era | None, notified: Notified) -> tuple[Client, Era]:
        # Asked right before: a script may be another one by now than the one that was approved.
        if not await self.connector.approved(self.definition, self.checkout):
            raise needs_approval(self.definition.name)

        def make(channel: Channel) -> Client:
            timeouts = replace(self.definition.timeouts, question=self.connector.patience)
            return Client(channel, IDENTITY, timeouts, answerer=self._answer, notified=notified)

        newer, older = self.connector.channels(self.definition, self.directory, self.errors)
        try:
            return await connect(make, newer, older=older, known=known)
        except RookeryError as error:
            asked = [one.challenge for one in (newer, older) if one is not None and one.challenge is not None]
            if asked:
                raise self.connector.signins.refused(self.definition, error, asked[0]) from None
            raise

    def refused(self, error: RookeryError) -> NotYet:
        """What a server waits for that was connected and wants to know who asks."""
        return self.connector.signins.refused(self.definition, error, connected=True)

    async def hear_logs(self, client: Client) -> None:
        """Every caller has a level of its own, so that the server is asked for everything. Nobody waits for that."""
        if client.modern or "logging" not in client.capabilities:
            return
        try:
            await client.request("logging/setLevel", {"level": "debug"}, seconds=_LOG_SECONDS, what="start-up")
        except (WireError, RookeryError) as error:
            logger.debug("%s: no level of log can be set: %s", self.definition.name, error.code)

    async def _answer(self, method: str, params: Any) -> Mapping[str, Any]:
        """A question that belongs to no call."""
        if method == "roots/list":
            return roots(self.root)
        raise WireError(METHOD_NOT_FOUND, f"no call is under way that could answer {method}")
