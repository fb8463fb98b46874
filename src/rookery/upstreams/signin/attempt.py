"""One login while it runs: a person opens an address, and comes back or does not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.signin.helper import Helper
from rookery.upstreams.signin.messages import Asked, Errand, Granted, Step, Taken


@dataclass
class Attempt:
    """`taken` is called with what it came to."""

    helper: Helper
    errand: Errand
    taken: Callable[[Granted], None]
    steps: list[Step] = field(default_factory=list[Step])

    def __post_init__(self) -> None:
        self._tasks = TaskSet("login")
        self._asked: asyncio.Future[Asked] = asyncio.get_running_loop().create_future()
        self._given_up: str | None = None
        self._taken: asyncio.Future[str | None] | None = None
        self._work = self._tasks.start(self._run(), "run")

    @property
    def running(self) -> bool:
        return not self._work.done()

    async def asked(self) -> Asked:
        """What a person is to open; raises what went wrong before that."""
        await asyncio.wait([self._asked, self._work], return_when=asyncio.FIRST_COMPLETED)
        if self._asked.done():
            return self._asked.result()
        raise self._failure() or RookeryError("sign-in-failed", "the sign-in ended before anybody was asked")

    async def ended(self) -> None:
        """Returns once it is done; raises why it is not."""
        await asyncio.wait([self._work])
        if (failure := self._failure()) is not None:
            raise failure

    async def redirected(self, url: str) -> None:
        """A person says where the browser was sent to; raises why that is of no use."""
        if self.running:
            self._taken = asyncio.get_running_loop().create_future()
            self.helper.redirected(url)
            await asyncio.wait([self._taken, self._work], return_when=asyncio.FIRST_COMPLETED)
            if self._taken.done() and (why := self._taken.result()) is not None:
                raise RookeryError("invalid-input", f"this address is of no use: {why}", "copy the whole address")

    async def give_up(self, why: str) -> None:
        self._given_up = why
        await self._tasks.close()

    def _failure(self) -> RookeryError | None:
        if self._work.cancelled():
            return RookeryError("sign-in-failed", self._given_up or "the sign-in was given up", "begin again")
        return self._work.result()

    async def _run(self) -> RookeryError | None:
        try:
            outcome = await self.helper.run(self.errand, self._heard)
            assert isinstance(outcome, Granted)
            self.taken(outcome)
        except RookeryError as error:
            return error
        return None

    def _heard(self, told: Step | Asked | Taken) -> None:
        if isinstance(told, Step):
            self.steps.append(told)
        elif isinstance(told, Taken):
            if self._taken is not None and not self._taken.done():
                self._taken.set_result(told.why)
        elif not self._asked.done():
            self._asked.set_result(told)
