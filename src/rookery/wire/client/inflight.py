"""Requests in flight on one connection: their time limits, and who receives the server's messages.

Most requests are awaited by a task. A `PostedRequest` has no task, since most responses need none. For anything other
than a plain result, a task is started that continues the request.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from msgspec import Raw

from rookery.wire.client.transport import PostingTransport
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import Notification, Params, RequestId, Response

# Notifications that concern the whole connection, even if they arrive on the stream of one call.
CONNECTION_NOTIFICATIONS = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
# Notifications that belong to a call, even if they do not name it.
CALL_NOTIFICATIONS = frozenset({"notifications/message", "notifications/elicitation/complete"})

ClientAnswer = Mapping[str, Any] | Raw
AnswerQuestion = Callable[[str, Params], Awaitable[ClientAnswer]]
HandleNotification = Callable[[Notification], None]

# Timers may fire this much too early.
_TIMER_SLACK = 0.001


class CallListener(Protocol):
    """Receives the messages that belong to a request."""

    @property
    def caller(self) -> str:
        """Equal for requests of the same client. Empty for a request that is not a call."""
        ...

    def on_progress(self, params: Params) -> None:
        """Handle progress. The progress token in `params` is ours; the listener replaces it."""
        ...

    def on_notification(self, message: Notification) -> None:
        """Handle a log message or another notification that belongs to the call."""
        ...

    async def answer(self, method: str, params: Params) -> ClientAnswer:
        """Answer roots/list, sampling/createMessage or elicitation/create. May raise WireError."""
        ...


@dataclass(frozen=True)
class DefaultListener:
    """The listener for calls without their own, and for messages while no call is in flight."""

    answer_question: AnswerQuestion
    handle_notification: HandleNotification
    caller: str = "ourselves"

    def on_progress(self, params: Params) -> None:
        """Ignore progress, apart from the time limit that it extends."""

    def on_notification(self, message: Notification) -> None:
        self.handle_notification(message)

    async def answer(self, method: str, params: Params) -> ClientAnswer:
        return await self.answer_question(method, params)


class PendingQuestion(Protocol):
    """A question of the server that belongs to a request, or to one of several."""

    def on_request_ended(self, request: "InFlightRequest") -> None:
        """Handle the end of a request that the question may belong to."""
        ...


class InFlightRequest:
    """A request that is awaited inside a `with` block. Raises TimeoutError there when it is `due`."""

    __slots__ = (
        "_cancelling",
        "_expired",
        "_in_flight",
        "_questions",
        "_task",
        "due",
        "listener",
        "number",
        "seconds",
    )

    def __init__(
        self,
        in_flight: "InFlightRequests",
        number: RequestId,
        seconds: float | None,
        due: float,
        listener: CallListener | None,
    ) -> None:
        self.listener = listener
        self.seconds = seconds
        self.due = due
        self._in_flight = in_flight
        self.number = number
        self._questions: tuple[PendingQuestion, ...] = ()
        self._expired = False
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    def __enter__(self) -> None:
        self._task = asyncio.current_task(self._in_flight.loop)
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._in_flight.requests[self.number] = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        # The task may have been cancelled for another reason as well.
        task = self._task if self._expired else None
        if task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _leave(self) -> None:
        if self._in_flight.requests.pop(self.number, None) is not None:
            for question in self._questions:
                question.on_request_ended(self)

    def expire(self) -> None:
        """End the request by a time-out."""
        if self._task is not None and not self._expired and self.number in self._in_flight.requests:
            self._expired = True
            self.due = math.inf
            self._task.cancel()

    def set_limit(self, seconds: float | None) -> None:
        """Set the time limit to `seconds` from now. None means no limit."""
        if self._expired:
            return
        self.due = math.inf if seconds is None else self._in_flight.loop.time() + seconds
        self._in_flight.ensure_timer(self.due)

    def on_progress(self, params: Params) -> None:
        """Restart the time limit and pass the progress on."""
        if not self._questions:
            self.set_limit(self.seconds)
        if self.listener is not None:
            self.listener.on_progress(params)

    def pause(self, question: "PendingQuestion") -> None:
        """Stop the time limit while a question of the server is being answered."""
        self._questions += (question,)
        self.due = math.inf

    def resume(self, question: "PendingQuestion") -> None:
        """Start the time limit again when the last question is answered."""
        self._questions = tuple(pending for pending in self._questions if pending is not question)
        if not self._questions:
            self.set_limit(self.seconds)


MessageTarget = tuple[CallListener, list[InFlightRequest]]


class InFlightRequests:
    """All requests in flight, with one timer: most time limits are never reached and do not touch it."""

    def __init__(self, default_listener: DefaultListener) -> None:
        self.loop = asyncio.get_running_loop()
        self.requests: dict[RequestId, InFlightRequest] = {}
        # How many messages could not be assigned to a caller, by method.
        self.unassigned: Counter[str] = Counter()
        self._default_listener = default_listener
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = math.inf

    def begin(
        self, number: RequestId, seconds: float | None, remaining: float | None, listener: CallListener | None
    ) -> InFlightRequest:
        """Return a request that has `remaining` seconds now, and `seconds` after each progress notification."""
        return InFlightRequest(
            self, number, seconds, math.inf if remaining is None else self.compute_due(remaining), listener
        )

    def compute_due(self, seconds: float) -> float:
        """Return the time that is `seconds` from now, and make sure that the timer fires then."""
        due = self.loop.time() + seconds
        if due < self._fires_at:
            self.ensure_timer(due)
        return due

    def end_all(self) -> None:
        """End all requests by a time-out."""
        for request in list(self.requests.values()):
            request.expire()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._fires_at = math.inf

    def ensure_timer(self, due: float) -> None:
        """Make sure that the timer fires at `due` or earlier."""
        if due >= self._fires_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = due
        self._timer = self.loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._fires_at = math.inf
        now = self.loop.time() + _TIMER_SLACK
        for request in list(self.requests.values()):
            if request.due <= now:
                request.expire()
        self.ensure_timer(min((request.due for request in self.requests.values()), default=math.inf))

    def find_target(self, method: str, request_id: RequestId | None) -> MessageTarget | None:
        """Return the listener for a message of the server, and the calls that it may concern.

        Return None if the message does not name a request and the calls in flight belong to several clients.
        """
        request = self.requests.get(request_id) if request_id is not None else None
        if request is not None:
            return request.listener or self._default_listener, [request]
        calls = [call for call in self.requests.values() if call.listener is not None and call.listener.caller]
        if not calls:
            return self._default_listener, []
        listeners = {call.listener.caller: call.listener for call in calls if call.listener is not None}
        if len(listeners) == 1:
            return listeners.popitem()[1], calls
        self.unassigned[
            method if method in revisions.REQUIRED_CAPABILITIES or method in CALL_NOTIFICATIONS else "others"
        ] += 1
        return None

    def diagnosis(self) -> str:
        """Return a description of the messages that could not be assigned, for people."""
        if not self.unassigned:
            return ""
        counts = ", ".join(f"{method} {count} times" for method, count in self.unassigned.most_common())
        return f"it sent messages that could belong to calls of several clients: {counts}"


class FastChannel(Protocol):
    """Sends calls that differ only in their id and arguments to a server, and needs no task for it."""

    @property
    def answers_questions(self) -> bool:
        """Whether a result that asks for input is answered here, and not by the client."""
        ...

    def is_valid(self) -> bool:
        """Return whether calls may still be sent this way."""
        ...

    def send(self, arguments: Raw, posted: "PostedRequest") -> bool:
        """Send a call at once. Return False, without any effect, if that is not possible."""
        ...


class PostedRequest(InFlightRequest):
    """A request whose result is passed to a plain call. Anything else starts a task that continues it.

    That task makes the same request at the same client, with this object as `sent`. From then on it is awaited, timed
    and cancelled like any other request.
    """

    __slots__ = (
        "_early_notifications",
        "_listener",
        "_released",
        "_response",
        "_task_attached",
        "_transport",
        "started",
    )

    @property
    def caller(self) -> str:
        raise NotImplementedError

    def try_finish(self, result: Raw) -> bool:
        """Handle a result and release the request. Return False if a task has to do that."""
        raise NotImplementedError

    def start_task(self) -> None:
        """Start a task that continues the request."""
        raise NotImplementedError

    def post(
        self,
        transport: PostingTransport,
        in_flight: InFlightRequests,
        number: int,
        message: bytes,
        headers: Mapping[str, str],
        seconds: float,
    ) -> bool:
        """Send the request without waiting. Return False, without any effect, if that is not possible."""
        if not transport.post(number, message, self, headers):
            return False
        due = in_flight.compute_due(seconds)
        super().__init__(in_flight, number, seconds, due, self)
        # The time at which it was sent, by the clock of the loop.
        self.started = due - seconds
        in_flight.requests[number] = self
        self._transport = transport
        self._response: asyncio.Future[Response] | None = None
        self._listener: CallListener | None = None
        self._released: asyncio.Future[None] | None = None
        return True

    def release(self) -> None:
        """Stop waiting for the request. A task that still continues it may wait longer than its client."""
        if self._task is None or self._task.done() or self.number not in self._in_flight.requests:
            self._transport.forget(self.number)
            self._leave()
            self.listener = None  # a reference to itself
        if self._response is not None:
            self._task_attached.cancel()
        if self._released is not None and not self._released.done():
            self._released.set_result(None)

    def get_released_future(self) -> asyncio.Future[None]:
        """Return a future that is done when nothing waits for the request any more."""
        if self._released is None:
            self._released = self._in_flight.loop.create_future()
        return self._released

    # Called by the transport, like the methods of a future

    def done(self) -> bool:
        return self._response is not None and self._response.done()

    def set_result(self, result: Response, /) -> None:
        if self._response is None and result.error is None and self.try_finish(result.result):
            return
        self.continue_in_task().set_result(result)

    def set_exception(self, exception: Exception, /) -> None:
        future = self.continue_in_task()
        future.set_exception(exception)
        future.exception()  # Marks it as retrieved: whatever waits for it reports it.

    # Called by the task that continues the request

    def continue_in_task(self) -> asyncio.Future[Response]:
        """Continue the request in a task. Messages that arrive before the task runs are kept for it."""
        if self._response is None:
            loop = self._in_flight.loop
            self._response = loop.create_future()
            self._task_attached = loop.create_future()
            self._early_notifications: list[Notification] = []
            self.start_task()
        return self._response

    def attach_task(self, listener: CallListener | None) -> "PostedRequest":
        """Register the listener of the task, which enters this object and waits for the response."""
        self._listener = listener
        if listener is not None:
            for message in self._early_notifications:
                listener.on_notification(message)
        self._task_attached.set_result(None)
        return self

    async def wait_for_response(self) -> Response:
        """Wait for the response."""
        try:
            return await self.continue_in_task()
        finally:
            self._transport.forget(self.number)

    def expire(self) -> None:
        """End the request by a time-out, once its task runs."""
        self.due = math.inf
        if self._task is not None:
            super().expire()
        else:
            self._when_task_attached(self.expire)

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the request, once its task runs."""
        if self._task is not None:
            self._task.cancel(reason)
        else:
            self._when_task_attached(lambda: self.cancel(reason))

    def _when_task_attached(self, call: Callable[[], None]) -> None:
        self.continue_in_task()
        self._task_attached.add_done_callback(lambda attended: None if attended.cancelled() else call())

    # Listener of the request

    def on_progress(self, params: Params) -> None:
        """Restart the time limit. A client that wants progress is served by a task from the start."""
        if not self._questions:
            self.set_limit(self.seconds)

    def on_notification(self, message: Notification) -> None:
        self.continue_in_task()
        if self._listener is not None:
            self._listener.on_notification(message)
        else:
            self._early_notifications.append(message)

    async def answer(self, method: str, params: Params) -> ClientAnswer:
        self.continue_in_task()
        await asyncio.shield(self._task_attached)
        assert self._listener is not None
        return await self._listener.answer(method, params)
