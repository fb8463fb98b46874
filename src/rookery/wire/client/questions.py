"""What a server asks of its client: each question is answered once, by whom it concerns, and not too many at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.tasks import TaskSet
from rookery.wire.asking import Answer, Listener
from rookery.wire.jsonrpc import (
    EMPTY,
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
from rookery.wire.running import InFlight, Running

logger = logging.getLogger("rookery.mcp.client")

AT_ONCE = 64
# A question that may have been about something else than the calls that ran goes on for so long after the last of them.
_GRACE_SECONDS = 30.0


class Questions:
    """`strays` counts those that are not even refused: asked twice, or too many. Each has `seconds` for its answer."""

    def __init__(self, in_flight: InFlight, say: Callable[[bytes], Awaitable[None]], seconds: float) -> None:
        self.strays = 0
        self._in_flight = in_flight
        self._say = say
        self._seconds = seconds
        self._tasks = TaskSet("mcp questions")
        self._answering: dict[Id, asyncio.Task[None]] = {}

    def take(self, request: Request, of: Id | None) -> None:
        """`of` is the id of our request with which it came, if that is known."""
        many = len(self._answering)
        if request.id in self._answering or many >= 2 * AT_ONCE:
            self.strays += 1
            return
        question = None
        if request.method == "ping":
            work = self._answer(request, None)
        elif many >= AT_ONCE:
            work = self._refuse(request, INTERNAL_ERROR, f"more than {AT_ONCE} questions at the same time")
        elif (place := self._in_flight.place(request.method, of)) is None:
            told = f"it is not known whose question {request.method} is: several clients have calls in flight here"
            work = self._refuse(request, INVALID_REQUEST, told)
        else:
            question = _Question(*place, certain=of is not None, seconds=self._seconds)
            work = self._answer(request, question)
        task = self._answering[request.id] = self._tasks.start(work, request.method)
        if question is not None:
            question.answered_by(task)

    def take_back(self, number: Any) -> None:
        """The server does not want to know any more."""
        task = self._answering.get(number) if isinstance(number, int | str) else None
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        await self._tasks.close()

    async def _answer(self, request: Request, question: "_Question | None") -> None:
        """None where no listener is needed."""
        try:
            result = EMPTY if question is None else await question.ask(request.method, object_of(request.params))
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


class _Question:
    """One that a listener is answering. It does not long outlive the calls for which it may have been asked."""

    def __init__(self, listener: Listener, calls: list[Running], *, certain: bool, seconds: float) -> None:
        """`certain`: that it is about this call is known, and not only likely."""
        self._listener = listener
        self._calls = calls
        self._seconds = seconds
        self._grace = 0.0 if certain else _GRACE_SECONDS
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        for call in calls:
            call.pause(self)

    def answered_by(self, task: asyncio.Task[None]) -> None:
        self._task = task
        task.add_done_callback(self._close)

    async def ask(self, method: str, params: Params) -> Answer:
        try:
            return await _answered(self._listener, method, params, self._seconds)
        except asyncio.CancelledError:
            # The server may have taken it back as well, and want no answer.
            if not self._over or self._task is None or self._task.uncancel() > 0:
                raise
            raise WireError(INTERNAL_ERROR, f"the call for which {method} was asked has ended") from None

    def ended(self, running: Running) -> None:
        self._calls = [call for call in self._calls if call is not running]
        if not self._calls:
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._end)

    def _end(self) -> None:
        self._over = True
        if self._task is not None:
            self._task.cancel()

    def _close(self, task: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls:
            call.resume(self)


async def _answered(listener: Listener, method: str, params: Params, seconds: float) -> Answer:
    """Who never answers must not keep a call for ever: while a question waits, its time stands still."""
    try:
        async with asyncio.timeout(seconds):
            return await listener.answer(method, params)
    except TimeoutError:
        raise WireError(INTERNAL_ERROR, f"{method} was not answered within {seconds:g} s") from None


def inputs_asked(result: Raw) -> Params | None:
    """The members of a modern result that asks back, None for any other."""
    # Not with `in`, which tries first whether it is asked for a number.
    if bytes(result).find(b"input_required") < 0:
        return None
    members = object_of(result, "result")
    return members if members.get("resultType") == Raw(b'"input_required"') else None


async def answer_inputs(members: Params, listener: Listener, seconds: float) -> dict[str, Any]:
    """What a modern server gets for what it asks in a result: the answers, each within so many seconds."""
    asked = object_of(members.get("inputRequests", Raw(b"{}")), "inputRequests")
    if len(asked) > AT_ONCE:
        raise WireError(INVALID_PARAMS, f"inputRequests has more than {AT_ONCE} questions")
    questions = {key: _asked(key, raw) for key, raw in asked.items()}
    answers = await _all_at_once({key: _answered(listener, *one, seconds) for key, one in questions.items()})
    state = {"requestState": members["requestState"]} if "requestState" in members else {}
    return {"inputResponses": answers, **state}


def _asked(key: str, raw: Raw) -> tuple[str, Params]:
    one = object_of(raw, key)
    try:
        method = msgspec.json.decode(one.get("method", Raw(b"null")), type=str)
    except msgspec.DecodeError:
        raise WireError(INVALID_PARAMS, f"inputRequests.{key} has no method") from None
    return method, object_of(one.get("params", EMPTY))


async def _all_at_once(questions: Mapping[str, Coroutine[Any, Any, Answer]]) -> dict[str, Answer]:
    """The answers by the same keys. The first that fails takes the others back."""
    try:
        async with asyncio.TaskGroup() as group:
            asking = {key: group.create_task(work) for key, work in questions.items()}
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return {key: task.result() for key, task in asking.items()}
