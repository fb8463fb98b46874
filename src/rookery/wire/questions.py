"""What a server asks of its client: each question is answered once, by whom it concerns, and not too many at a time."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from rookery.system.tasks import TaskSet
from rookery.wire.asking import Answer, Listener
from rookery.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Id,
    Params,
    Request,
    WireError,
    encode_result,
    object_of,
)
from rookery.wire.running import InFlight, Place, Running

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("rookery.mcp.client")

AT_ONCE = 64


class Questions:
    """`strays` counts those that are not even refused: asked twice, or too many."""

    def __init__(self, in_flight: InFlight, say: Callable[[bytes], Awaitable[None]]) -> None:
        self.strays = 0
        self._in_flight = in_flight
        self._say = say
        self._tasks = TaskSet("mcp questions")
        self._answering: dict[Id, asyncio.Task[None]] = {}

    def take(self, request: Request, of: Id | None) -> None:
        """`of` is the id of our request with which it came, if that is known."""
        many = len(self._answering)
        if request.id in self._answering or many >= 2 * AT_ONCE:
            self.strays += 1
            return
        if request.method == "ping":
            work = self._answer(request, None)
        elif many >= AT_ONCE:
            work = self._refuse(request, INTERNAL_ERROR, f"more than {AT_ONCE} questions at the same time")
        elif (place := self._in_flight.place(request.method, of)) is None:
            told = f"it is not known whose question {request.method} is: several clients have calls in flight here"
            work = self._refuse(request, INVALID_REQUEST, told)
        else:
            work = self._answer(request, place)
        self._answering[request.id] = self._tasks.start(work, request.method)

    def take_back(self, number: Any) -> None:
        """The server does not want to know any more."""
        task = self._answering.get(number) if isinstance(number, int | str) else None
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        await self._tasks.close()

    async def _answer(self, request: Request, place: Place | None) -> None:
        """None where no listener is needed."""
        try:
            result = Raw(b"{}") if place is None else await self._ask(request, *place)
            made = encode_result(request.id, msgspec.json.encode(result))
        except WireError as error:
            made = error.encoded(request.id)
        except Exception:
            logger.exception("answering %s failed", request.method)
            made = WireError(INTERNAL_ERROR, "could not be answered").encoded(request.id)
        finally:
            self._answering.pop(request.id, None)
        await self._say(made)

    async def _refuse(self, request: Request, code: int, why: str) -> None:
        try:
            await self._say(WireError(code, why).encoded(request.id))
        finally:
            self._answering.pop(request.id, None)

    async def _ask(self, request: Request, listener: Listener, calls: list[Running]) -> Answer:
        for call in calls:
            call.pause()
        try:
            return await listener.answer(request.method, object_of(request.params))
        finally:
            for call in calls:
                call.resume()


async def answer_inputs(members: Params, listener: Listener) -> dict[str, Answer]:
    """The answers to what a modern server asks in a result."""
    asked = object_of(members.get("inputRequests", Raw(b"{}")), "inputRequests")
    if len(asked) > AT_ONCE:
        raise WireError(INVALID_PARAMS, f"inputRequests has more than {AT_ONCE} questions")
    answers: dict[str, Answer] = {}
    for key, raw in asked.items():
        one = object_of(raw, key)
        try:
            method = msgspec.json.decode(one.get("method", Raw(b"null")), type=str)
        except msgspec.DecodeError:
            raise WireError(INVALID_PARAMS, f"inputRequests.{key} has no method") from None
        answers[key] = await listener.answer(method, object_of(one.get("params", Raw(b"{}"))))
    return answers
