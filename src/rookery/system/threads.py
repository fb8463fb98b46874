"""One thread beside the loop, for calls of which nobody knows whether they come back: it keeps no process alive."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class Fatal(RuntimeError):
    """What would have ended the process, or the loop, in words."""


@dataclass(frozen=True)
class _Call:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Any]"


class Aside:
    """Calls are made one after the other; one that never ends holds up those behind it, and nobody else."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """What it answers or raises. Whoever stops waiting leaves it running; if it has not begun, it never does.

        What would end the process, or the loop, is raised as Fatal.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        inside = contextvars.copy_context()
        self._calls.put(_Call(lambda: inside.run(work), loop, answer))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return await answer

    def close(self) -> None:
        """No call is made after those that wait."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if not call.answer.cancelled():
                value, error = _outcome(call.work)
                # The loop may have ended meanwhile; then nobody waits.
                with contextlib.suppress(RuntimeError):
                    call.loop.call_soon_threadsafe(_settle, call.answer, value, error)


def _outcome(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except StopIteration as error:
        return None, Fatal(f"StopIteration: {error}")
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, Fatal(f"{type(error).__name__}: {error}")


def _settle(answer: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)
