"""Who we are to one server: the token of its sign-in, renewed by itself before its time is over, or when refused."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.signin.grants import Grants, Subject
from rookery.upstreams.signin.messages import Errand, Grant, Granted, Outcome, Terms
from rookery.wire.pauses import pause

logger = logging.getLogger("rookery.upstreams")

# A token is renewed when a fifth of its time is left, but not earlier than it must be.
_LEFT = 0.2
_EARLIEST_SECONDS = 300.0


@dataclass(frozen=True)
class Demand:
    """What a server said when it last refused us."""

    status: int = 401
    challenge: str = ""


class Credentials:
    """Shared by all connections to one server. `send` runs an errand in a process of its own."""

    def __init__(
        self,
        subject: Subject,
        terms: Terms,
        grants: Grants,
        send: Callable[[Errand], Awaitable[Outcome]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.subject, self.terms = subject, terms
        self.demand: Demand | None = None
        # Whether a sign-in would have a client; None where nobody has looked yet.
        self.registrable: bool | None = None
        self._grants, self._send, self._clock = grants, send, clock
        self._tasks = TaskSet(f"sign-in {subject.name}")
        self._renewing: asyncio.Task[bool] | None = None
        self._failures = 0
        self._again_at = 0.0
        self._renew_at: float | None = None
        self._header: str | None = None
        self._plan(self.grant)

    @property
    def grant(self) -> Grant | None:
        """One that another client got than the one that is configured now counts for nothing."""
        found = self._grants.get(self.subject)
        if found is None or self.terms.client_id in (None, found.client.get("client_id")):
            return found
        return None

    def take(self, grant: Grant) -> None:
        self._grants.put(self.subject, grant)
        self.demand, self.registrable, self._failures, self._again_at = None, True, 0, 0.0
        self._plan(grant)

    def drop(self) -> None:
        self._grants.remove(self.subject)
        self._plan(None)

    def look_again(self) -> None:
        """Another one for the same server has signed in or out."""
        self._plan(self.grant)

    async def close(self) -> None:
        await self._tasks.close()

    # ---- what a channel asks for

    def header(self) -> str | None:
        if self._renew_at is not None and self._clock.wall() >= self._renew_at:
            self._renew_at = None
            self._renewal()
        return self._header

    async def refused(self, sent: str | None, status: int, challenge: str) -> bool:
        if self._header != sent:
            return self._header is not None  # renewed while this was on its way
        if status == 401 and await self._renewed():
            return True
        self.demand = Demand(status, challenge)
        return False

    # ---- renewing

    async def _renewed(self) -> bool:
        """However many ask, it is done once; who leaves disturbs nobody."""
        renewal = self._renewal()
        if renewal is None:
            return False
        await asyncio.wait([renewal])
        return not renewal.cancelled() and renewal.result()

    def _renewal(self) -> "asyncio.Task[bool] | None":
        if self._renewing is not None and not self._renewing.done():
            return self._renewing
        grant = self.grant
        if grant is None or not grant.renewable or self._clock.monotonic() < self._again_at:
            return None
        self._renewing = self._tasks.start(self._renew(grant), "renew")
        return self._renewing

    async def _renew(self, grant: Grant) -> bool:
        errand = Errand(mode="refresh", url=self.subject.url, terms=self.terms, grant=grant)
        try:
            outcome = await self._send(errand)
        except RookeryError as error:
            self._failures += 1
            self._again_at = self._clock.monotonic() + pause(self._failures)
            logger.warning('the sign-in of MCP server "%s" was not renewed: %s', self.subject.name, error.message)
            if error.code == "needs-auth" and self.grant is grant:
                # It is over for good; what is known of the client is kept for the next one.
                kept = {name: value for name, value in grant.tokens.items() if name != "refresh_token"}
                self._grants.put(self.subject, replace(grant, tokens=kept))
            return False
        if not isinstance(outcome, Granted) or self.grant is not grant:
            return False  # meanwhile somebody signed in, or out
        self.take(outcome.grant)
        logger.info('the sign-in of MCP server "%s" was renewed', self.subject.name)
        return True

    def _plan(self, grant: Grant | None) -> None:
        self._header = f"Bearer {grant.access_token}" if grant is not None else None
        self._renew_at = None
        if grant is not None and grant.expires_at is not None and grant.renewable:
            left = grant.expires_at - self._clock.wall()
            self._renew_at = grant.expires_at - min(left * _LEFT, _EARLIEST_SECONDS)
