"""The only way to start a task: it has a name, is held until it ends, and its crash is reported, never lost."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rookery.system import metrics

logger = logging.getLogger("rookery.tasks")
CRASHES = metrics.counter("rookery_task_crashes_total", "Background tasks that ended with an exception.")

T = TypeVar("T")


class TaskSet:
    """The tasks of one owner, ended together by `close`."""

    def __init__(self, owner: str, on_crash: Callable[[str, BaseException], None] | None = None) -> None:
        self.owner = owner
        self._on_crash = on_crash
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `work` beside the caller. Whoever awaits the task sees its exception too."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self.owner}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        CRASHES.add()
        logger.error("task %s crashed", task.get_name(), exc_info=error)
        if self._on_crash is not None:
            self._on_crash(task.get_name(), error)

    async def close(self) -> None:
        """Cancel every task and wait until each has ended."""
        while self._tasks:
            waiting = list(self._tasks)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    async def finish(self) -> None:
        """Wait until every task has ended by itself."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
