"""Calls the functions of one plugin: what they raise, and that they do not come back, is kept to the plugin."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from rookery.system.aside import Aside, Fatal
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError
from rookery.system.log import REDACTOR
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.plugins")

T = TypeVar("T")
_LONGEST = 500
_STOP_SECONDS = 5.0
# What ends a loop, or a process, is a failure of the plugin like any other.
_FATAL = (SystemExit, KeyboardInterrupt)


class Fault(msgspec.Struct, frozen=True):
    """What went wrong last, where, and when, in milliseconds since the epoch."""

    message: str
    where: str
    at: float


class PluginTasks(TaskSet):
    """The tasks of a plugin: one that would end the whole daemon has only crashed."""

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return super().start(_survived(work), name)


class Containment:
    """`failures` counts all that ever failed, `last` is the newest of them."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.failures = 0
        self.last: Fault | None = None
        self._name, self._clock = name, clock
        self._aside = Aside(f"plugin {name}")
        # What is called of it; `tasks` are those that it starts itself.
        self.calls = TaskSet(f"plugin {name}")
        self.tasks = PluginTasks(f"plugin {name}", self._crashed)

    async def call(
        self,
        where: str,
        function: Callable[..., Any],
        *args: Any,
        seconds: float,
        gives: Any = None,
        may_refuse: bool = False,
    ) -> Any:
        """What it answers; raises RookeryError `plugin-failed` if it fails or takes longer.

        Then it is cancelled, and nobody waits until it has heeded that. Where it `may_refuse`, a RookeryError of its
        own is raised as it is, and is no failure. What it answers is to be of the type `gives`, in plain data.
        """
        task = self.calls.start(self._outcome(function, args), where)
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise self._failed(RookeryError("timeout", f"it took longer than {seconds:g} s"), where)
        if task.cancelled():
            raise self._failed(RookeryError("plugin-failed", "it was cancelled"), where)
        value, error = task.result()
        if may_refuse and isinstance(error, RookeryError):
            raise error
        if error is not None:
            raise self._failed(error, where)
        try:
            return _plain(value, gives) if gives is not None else value
        except (TypeError, ValueError, OverflowError, RecursionError) as wrong:
            raise self._failed(wrong, f"what {where} answers") from None

    async def close(self) -> None:
        """End all that runs; what does not heed that is left behind."""
        self._aside.close()
        for one in (self.calls, self.tasks):
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await one.close()
            except TimeoutError:
                self._note(RookeryError("timeout", "its tasks do not end"), "stop")

    async def _outcome(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*args), None
            answer = await self._aside.run(lambda: function(*args))
            return (await answer if inspect.isawaitable(answer) else answer), None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None, error
        except (Exception, *_FATAL) as error:
            return None, error

    def _failed(self, error: BaseException, where: str) -> RookeryError:
        fault = self._note(error, where)
        return RookeryError("plugin-failed", f"plugin {self._name} failed: {fault.message} ({where})")

    def _crashed(self, task: str, error: BaseException) -> None:
        self._note(error, f"task {task}")

    def _note(self, error: BaseException, where: str) -> Fault:
        self.failures += 1
        fault = self.last = Fault(in_words(error), where, self._clock.wall() * 1000)
        logger.error("plugin %s failed: %s", self._name, where, exc_info=error)
        return fault


def in_words(error: BaseException) -> str:
    """What is shown of it: one line, without the secrets of this process."""
    told = error.message if isinstance(error, RookeryError) else f"{type(error).__name__}: {error}"
    told = REDACTOR.clean(str(error) if isinstance(error, Fatal) else told)
    return " ".join(told.split())[:_LONGEST]


def _plain(value: Any, kind: Any) -> Any:
    """As whoever asked will read it."""
    return msgspec.convert(msgspec.json.decode(msgspec.json.encode(value)), kind)


async def _survived(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except _FATAL as error:
        raise Fatal(f"{type(error).__name__}: {error}") from None
