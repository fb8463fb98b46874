"""Calls in which a modern client may be asked something: each request ends with questions or the result.

Between two requests the call is parked. The number of parked calls and their time are limited.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.tasks import TaskSet
from rookery.wire.http.auth import OWNER
from rookery.wire.protocol.messages import INVALID_PARAMS, Params, WireError, decode_text, decode_value
from rookery.wire.protocol.provider import Call, ClientQuestion
from rookery.wire.protocol.sealed_state import Seal
from rookery.wire.server.call import compute_call_digest, decode_input_responses, make_input_required_result
from rookery.wire.shares import ByteBudget, HeldBytes, Shares, compute_workspace_share

CallResult = Raw | Mapping[str, Any]
CallWork = Callable[[Call], Coroutine[Any, Any, CallResult]]

# Questions that follow each other within this time are sent together.
_BATCH_SECONDS = 0.05

logger = logging.getLogger("rookery.mcp.gateway")

PARKED_SECONDS = 600.0
MAX_PARKED = 256
MAX_PARKED_PER_OWNER = 32
# Distinguishes states of Rookery from those of servers.
_STATE_PREFIX = "rookery."


class RoundTripCall:
    """One call for its provider, however many requests its client needs. The provider can ask as in any call."""

    session: str | None = None
    can_ask = True

    def __init__(self, call: Call, work: CallWork, tasks: TaskSet) -> None:
        self.method = call.method
        self.params = call.params
        self.client = call.client
        self.caller = call.caller
        self.owner = call.owner
        self.connection = call.connection
        self.conversation = call.conversation
        self.meta: Params = {}
        self.log_level: str | None = None
        self.resumed = False
        # The request of the client that is open now.
        self._request: Call | None = None
        self._questions: dict[str, tuple[ClientQuestion, asyncio.Future[Raw]]] = {}
        self._numbers = itertools.count(1)
        self._wake = asyncio.Event()
        self._notify_lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._batch_ready = False
        self._set_request(call)
        self._work = tasks.start(_run_work(work, self), call.method)
        self._work.add_done_callback(lambda _: self._wake.set())

    # Interface for the provider

    async def notify(self, method: str, params: Mapping[str, Any] | Raw) -> None:
        """Send a notification with the open request; between two requests it is dropped."""
        async with self._notify_lock:
            if self._request is not None:
                await self._request.notify(method, params)

    async def ask(self, questions: Mapping[str, ClientQuestion]) -> Mapping[str, Any]:
        answers = await self.ask_raw(questions)
        return {key: decode_value(answer, f"the answer to {key}") for key, answer in answers.items()}

    async def ask_raw(self, questions: Mapping[str, ClientQuestion]) -> Mapping[str, Raw]:
        for ask in questions.values():
            self.client.require_capability(ask.method)
        # No key is used twice: an answer that is sent again belongs to the question of its own round.
        keys = {key: f"{key}-{next(self._numbers)}" for key in questions}
        loop = asyncio.get_running_loop()
        futures = {keys[key]: loop.create_future() for key in questions}
        self._questions |= {keys[key]: (ask, futures[keys[key]]) for key, ask in questions.items()}
        self._start_batch_timer()
        try:
            return {key: await futures[keys[key]] for key in questions}
        finally:
            for key in futures:
                del self._questions[key]

    # Interface for the requests of the client

    async def serve(self, request: Call) -> Mapping[str, ClientQuestion] | None:
        """Serve one request. Return the questions that the client must answer, or None if there is a result."""
        self._set_request(request)
        try:
            while not self._work.done():
                questions = self._open_questions()
                if questions and self._batch_ready:
                    # A notification that is being sent with this request comes before its end.
                    async with self._notify_lock:
                        return questions
                self._batch_ready = False
                if questions:
                    self._start_batch_timer()
                self._wake.clear()
                await self._wake.wait()
            return None
        except asyncio.CancelledError:
            # The client has cancelled the request or disconnected.
            self.cancel()
            await asyncio.wait([self._work])
            raise
        finally:
            self._set_request(None)

    def answer(self, answers: Mapping[str, Raw]) -> None:
        """Pass on the answers to open questions; other answers are ignored."""
        self.resumed = True
        for key, (_, future) in self._questions.items():
            if key in answers and not future.done():
                future.set_result(answers[key])

    def result(self) -> CallResult:
        """Return the result of the ended call or raise its error; CancelledError if the call was cancelled."""
        result, error = self._work.result()
        if error is not None:
            raise error
        assert result is not None
        return result

    def cancel(self) -> None:
        """Cancel the work on the call."""
        self._work.cancel()

    def _set_request(self, request: Call | None) -> None:
        """Set the request that is open now, or None."""
        self._request = request
        self.meta = request.meta if request is not None else {}
        self.log_level = request.log_level if request is not None else None
        self._batch_ready = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open_questions(self) -> dict[str, ClientQuestion]:
        """Return the questions without an answer."""
        return {key: ask for key, (ask, future) in self._questions.items() if not future.done()}

    def _start_batch_timer(self) -> None:
        """Start the timer after which open questions are sent."""
        if self._timer is None and self._request is not None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_SECONDS, self._on_batch_timer)

    def _on_batch_timer(self) -> None:
        self._timer = None
        self._batch_ready = True
        self._wake.set()


async def _run_work(work: CallWork, call: Call) -> tuple[CallResult | None, Exception | None]:
    """Return the result or the error of the call, so that an error does not crash the task."""
    try:
        return await work(call), None
    except Exception as error:
        return None, error


@dataclass(eq=False)
class _ParkedCall:
    """A parked call. `origin` is where it was made; `expires_at` is None while its client has an open request."""

    call: RoundTripCall
    origin: object
    call_digest: str
    # The bytes of its parameters.
    held_bytes: HeldBytes
    id: str = field(default_factory=new_id)
    round: int = 0
    expires_at: float | None = None


class ParkedCalls:
    """The parked calls of all views. A call is counted from its first question until it has ended."""

    def __init__(
        self,
        seconds: float = PARKED_SECONDS,
        max_calls: int = MAX_PARKED,
        max_per_owner: int = MAX_PARKED_PER_OWNER,
        clock: Clock = SYSTEM_CLOCK,
        held_bytes: ByteBudget | None = None,
    ) -> None:
        self.seconds = seconds
        self._max_calls = max_calls
        self._max_per_owner = max_per_owner
        self._held_bytes = held_bytes if held_bytes is not None else Shares().kept_bytes
        self._clock = clock
        self._seal = Seal(clock, seconds)
        self._parked: dict[str, _ParkedCall] = {}
        self._tasks = TaskSet("calls in rounds")
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._parked)

    def is_continuation(self, call: Call) -> bool:
        """Return whether this is the next request of a call that has asked something here."""
        return "requestState" in call.params and decode_text(call.params, "requestState").startswith(_STATE_PREFIX)

    async def start(self, origin: object, call: Call, work: CallWork) -> CallResult:
        """Start a call that may ask its client something, with `work`. Return its result or its questions."""
        rounds = RoundTripCall(call, work, self._tasks)
        questions = await rounds.serve(call)
        return rounds.result() if questions is None else self._park(self._admit(rounds, origin, call), questions)

    async def resume(self, origin: object, call: Call) -> CallResult:
        """Continue a parked call with the answers of its client."""
        answers = decode_input_responses(call.params)
        parked = self._find(origin, call)
        parked.expires_at = None
        parked.call.answer(answers)
        try:
            questions = await parked.call.serve(call)
        except asyncio.CancelledError:
            self._remove(parked)
            raise
        if questions is not None:
            return self._park(parked, questions)
        self._remove(parked)
        return parked.call.result()

    def cancel_all(self, origin: object) -> None:
        """Cancel the calls of an endpoint or connection that no longer exists."""
        for parked in [
            candidate for candidate in self._parked.values() if origin in (candidate.origin, candidate.call.connection)
        ]:
            self._cancel(parked)

    def expire(self) -> None:
        """Cancel the calls whose client has not returned in time, and set the timer for the next."""
        self._timer = None
        now = self._clock.monotonic()
        for parked in [
            candidate
            for candidate in self._parked.values()
            if candidate.expires_at is not None and candidate.expires_at <= now
        ]:
            logger.info("%s was not answered within %g s and was cancelled", parked.call.method, self.seconds)
            self._cancel(parked)
        self._set_timer()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for parked in list(self._parked.values()):
            self._remove(parked)
        await self._tasks.close()

    def _park(self, parked: _ParkedCall, questions: Mapping[str, ClientQuestion]) -> CallResult:
        parked.round += 1
        parked.expires_at = self._clock.monotonic() + self.seconds
        self._set_timer()
        state = {"call": Raw(msgspec.json.encode(parked.id)), "round": Raw(msgspec.json.encode(parked.round))}
        return make_input_required_result(questions, _STATE_PREFIX + self._seal.seal(state, parked.call_digest))

    def _admit(self, round_trip_call: RoundTripCall, origin: object, call: Call) -> _ParkedCall:
        own = sum(parked.call.owner == round_trip_call.owner for parked in self._parked.values())
        others = sum(parked.call.owner != OWNER.name for parked in self._parked.values())
        # All workspaces together leave some slots to the owner.
        allowed = round_trip_call.owner == OWNER.name or others < compute_workspace_share(self._max_calls)
        if len(self._parked) < self._max_calls and own < self._max_per_owner and allowed:
            held_bytes = HeldBytes(self._held_bytes, round_trip_call.owner)
            if (refusal := held_bytes.resize(sum(map(len, call.params.values())))) is not None:
                round_trip_call.cancel()
                raise RookeryError(refusal.code, refusal.message, refusal.remedy)
            admitted = _ParkedCall(round_trip_call, origin, compute_call_digest(call), held_bytes)
            self._parked[admitted.id] = admitted
            return admitted
        round_trip_call.cancel()
        many = f"{own} calls of yours" if own >= self._max_per_owner else f"{len(self._parked)} calls"
        raise RookeryError(
            "too-many-questions",
            f"the server asked a question, but {many} already wait for an answer; this call was cancelled",
            f"answer those first; each is cancelled after {self.seconds:g} s",
        )

    def _find(self, origin: object, call: Call) -> _ParkedCall:
        sealed = decode_text(call.params, "requestState").removeprefix(_STATE_PREFIX)
        state = self._seal.unseal(sealed, compute_call_digest(call))
        parked = self._parked.get(msgspec.json.decode(state["call"], type=str))
        if parked is None or parked.origin is not origin:
            raise WireError(INVALID_PARAMS, "the call of this requestState has ended; call again without it")
        if parked.expires_at is None or parked.round != msgspec.json.decode(state["round"], type=int):
            raise WireError(
                INVALID_PARAMS, "this requestState was already used; only the newest one of a call is valid"
            )
        return parked

    def _cancel(self, parked: _ParkedCall) -> None:
        self._remove(parked)
        parked.call.cancel()

    def _remove(self, parked: _ParkedCall) -> None:
        if self._parked.pop(parked.id, None) is not None:
            parked.held_bytes.release()

    def _set_timer(self) -> None:
        """Set the timer for the first call that expires."""
        deadlines = [parked.expires_at for parked in self._parked.values() if parked.expires_at is not None]
        if deadlines and self._timer is None:
            delay = max(0.0, min(deadlines) - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.expire)
