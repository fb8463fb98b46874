"""Start background tasks: each has a name, is referenced until it ends, and its crash is recorded and reported.

Every task is started here. Work that must run for as long as its owner is started with `keep_running`, which restarts
it after a crash.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from rookery.system import metrics
from rookery.system.clock import SYSTEM_CLOCK, Clock, iso
from rookery.system.log import REDACTOR

logger = logging.getLogger("rookery.tasks")
CRASHES = metrics.counter("rookery_task_crashes_total", "Background tasks that ended with an exception.")
RESTARTS = metrics.counter("rookery_task_restarts_total", "Background tasks started again after a crash.", "task")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 60.0
# Work that ran for this long before it crashed is restarted after the first pause.
_GOOD_RUN_SECONDS = 300.0
_LONGEST_ERROR = 500
_MOST_TASKS = 100

T = TypeVar("T")


class Crash(msgspec.Struct, frozen=True):
    """The crashes of the tasks with one name. `restarted` says whether the last one was, or will be, restarted."""

    task: str
    count: int
    error: str
    at: str
    restarted: bool


class CrashLog:
    """The crashes of this process, one entry per task name."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._entries: dict[str, Crash] = {}

    def record(self, task: str, error: BaseException, *, restarted: bool) -> None:
        """Count a crash, log it and keep its error."""
        CRASHES.add()
        logger.error("task %s crashed%s", task, "; restarting it" if restarted else "", exc_info=error)
        entry = self._entries.pop(task, None)
        text = REDACTOR.clean(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR]
        count = entry.count + 1 if entry is not None else 1
        self._entries[task] = Crash(task, count, text, iso(self._clock.wall()), restarted)
        if len(self._entries) > _MOST_TASKS:
            del self._entries[next(iter(self._entries))]

    def entries(self) -> list[Crash]:
        """Return the entries, the most recent crash last."""
        return list(self._entries.values())


CRASH_LOG = CrashLog()


def record_stray_crashes(loop: asyncio.AbstractEventLoop) -> None:
    """Record exceptions outside of tasks: in callbacks of `loop`, and in threads."""

    def on_callback_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            CRASH_LOG.record("callback", error, restarted=False)
        else:
            loop.default_exception_handler(context)

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread is not None else "unknown"
            CRASH_LOG.record(f"thread {name}", args.exc_value, restarted=False)

    loop.set_exception_handler(on_callback_error)
    threading.excepthook = on_thread_error


class TaskSet:
    """The tasks of one owner; `close` cancels them all."""

    def __init__(self, owner: str, on_crash: Callable[[str, BaseException], None] | None = None) -> None:
        self.owner = owner
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `work` as a task. Code that awaits the task receives its exception too."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self.owner}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def keep_running(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
        """Run `work()` as a task until it returns; after a crash, start it again after a growing pause."""
        return self.start(self._run_restarting(work, f"{self.owner}:{name}"), name)

    async def _run_restarting(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        failures = 0
        while True:
            started = SYSTEM_CLOCK.monotonic()
            try:
                await work()
                return
            except Exception as error:
                CRASH_LOG.record(name, error, restarted=True)
            failures = 0 if SYSTEM_CLOCK.monotonic() - started >= _GOOD_RUN_SECONDS else failures
            await asyncio.sleep(min(_FIRST_PAUSE * 2.0 ** min(failures, 20), _LONGEST_PAUSE))
            failures += 1
            RESTARTS.add(name)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        CRASH_LOG.record(task.get_name(), error, restarted=False)
        if self._on_crash is not None:
            self._on_crash(task.get_name(), error)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def wait_all(self) -> None:
        """Wait until every task has ended by itself."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
