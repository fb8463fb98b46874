"""Runs a tool of an agent by its name: the real one, with the rules of a session, and without a word in it.

OpenCode runs tools only for models. So it is asked to in a hidden child of the session, with a model of ours that
answers the first request with just that call, and the next one with the end.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from rookery.agents.life import Life
from rookery.agents.refusals import LOGS
from rookery.sessions.executing_children import Children
from rookery.sessions.executing_outcome import begun, require_unbound, runnable, size_of
from rookery.sessions.executing_plays import Play, Plays
from rookery.sessions.executing_running import LONGEST_SECONDS, Running
from rookery.sessions.hidden import is_hidden
from rookery.sessions.records import Progress, ToolRun, not_found
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

_SECONDS = 30.0
_TELL_SECONDS = 5.0
_STOP_SECONDS = 10.0
# A child may be gone by the time that it is used.
_TRIES = 2


class Executor:
    """`plays` are shown to the model that agents know as `injection.TOOL_MODEL`; progress is told so often."""

    def __init__(self, plays: Plays, tell_seconds: float = _TELL_SECONDS) -> None:
        self._plays, self._tell_seconds = plays, tell_seconds
        self._children = Children()
        self._tasks = TaskSet("tools by name")

    async def execute(
        self,
        life: Life,
        session_id: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        wait: bool = True,
        timeout: float = _SECONDS,
        progress: Progress | None = None,
    ) -> ToolRun:
        """What came of it; past the time limit it is ended. Without `wait` it runs on by itself, once it has begun.

        Raises `invalid-input` for a tool that is not there, `tool-denied` for one that is not allowed, `timeout`,
        `session-not-found` or `agent-unavailable`. A tool that fails has a run that says so.
        """
        require_unbound(tool)
        play = Play(tool, _written(args))
        if wait:
            return await self._run(life, session_id, play, timeout, progress)
        task = self._tasks.start(self._by_itself(life, session_id, play), tool)
        await asyncio.wait([task, play.offered], return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and tool in play.offered.result():
            return begun(play, session_id)
        if isinstance(found := await task, RookeryError):
            raise found
        return found

    async def tools(self, life: Life, session_id: str, timeout: float = _SECONDS) -> list[str]:
        """Those that can be run in a session, tools of servers included."""
        play = Play(None, {})
        await self._run(life, session_id, play, timeout, None)
        return runnable(play.offered.result())

    async def close(self) -> None:
        await self._tasks.close()

    # ---- one call

    async def _by_itself(self, life: Life, session_id: str, play: Play) -> ToolRun | RookeryError:
        try:
            return await self._run(life, session_id, play, LONGEST_SECONDS, None)
        except RookeryError as error:
            return error

    async def _run(self, life: Life, session_id: str, play: Play, timeout: float, progress: Progress | None) -> ToolRun:
        until = asyncio.get_running_loop().time() + timeout
        with life.awake():
            for _ in range(_TRIES):
                running = await self._begun(life, session_id, play, until)
                found = await self._ended(running, until, progress)
                self._tasks.start(self._keep(running, found), "keep")
                if isinstance(found, ToolRun):
                    return found
                if found.code != "session-not-found" or play.offered.done():
                    raise found
        raise RookeryError("agent-unavailable", "OpenCode does not keep the session that it has just made", LOGS)

    async def _begun(self, life: Life, session_id: str, play: Play, until: float) -> Running:
        try:
            async with asyncio.timeout_at(until):
                session = await life.client.session(session_id)
                if is_hidden(session):
                    raise not_found(session_id)
                child = await self._children.take(life.client, session)
        except TimeoutError:
            raise _late(play, "the agent has not taken it up") from None
        return Running.begin(self._tasks, life, session, child, play)

    async def _ended(self, running: Running, until: float, progress: Progress | None) -> ToolRun | RookeryError:
        running.life.listeners.append(running.hear)
        try:
            with self._plays.playing(running.child.id, running.play, running.life.process.token):
                async with asyncio.timeout_at(until):
                    return await running.ended(progress, self._tell_seconds)
        except TimeoutError:
            late = _late(running.play, running.doing())
            # What is said to have ended has ended.
            await asyncio.shield(self._tasks.start(self._stop(running), "stop"))
            raise late from None
        except BaseException:
            self._tasks.start(self._stop(running), "stop")
            raise
        finally:
            running.life.listeners.remove(running.hear)

    # ---- what is left of a child's turn

    async def _keep(self, running: Running, found: ToolRun | RookeryError) -> None:
        """Have the child for the next call, once its turn is over."""
        if isinstance(await running.turn, RookeryError):
            self._children.leave(running.child)
        else:
            self._children.give_back(running.child, size_of(found) if isinstance(found, ToolRun) else 0)

    async def _stop(self, running: Running) -> None:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await running.stop()
        except (TimeoutError, RookeryError):
            running.turn.cancel()
        finally:
            self._children.leave(running.child)


def _written(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments, which can be written as JSON."""
    try:
        msgspec.json.encode(dict(args))
    except (TypeError, ValueError) as error:
        raise RookeryError("invalid-input", f"these arguments are no JSON: {error}", "give plain values") from None
    return args


def _late(play: Play, doing: str) -> RookeryError:
    told = f"the time is over in which {play.tool} was to end, and it was ended: {doing}"
    return RookeryError("timeout", told, "give it more time, or do not wait for it")
