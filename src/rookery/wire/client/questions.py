"""Questions that a server asks its client.

Each one is answered once, by the caller it concerns. The number of concurrent questions is limited.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.tasks import TaskSet
from rookery.wire.client.inflight import CallListener, ClientAnswer, InFlightRequest, InFlightRequests
from rookery.wire.protocol.messages import (
    EMPTY_OBJECT,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Params,
    Request,
    RequestId,
    WireError,
    decode_object,
    encode_result,
)

logger = logging.getLogger("rookery.mcp.client")

MAX_QUESTIONS = 64
# A question that may concern something else than the calls in flight continues for so long after the last of them.
_GRACE_SECONDS = 30.0


class ServerQuestions:
    """Answers the questions of a server, each within `seconds`.

    `strays` counts questions that get no response: sent twice, or too many.
    """

    def __init__(self, in_flight: InFlightRequests, send: Callable[[bytes], Awaitable[None]], seconds: float) -> None:
        self.strays = 0
        self._in_flight = in_flight
        self._send = send
        self._seconds = seconds
        self._tasks = TaskSet("mcp questions")
        self._answering: dict[RequestId, asyncio.Task[None]] = {}

    def take(self, request: Request, request_id: RequestId | None) -> None:
        """Answer or refuse a question in a task. `request_id` is the id of our request with which it came, if known."""
        count = len(self._answering)
        if request.id in self._answering or count >= 2 * MAX_QUESTIONS:
            self.strays += 1
            return
        question = None
        if request.method == "ping":
            work = self._answer(request, None)
        elif count >= MAX_QUESTIONS:
            work = self._refuse(request, INTERNAL_ERROR, f"more than {MAX_QUESTIONS} concurrent questions")
        elif (target := self._in_flight.find_target(request.method, request_id)) is None:
            message = f"{request.method} cannot be assigned to a call: several clients have calls in flight"
            work = self._refuse(request, INVALID_REQUEST, message)
        else:
            question = _Question(*target, certain=request_id is not None, seconds=self._seconds)
            work = self._answer(request, question)
        task = self._answering[request.id] = self._tasks.start(work, request.method)
        if question is not None:
            question.set_task(task)

    def cancel(self, number: Any) -> None:
        """Stop answering a question that the server has cancelled."""
        task = self._answering.get(number) if isinstance(number, int | str) else None
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        await self._tasks.close()

    async def _answer(self, request: Request, question: "_Question | None") -> None:
        """Answer a request of the server. `question` is None if no listener is needed."""
        try:
            result = (
                EMPTY_OBJECT if question is None else await question.ask(request.method, decode_object(request.params))
            )
            response = encode_result(request.id, msgspec.json.encode(result))
        except WireError as error:
            response = error.encode(request.id)
        except Exception:
            logger.exception("answering %s failed", request.method)
            response = WireError(INTERNAL_ERROR, "the question could not be answered").encode(request.id)
        finally:
            self._answering.pop(request.id, None)
        await self._send(response)

    async def _refuse(self, request: Request, code: int, message: str) -> None:
        try:
            await self._send(WireError(code, message).encode(request.id))
        finally:
            self._answering.pop(request.id, None)


class _Question:
    """A question that a listener is answering. It ends soon after the calls that it may belong to."""

    def __init__(self, listener: CallListener, calls: list[InFlightRequest], *, certain: bool, seconds: float) -> None:
        """`certain` says that the question belongs to these calls for sure, and not only probably."""
        self._listener = listener
        self._calls = calls
        self._seconds = seconds
        self._grace = 0.0 if certain else _GRACE_SECONDS
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._calls_ended = False
        for call in calls:
            call.pause(self)

    def set_task(self, task: asyncio.Task[None]) -> None:
        self._task = task
        task.add_done_callback(self._close)

    async def ask(self, method: str, params: Params) -> ClientAnswer:
        try:
            return await _answer_in_time(self._listener, method, params, self._seconds)
        except asyncio.CancelledError:
            # The server may have cancelled the question as well, and then expects no response.
            if not self._calls_ended or self._task is None or self._task.uncancel() > 0:
                raise
            raise WireError(INTERNAL_ERROR, f"the call that {method} belongs to has ended") from None

    def on_request_ended(self, request: InFlightRequest) -> None:
        self._calls = [call for call in self._calls if call is not request]
        if not self._calls:
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._end)

    def _end(self) -> None:
        self._calls_ended = True
        if self._task is not None:
            self._task.cancel()

    def _close(self, task: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls:
            call.resume(self)


async def _answer_in_time(listener: CallListener, method: str, params: Params, seconds: float) -> ClientAnswer:
    """Return the listener's answer within a time limit: the limit of the call itself is stopped meanwhile."""
    try:
        async with asyncio.timeout(seconds):
            return await listener.answer(method, params)
    except TimeoutError:
        raise WireError(INTERNAL_ERROR, f"{method} was not answered within {seconds:g} s") from None


def decode_input_required(result: Raw) -> Params | None:
    """Return the members of a modern result that asks for input, or None for any other result."""
    # `find` is faster than `in`, which first checks whether its operand is an integer.
    if bytes(result).find(b"input_required") < 0:
        return None
    members = decode_object(result, "result")
    return members if members.get("resultType") == Raw(b'"input_required"') else None


async def answer_input_requests(members: Params, listener: CallListener, seconds: float) -> dict[str, Any]:
    """Answer the questions in the result of a modern server, each within `seconds`.

    Return the parameters to add to the next request.
    """
    requests = decode_object(members.get("inputRequests", Raw(b"{}")), "inputRequests")
    if len(requests) > MAX_QUESTIONS:
        raise WireError(INVALID_PARAMS, f"inputRequests has more than {MAX_QUESTIONS} questions")
    questions = {key: _decode_input_request(key, raw) for key, raw in requests.items()}
    answers = await _answer_all(
        {key: _answer_in_time(listener, *question, seconds) for key, question in questions.items()}
    )
    state = {"requestState": members["requestState"]} if "requestState" in members else {}
    return {"inputResponses": answers, **state}


def _decode_input_request(key: str, raw: Raw) -> tuple[str, Params]:
    members = decode_object(raw, key)
    try:
        method = msgspec.json.decode(members.get("method", Raw(b"null")), type=str)
    except msgspec.DecodeError:
        raise WireError(INVALID_PARAMS, f"inputRequests.{key} has no method") from None
    return method, decode_object(members.get("params", EMPTY_OBJECT))


async def _answer_all(questions: Mapping[str, Coroutine[Any, Any, ClientAnswer]]) -> dict[str, ClientAnswer]:
    """Return the answers by the same keys. The first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {key: group.create_task(work) for key, work in questions.items()}
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return {key: task.result() for key, task in tasks.items()}
