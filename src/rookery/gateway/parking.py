"""Calls that wait for an answer of their client, which has no request open meanwhile: so many, and for so long."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from rookery.gateway.rounds import Result, Rounds, Work
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.tasks import TaskSet
from rookery.wire.calls import bound_to, given_inputs, input_required
from rookery.wire.jsonrpc import INVALID_PARAMS, WireError, text_of
from rookery.wire.provider import Ask, Call
from rookery.wire.sealing import Seal

logger = logging.getLogger("rookery.mcp.gateway")

SECONDS = 600.0
MOST = 256
MOST_EACH = 32

# Tells a state of ours from one that a server made.
_OURS = "rookery."


@dataclass(eq=False)
class _Stay:
    """One call. `place` is where it was made; while its client has a request open, it has no end."""

    rounds: Rounds
    place: object
    bound: str
    id: str = field(default_factory=new_id)
    round: int = 0
    until: float | None = None


class Parking:
    """For all views. A call takes its place with its first question, and keeps it until it has ended."""

    def __init__(
        self,
        seconds: float = SECONDS,
        most: int = MOST,
        each: int = MOST_EACH,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.seconds = seconds
        self._most = most
        self._each = each
        self._clock = clock
        self._seal = Seal(clock, seconds)
        self._stays: dict[str, _Stay] = {}
        self._tasks = TaskSet("calls in rounds")
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._stays)

    def knows(self, call: Call) -> bool:
        """Whether this is the next request of a call that was asked something here."""
        return "requestState" in call.params and text_of(call.params, "requestState").startswith(_OURS)

    async def begin(self, place: object, call: Call, work: Work) -> Result:
        """A call that may be asked something; `work` answers it."""
        rounds = Rounds(call, work, self._tasks)
        asks = await rounds.turn(call)
        return rounds.result() if asks is None else self._park(self._admitted(rounds, place, call), asks)

    async def go_on(self, place: object, call: Call) -> Result:
        """With one that was asked something."""
        answers = given_inputs(call.params)
        stay = self._found(place, call)
        stay.until = None
        stay.rounds.answer(answers)
        try:
            asks = await stay.rounds.turn(call)
        except asyncio.CancelledError:
            self._stays.pop(stay.id, None)
            raise
        if asks is not None:
            return self._park(stay, asks)
        self._stays.pop(stay.id, None)
        return stay.rounds.result()

    def leave(self, where: object) -> None:
        """Give up what was made at a place, or came over a connection, that is no longer there."""
        for stay in [one for one in self._stays.values() if where in (one.place, one.rounds.connection)]:
            self._end(stay)

    def expire(self) -> None:
        """Give up those whose client has not come back in time, and ring again for the next."""
        self._timer = None
        now = self._clock.monotonic()
        for stay in [one for one in self._stays.values() if one.until is not None and one.until <= now]:
            logger.info("%s was not answered within %g s and is given up", stay.rounds.method, self.seconds)
            self._end(stay)
        self._ring()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._stays.clear()
        await self._tasks.close()

    def _park(self, stay: _Stay, asks: Mapping[str, Ask]) -> Result:
        stay.round += 1
        stay.until = self._clock.monotonic() + self.seconds
        self._ring()
        state = {"call": Raw(msgspec.json.encode(stay.id)), "round": Raw(msgspec.json.encode(stay.round))}
        return input_required(asks, _OURS + self._seal.close(state, stay.bound))

    def _admitted(self, rounds: Rounds, place: object, call: Call) -> _Stay:
        own = sum(one.rounds.owner == rounds.owner for one in self._stays.values())
        if len(self._stays) < self._most and own < self._each:
            stay = _Stay(rounds, place, bound_to(call))
            self._stays[stay.id] = stay
            return stay
        rounds.give_up()
        many = f"{own} calls of yours" if own >= self._each else f"{len(self._stays)} calls"
        raise RookeryError(
            "too-many-questions",
            f"the server asked something, but {many} wait for their client's answer already, and this one was given up",
            f"answer those first; each is given up after {self.seconds:g} s",
        )

    def _found(self, place: object, call: Call) -> _Stay:
        sealed = text_of(call.params, "requestState").removeprefix(_OURS)
        state = self._seal.open(sealed, bound_to(call))
        stay = self._stays.get(msgspec.json.decode(state["call"], type=str))
        if stay is None or stay.place is not place:
            raise WireError(INVALID_PARAMS, "the call of this requestState is over; call again without it")
        if stay.until is None or stay.round != msgspec.json.decode(state["round"], type=int):
            raise WireError(INVALID_PARAMS, "this requestState was used already; only the newest of a call counts")
        return stay

    def _end(self, stay: _Stay) -> None:
        self._stays.pop(stay.id, None)
        stay.rounds.give_up()

    def _ring(self) -> None:
        """In time for the first that expires."""
        ends = [stay.until for stay in self._stays.values() if stay.until is not None]
        if ends and self._timer is None:
            left = max(0.0, min(ends) - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self.expire)
