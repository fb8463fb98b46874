"""The requests under way on one connection: how long each may take, and whose the server's own messages are."""

import asyncio
import math
from collections import Counter
from types import TracebackType
from typing import Any, Protocol

from rookery.wire import revisions
from rookery.wire.asking import CALL_BOUND, Listener, Ourselves
from rookery.wire.jsonrpc import Id, Params

# Timers may ring this much too early.
_SLACK = 0.001


class Question(Protocol):
    """What the server asks for the sake of a request, or of one of several."""

    def ended(self, running: "Running") -> None:
        """That request is over."""
        ...


class Running:
    """A request that is waited for, by the task that entered it; a TimeoutError there once it is `due`."""

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
        self, in_flight: "InFlight", number: Id, seconds: float | None, due: float, listener: Listener | None
    ) -> None:
        self.listener = listener
        self.seconds = seconds
        self.due = due
        self._in_flight = in_flight
        self.number = number
        self._questions: tuple[Question, ...] = ()
        self._expired = False
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    def __enter__(self) -> None:
        self._task = asyncio.current_task(self._in_flight.loop)
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._in_flight.running[self.number] = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        # Somebody else may have cancelled the task as well.
        task = self._task if self._expired else None
        if task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _leave(self) -> None:
        if self._in_flight.running.pop(self.number, None) is not None:
            for question in self._questions:
                question.ended(self)

    def end(self) -> None:
        """Its time is over."""
        if self._task is not None and not self._expired and self.number in self._in_flight.running:
            self._expired = True
            self.due = math.inf
            self._task.cancel()

    def allow(self, seconds: float | None) -> None:
        """So many seconds from now on; None: as many as it takes."""
        if self._expired:
            return
        self.due = math.inf if seconds is None else self._in_flight.loop.time() + seconds
        self._in_flight.ring_at(self.due)

    def progressed(self, params: Params) -> None:
        if not self._questions:
            self.allow(self.seconds)
        if self.listener is not None:
            self.listener.progressed(params)

    def pause(self, question: "Question") -> None:
        """A question of the server is being answered; as long as that takes, no time runs."""
        self._questions += (question,)
        self.due = math.inf

    def resume(self, question: "Question") -> None:
        self._questions = tuple(one for one in self._questions if one is not question)
        if not self._questions:
            self.allow(self.seconds)


Place = tuple[Listener, list[Running]]


class InFlight:
    """All of them, with one timer: most time limits are never reached, and never touch it."""

    def __init__(self, ourselves: Ourselves) -> None:
        self.loop = asyncio.get_running_loop()
        self.running: dict[Id, Running] = {}
        # What could not be given to anybody, by method.
        self.unplaced: Counter[str] = Counter()
        self._ourselves = ourselves
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def begin(self, number: Id, seconds: float | None, left: float | None, listener: Listener | None) -> Running:
        """A request that has `left` seconds, and all its `seconds` again after each progress."""
        return Running(self, number, seconds, math.inf if left is None else self.due_in(left), listener)

    def due_in(self, seconds: float) -> float:
        """When something is due, which will be looked at then."""
        due = self.loop.time() + seconds
        if due < self._rings_at:
            self.ring_at(due)
        return due

    def end_all(self) -> None:
        for running in list(self.running.values()):
            running.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_at = None, math.inf

    def ring_at(self, due: float) -> None:
        """At the latest."""
        if due >= self._rings_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = due
        self._timer = self.loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now = self.loop.time() + _SLACK
        for running in list(self.running.values()):
            if running.due <= now:
                running.end()
        self.ring_at(min((running.due for running in self.running.values()), default=math.inf))

    def place(self, method: str, of: Id | None) -> Place | None:
        """To whom a message of the server belongs, and the calls that it may concern.

        Where it is not said with which request it came, all calls in flight must be of one client.
        """
        one = self.running.get(of) if of is not None else None
        if one is not None:
            return one.listener or self._ourselves, [one]
        calls = [one for one in self.running.values() if one.listener is not None and one.listener.caller]
        if not calls:
            return self._ourselves, []
        listeners = {one.listener.caller: one.listener for one in calls if one.listener is not None}
        if len(listeners) == 1:
            return listeners.popitem()[1], calls
        self.unplaced[method if method in revisions.CAPABILITY_OF or method in CALL_BOUND else "others"] += 1
        return None

    def diagnosis(self) -> str:
        """What people should know about messages that could not be placed."""
        if not self.unplaced:
            return ""
        told = ", ".join(f"{method} {count} times" for method, count in self.unplaced.most_common())
        return f"it did not say to which of several clients' calls these belong: {told}"
