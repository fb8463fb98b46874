"""Events about one workspace as the progress of the call that waits for them."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from itertools import count
from typing import Any, TypeVar

from rookery.system.bus import Bus, Event, Subscription
from rookery.system.tasks import TaskSet
from rookery.wire.provider import Call, report_progress

T = TypeVar("T")

_tasks = TaskSet("progress")


async def with_progress(call: Call, events: Bus, project: str, name: str, work: Awaitable[T]) -> T:
    """Do `work`, and meanwhile tell a client that asked for it what happens to a workspace."""
    if "progressToken" not in call.meta:
        return await work
    reader = events.subscribe()
    telling = _tasks.start(_tell(call, reader, project, name), name)
    try:
        return await work
    except asyncio.CancelledError:
        telling.cancel()
        raise
    finally:
        reader.end("done")
        # What happened before the answer reaches the client before it.
        await asyncio.wait([telling])


async def _tell(call: Call, reader: Subscription, project: str, name: str) -> None:
    numbers = count(1)
    while batch := await reader.next_batch():
        for words in phases(batch, project, name):
            await report_progress(call, next(numbers), message=words)
        if reader.ended is not None:
            return


def phases(events: Iterable[Event], project: str, name: str) -> Iterable[str]:
    """In words, what the events of one workspace say of how far it is."""
    for event in events:
        if event.data.get("project") == project and event.data.get("name") == name:
            yield _words(event.type.removeprefix("workspace."), event.data)


def _words(state: str, data: Mapping[str, Any]) -> str:
    progress: Mapping[str, Any] = data.get("progress") or {}
    phase: str | None = data.get("phase") or progress.get("step")
    if "total" in data:
        return f"{state}: {phase} {data['done']} of {data['total']}"
    error: Mapping[str, str] = progress.get("error") or {}
    why: str | None = data.get("error") or error.get("message")
    return ": ".join(filter(None, [state, phase, why]))
