"""A thread for calls that may not return."""

import asyncio
import contextvars
import sys
import threading

import pytest

from rookery.system.threads import SerialThread

pytestmark = pytest.mark.anyio

CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("caller")


async def test_calls_run_in_order_in_one_thread_with_the_context_of_their_caller() -> None:
    aside, seen = SerialThread("a thread"), list[tuple[int, str, str]]()

    def note(number: int) -> int:
        seen.append((number, threading.current_thread().name, CALLER.get()))
        return number

    CALLER.set("me")
    answers = await asyncio.gather(*(aside.run(lambda number=number: note(number)) for number in range(5)))
    aside.close()
    assert answers == [0, 1, 2, 3, 4]
    assert seen == [(number, "a thread", "me") for number in range(5)]


async def test_what_it_raises_is_raised_and_what_would_end_the_process_is_not() -> None:
    aside = SerialThread("a thread")
    with pytest.raises(ZeroDivisionError):
        await aside.run(lambda: 1 / 0)
    for work, said in ((lambda: sys.exit(3), "SystemExit: 3"), (lambda: next(iter(())), "StopIteration")):
        with pytest.raises(RuntimeError, match=said):
            await aside.run(work)
    aside.close()


async def test_whoever_stops_waiting_leaves_it_running_and_what_had_not_begun_never_does() -> None:
    aside, began, release = SerialThread("a thread"), threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        began.set()
        release.wait()
        ran.append("first")

    waiting = [asyncio.ensure_future(aside.run(one)) for one in (first, lambda: ran.append("second"))]
    await asyncio.to_thread(began.wait)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    release.set()
    await aside.run(lambda: ran.append("third"))
    aside.close()
    assert ran == ["first", "third"]
