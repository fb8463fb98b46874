"""Looks whether work is left in a session: asks those who can tell, and nobody else."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rookery.plugins.boulder.checks import Checks, Todo, by_boxes, by_task, by_todos, together
from rookery.plugins.boulder.gates import Work
from rookery.plugins.boulder.switches import Level
from rookery.plugins.boulder.words import by_keywords
from rookery.sessions.records import MessageShown
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError

_MESSAGES = 50
_TOOLS = 10
_RUNS = ("pending", "running")


class Ground(Protocol):
    """Projects, workspaces, and what is in these. All raise RookeryError where they cannot, or must not."""

    async def subject(self, level: Level, given: str) -> str:
        """The id of a project, or the folder of a workspace, of those that there are."""
        ...

    async def watch(self, gone: Callable[[Level, str], Awaitable[None]]) -> None:
        """Tell of every project and workspace that is gone, until this is cancelled."""
        ...

    async def read(self, workspace: str, path: str) -> str:
        """The text of a file, through the sandbox."""
        ...

    async def run(self, workspace: str, task: str) -> tuple[bool, str]:
        """Whether a just task ends with 0, and else how it ended; only of a justfile that is approved."""
        ...


@dataclass(frozen=True)
class Seen:
    """`used`: a tool that somebody asked for by its name runs beside it. `failed`: its last turn has."""

    running: bool
    used: bool
    failed: bool
    work: Work


async def look(sessions: Sessions, ground: Ground, session: str, workspace: str, checks: Checks) -> Seen:
    info = await sessions.get(session)
    messages = (await sessions.messages(session, _MESSAGES)).messages
    running = info.status == "active"
    used = any(one.status in _RUNS for one in await sessions.tool_history(session, _TOOLS))
    if running or used or not messages:
        return Seen(running, used, False, Work(None, "nobody has said anything yet"))
    found: list[Work | None] = []
    if checks.todos:
        async with sessions.used(session) as life:
            found.append(by_todos(await life.client.todos(session, Todo)))
    found += [await _plan(ground, workspace, plan) for plan in checks.plans]
    # Last, since they take longest; and not at all where the answer is known.
    if (work := together(found)) is None or work.left is not True:
        found += [await _task(ground, workspace, task) for task in checks.tasks]
    return Seen(False, False, info.status == "error", together(found) or by_keywords(last_words(messages)))


def last_words(messages: Sequence[MessageShown]) -> str | None:
    """What the assistant has said last since somebody spoke to it."""
    for one in reversed(messages):
        if one.role != "assistant":
            return None
        if one.content.strip():
            return one.content
    return None


async def _plan(ground: Ground, workspace: str, plan: str) -> Work:
    try:
        return by_boxes(await ground.read(workspace, plan), plan)
    except RookeryError as error:
        return Work(None, error.message)


async def _task(ground: Ground, workspace: str, task: str) -> Work:
    try:
        passed, told = await ground.run(workspace, task)
    except RookeryError as error:
        return Work(None, error.message)
    return by_task(task, passed=passed, told=told)
