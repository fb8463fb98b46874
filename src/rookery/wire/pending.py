"""Requests that wait for their answers on a connection that carries messages both ways."""

import asyncio
from collections.abc import Awaitable

from rookery.wire.channel import Heard, Waiting
from rookery.wire.jsonrpc import Id, Message, Response


class Pending:
    """`strays` counts answers that nobody waits for: late, twice, or to an id that was never used."""

    def __init__(self) -> None:
        self.strays = 0
        self._waiting: dict[Id, Waiting] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    async def answer(self, id_: Id, sending: Awaitable[None] | None) -> Response:
        """Wait until a request is sent, if it is not yet, and for the answer with its id."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Response] = self._loop.create_future()
        self._waiting[id_] = waiting
        try:
            if sending is not None:
                await sending
            return await waiting
        finally:
            self._waiting.pop(id_, None)
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # Told already, by whoever noticed it first.

    def wait(self, id_: Id, waiting: Waiting) -> None:
        """Have it told of the answer, until `forget`."""
        self._waiting[id_] = waiting

    def forget(self, id_: Id) -> None:
        self._waiting.pop(id_, None)

    def take(self, messages: list[Message], heard: Heard) -> None:
        """Give each message to whom it belongs."""
        for message in messages:
            if not isinstance(message, Response):
                heard(message, None)
            elif (waiting := self._waiting.get(message.id)) is not None and not waiting.done():
                waiting.set_result(message)
            else:
                self.strays += 1

    def fail(self, error: Exception) -> None:
        """No answer will come any more."""
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(error)
