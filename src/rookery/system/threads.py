"""Run blocking calls in threads: calls that may never return, and calls with a resource to close after them."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class FatalInThread(RuntimeError):
    """Stands for an exception in a thread that would have ended the process or the loop, and describes it."""


@dataclass(frozen=True)
class _Call:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"


class SerialThread:
    """Runs calls one after the other in a daemon thread of its own.

    A call that never returns blocks those that are queued behind it, and nothing else.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread; return what it returns, or raise what it raises.

        If the caller is cancelled, a call that is running continues, and one that has not started is never started.
        `StopIteration`, and exceptions that would end the process or the loop, are raised as `FatalInThread`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        self._calls.put(_Call(lambda: context.run(work), loop, future))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_calls, name=self._name, daemon=True)
            self._thread.start()
        return await future

    def close(self) -> None:
        """Stop the thread after the calls that are queued."""
        self._calls.put(None)

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            if not call.future.cancelled():
                value, error = _call_safely(call.work)
                # The loop may be closed by now; then nobody waits for the result.
                with contextlib.suppress(RuntimeError):
                    call.loop.call_soon_threadsafe(_settle_future, call.future, value, error)


def _call_safely(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except StopIteration as error:
        return None, FatalInThread(f"StopIteration: {error}")
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, FatalInThread(f"{type(error).__name__}: {error}")


def _settle_future(future: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


async def run_and_close(work: Callable[[], T], close: Callable[[], object]) -> T:
    """Run `work` in a thread, call `close` after it in the same thread, and return the result.

    If the caller is cancelled, a call that is running continues.
    """
    # The first to take the lock calls `close`: the thread, or this task if it is cancelled before the thread starts.
    taken = threading.Lock()

    def run() -> T:
        if not taken.acquire(blocking=False):
            raise RuntimeError("the caller was cancelled before the call started")
        try:
            return work()
        finally:
            close()

    try:
        return await asyncio.to_thread(run)
    finally:
        if taken.acquire(blocking=False):
            close()
