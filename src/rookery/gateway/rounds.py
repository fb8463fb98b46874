"""A call of a modern client that may be asked something: each of its requests ends with questions or the result."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec import Raw

from rookery.system.tasks import TaskSet
from rookery.wire.jsonrpc import Params, value_of
from rookery.wire.provider import Ask, Call

Result = Raw | Mapping[str, Any]
Work = Callable[[Call], Coroutine[Any, Any, Result]]

# Questions that come so soon after one another are asked together.
_TOGETHER_SECONDS = 0.05


class Rounds:
    """What answers it sees one call, however many requests that takes its client, and can ask as it can any other."""

    session: str | None = None
    askable = True

    def __init__(self, call: Call, work: Work, tasks: TaskSet) -> None:
        self.method, self.params, self.client = call.method, call.params, call.client
        self.caller, self.owner, self.connection = call.caller, call.owner, call.connection
        self.meta: Params = {}
        self.log_level: str | None = None
        self.resumed = False
        # The request that is waiting just now.
        self._request: Call | None = None
        self._asked: dict[str, tuple[Ask, asyncio.Future[Raw]]] = {}
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self._telling = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ripe = False
        self._attend(call)
        self._work = tasks.start(_outcome(work, self), call.method)
        self._work.add_done_callback(lambda _: self._news.set())

    # ---- what answers it sees

    async def notify(self, method: str, params: Mapping[str, Any] | Raw) -> None:
        """Between two requests there is nobody to tell."""
        async with self._telling:
            if self._request is not None:
                await self._request.notify(method, params)

    async def ask(self, asks: Mapping[str, Ask]) -> Mapping[str, Any]:
        found = await self.ask_raw(asks)
        return {key: value_of(answer, f"the answer to {key}") for key, answer in found.items()}

    async def ask_raw(self, asks: Mapping[str, Ask]) -> Mapping[str, Raw]:
        for ask in asks.values():
            self.client.must_have(ask.method)
        # No key comes twice: an answer that is sent again belongs to the question of its own round.
        keys = {key: f"{key}-{next(self._numbers)}" for key in asks}
        loop = asyncio.get_running_loop()
        waiting = {keys[key]: loop.create_future() for key in asks}
        self._asked |= {keys[key]: (ask, waiting[keys[key]]) for key, ask in asks.items()}
        self._ripen()
        try:
            return {key: await waiting[keys[key]] for key in asks}
        finally:
            for key in waiting:
                del self._asked[key]

    # ---- what its client's requests do

    async def turn(self, request: Call) -> Mapping[str, Ask] | None:
        """Serve one request: what its client is to answer, None where there is a result."""
        self._attend(request)
        try:
            while not self._work.done():
                open_now = self._open()
                if open_now and self._ripe:
                    # What is being said to this request comes before its end.
                    async with self._telling:
                        return open_now
                self._ripe = False
                if open_now:
                    self._ripen()
                self._news.clear()
                await self._news.wait()
            return None
        except asyncio.CancelledError:
            # The client has cancelled it, or is gone.
            self.give_up()
            await asyncio.wait([self._work])
            raise
        finally:
            self._attend(None)

    def answer(self, answers: Mapping[str, Raw]) -> None:
        """What is not asked, or no longer, is not answered by anything."""
        self.resumed = True
        for key, (_, future) in self._asked.items():
            if key in answers and not future.done():
                future.set_result(answers[key])

    def result(self) -> Result:
        """Or the error, once it has ended. Where it was cancelled, so is whoever wants the result."""
        result, error = self._work.result()
        if error is not None:
            raise error
        assert result is not None
        return result

    def give_up(self) -> None:
        """Whoever works on it is told so."""
        self._work.cancel()

    def _attend(self, request: Call | None) -> None:
        self._request = request
        self.meta = request.meta if request is not None else {}
        self.log_level = request.log_level if request is not None else None
        self._ripe = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open(self) -> dict[str, Ask]:
        return {key: ask for key, (ask, future) in self._asked.items() if not future.done()}

    def _ripen(self) -> None:
        if self._timer is None and self._request is not None:
            self._timer = asyncio.get_running_loop().call_later(_TOGETHER_SECONDS, self._ripened)

    def _ripened(self) -> None:
        self._timer, self._ripe = None, True
        self._news.set()


async def _outcome(work: Work, call: Call) -> tuple[Result | None, Exception | None]:
    """An error is what the call comes to, and no crash of the task."""
    try:
        return await work(call), None
    except Exception as error:
        return None, error
