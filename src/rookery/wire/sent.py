"""A request that was sent with no task to wait for its answer: most answers need none."""

import asyncio
import math
from collections.abc import Callable

from msgspec import Raw

from rookery.wire.asking import Answer, Listener
from rookery.wire.channel import Posting
from rookery.wire.jsonrpc import Notification, Params, Response
from rookery.wire.running import InFlight, Running


class Sent(Running):
    """Told of its result by a plain call. For whatever else happens a task is called for, which goes on with it.

    That task makes the same request of the same client, saying that it is `sent`. From then on it is waited for, timed
    and cancelled as every other.
    """

    __slots__ = ("_answer", "_attended", "_channel", "_heard", "_listener", "_over")

    @property
    def caller(self) -> str:
        raise NotImplementedError

    def finishes(self, result: Raw) -> bool:
        """Whether it is all over with this result; then it was released."""
        raise NotImplementedError

    def call_task(self) -> None:
        """Have a task started that goes on with it."""
        raise NotImplementedError

    def post(self, channel: Posting, in_flight: InFlight, number: int, message: bytes, seconds: float) -> bool:
        """Whether it was sent. Nothing has happened where it was not."""
        if not channel.post(number, message, self):
            return False
        super().__init__(in_flight, number, seconds, in_flight.due_in(seconds), self)
        in_flight.running[number] = self
        self._channel = channel
        self._answer: asyncio.Future[Response] | None = None
        self._listener: Listener | None = None
        self._over: asyncio.Future[None] | None = None
        return True

    def release(self) -> None:
        """Nobody waits for it any more, or nobody but the task that goes on with it, longer than its client waits."""
        if self._task is None or self._task.done() or self.number not in self._in_flight.running:
            self._channel.forget(self.number)
            self._leave()
            self.listener = None  # which is itself
        if self._answer is not None:
            self._attended.cancel()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def over(self) -> asyncio.Future[None]:
        """Done once nobody waits for it any more."""
        if self._over is None:
            self._over = self._in_flight.loop.create_future()
        return self._over

    # ---- told by the channel, as a future is

    def done(self) -> bool:
        return self._answer is not None and self._answer.done()

    def set_result(self, result: Response, /) -> None:
        if self._answer is None and result.error is None and self.finishes(result.result):
            return
        self.go_on().set_result(result)

    def set_exception(self, exception: Exception, /) -> None:
        answer = self.go_on()
        answer.set_exception(exception)
        answer.exception()  # Told by whoever waits, if anybody does.

    # ---- gone on with by a task

    def go_on(self) -> asyncio.Future[Response]:
        """In a task, from now on. What comes before that is there is kept for it."""
        if self._answer is None:
            loop = self._in_flight.loop
            self._answer, self._attended = loop.create_future(), loop.create_future()
            self._heard: list[Notification] = []
            self.call_task()
        return self._answer

    def attended(self, listener: Listener | None) -> "Sent":
        """The task is there; it enters this, and waits for the answer."""
        self._listener = listener
        if listener is not None:
            for message in self._heard:
                listener.notified(message)
        self._attended.set_result(None)
        return self

    async def answered(self) -> Response:
        try:
            return await self.go_on()
        finally:
            self._channel.forget(self.number)

    def end(self) -> None:
        self.due = math.inf
        if self._task is not None:
            super().end()
        else:
            self._when_attended(self.end)

    def cancel(self, reason: str | None = None) -> None:
        if self._task is not None:
            self._task.cancel(reason)
        else:
            self._when_attended(lambda: self.cancel(reason))

    def _when_attended(self, call: Callable[[], None]) -> None:
        self.go_on()
        self._attended.add_done_callback(lambda attended: None if attended.cancelled() else call())

    # ---- the listener of the request

    def progressed(self, params: Params) -> None:
        """Whoever wants to hear of progress has a task from the beginning."""
        if not self._questions:
            self.allow(self.seconds)

    def notified(self, message: Notification) -> None:
        self.go_on()
        if self._listener is not None:
            self._listener.notified(message)
        else:
            self._heard.append(message)

    async def answer(self, method: str, params: Params) -> Answer:
        self.go_on()
        await asyncio.shield(self._attended)
        assert self._listener is not None
        return await self._listener.answer(method, params)
