"""A check at the end of a test that no task of asyncio is left."""

import asyncio
from typing import Any


def require_no_tasks_since(before: set[asyncio.Task[Any]]) -> None:
    """Fail if a task that has been started since still runs, and name it and where it waits."""
    left = asyncio.all_tasks() - before
    assert not left, "tasks are left: " + "; ".join(
        f"{task.get_name()} {task.get_coro()!r} at {task.get_stack()}" for task in left
    )
