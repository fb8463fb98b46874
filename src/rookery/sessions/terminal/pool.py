"""The terminals of all sessions: started on demand, limited in number, stopped when idle."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rookery.agents.opencode.events import AgentEvent, ProcessEnded, SessionDeleted, SessionUpdated
from rookery.agents.run import AgentRun
from rookery.sessions.terminal.terminal import DEFAULT_COLUMNS, DEFAULT_ROWS, InterfaceLaunch, Terminal, TerminalSize
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.process.spawn import Spawner
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.sessions")

MAX_TERMINALS = 4
IDLE_SECONDS = 300.0


class PooledTerminal:
    """A terminal and its use."""

    def __init__(self, terminal: Terminal, on_close: Callable[[], None], now: float) -> None:
        self.terminal = terminal
        self._on_close = on_close
        self.users = 0
        self.last_used = now
        self._closing = False
        # Whether the conversation was already seen on the screen.
        self.is_ready = False
        # A caller that sets the size captures the screen before another one may set the size.
        self.size_lock = asyncio.Lock()

    def remaining_seconds(self, now: float, idle_seconds: float) -> float:
        """Return how many seconds the terminal may still be idle."""
        return idle_seconds if self.users else self.last_used + idle_seconds - now

    @property
    def is_usable(self) -> bool:
        """Whether the terminal runs and is not being closed."""
        return self.terminal.is_alive and not self._closing

    async def close(self) -> None:
        self._closing = True
        self._on_close()
        await self.terminal.close()


class TerminalPool:
    """At most `max_terminals` terminals, each of which is stopped after `idle_seconds` without use.

    `user` returns the user's environment.
    """

    def __init__(
        self,
        spawner: Spawner,
        user: Callable[[], Awaitable[Mapping[str, str]]],
        *,
        max_terminals: int = MAX_TERMINALS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._spawner = spawner
        self._user = user
        self._clock = clock
        self._max_terminals = max_terminals
        self._idle_seconds = idle_seconds
        self._terminals: dict[str, PooledTerminal] = {}
        self._tasks = TaskSet("terminals")
        # Held while a terminal is started or stopped, so that the number of terminals is known.
        self._lock = asyncio.Lock()
        self._closed = False
        # Run for every terminal that is started, until they return or the pool is closed.
        self.terminal_tasks: list[Callable[[str, Terminal], Coroutine[Any, Any, None]]] = []

    @asynccontextmanager
    async def use(
        self, agent_run: AgentRun, session: str, size: TerminalSize | None = None
    ) -> AsyncGenerator[PooledTerminal]:
        """Keep the terminal of a session running for the block; start it, with this size, if there is none."""
        pooled = self._terminals.get(session)
        if pooled is None or not pooled.is_usable:
            async with self._lock:
                pooled = await self._get_or_start(agent_run, session, size or (DEFAULT_COLUMNS, DEFAULT_ROWS))
        pooled.users += 1
        try:
            yield pooled
        finally:
            pooled.users -= 1
            pooled.last_used = self._clock.monotonic()

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running terminals, by session."""
        return {session: pooled.terminal.pid for session, pooled in self._terminals.items() if pooled.terminal.is_alive}

    async def end(self, session: str) -> None:
        """Stop the terminal of a session, if it has one. The stop is completed even if the caller is cancelled."""
        await asyncio.shield(self._tasks.start(self._end(session), f"end {session}"))

    async def close(self) -> None:
        """Stop all terminals, and start no new ones."""
        self._closed = True
        async with self._lock:
            terminals, self._terminals = list(self._terminals.values()), {}
            await asyncio.gather(*(pooled.close() for pooled in terminals))
        await self._tasks.close()

    # Start

    async def _get_or_start(self, agent_run: AgentRun, session: str, size: TerminalSize) -> PooledTerminal:
        """Return the terminal of a session, started if there is none. Stop an idle one if the limit is reached."""
        pooled = self._terminals.get(session)
        if pooled is not None and pooled.is_usable:
            return pooled
        if self._closed or self._max_terminals == 0:
            raise RookeryError(
                "agent-unavailable", "no terminal can be started here", "set the number with sessions.terminals"
            )
        if pooled is not None:
            await self._remove(session)
        await self._make_space()
        launch = InterfaceLaunch(
            agent_run.started.installation.opencode,
            agent_run.process.url,
            agent_run.process.password,
            await self._user(),
            Path(agent_run.client.directory),
            agent_run.process.sandbox,
        )

        def on_event(event: AgentEvent) -> None:
            if _ends_session(event, session):
                self._tasks.start(self._end(session), f"end {session}")

        # Added before the start, so that no event is missed.
        agent_run.listeners.append(on_event)

        def remove_listener() -> None:
            if on_event in agent_run.listeners:
                agent_run.listeners.remove(on_event)

        try:
            terminal = await Terminal.start(self._spawner, launch, session, size)
        except BaseException:
            remove_listener()
            raise
        pooled = self._terminals[session] = PooledTerminal(terminal, remove_listener, self._clock.monotonic())
        self._tasks.keep_running(lambda: self._watch(session, pooled), "watch")
        for run_task in self.terminal_tasks:
            self._tasks.keep_running(functools.partial(run_task, session, terminal), "terminal task")
        if not agent_run.process.is_alive:
            await self._remove(session)
            raise RookeryError("agent-unavailable", "the agent has ended", "start it: rookery agent start")
        return pooled

    async def _make_space(self) -> None:
        """Remove ended terminals, then stop the least recently used idle ones until the number is below the limit."""
        for session in [id_ for id_, pooled in self._terminals.items() if not pooled.terminal.is_alive]:
            await self._remove(session)
        while len(self._terminals) >= self._max_terminals:
            idle = [session for session, pooled in self._terminals.items() if not pooled.users]
            if not idle:
                message = f"all {self._max_terminals} terminals are in use"
                raise RookeryError("limit-reached", message, "try again, or raise sessions.terminals")
            await self._remove(min(idle, key=lambda session: self._terminals[session].last_used))

    # Stop

    async def _watch(self, session: str, pooled: PooledTerminal) -> None:
        """Stop a terminal when its program has ended or it was idle for too long."""
        while self._terminals.get(session) is pooled:
            if pooled.terminal.is_alive and (remaining := self._remaining_seconds(pooled)) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(remaining):
                        await pooled.terminal.wait_ended()
                continue
            async with self._lock:
                # The terminal may have been used meanwhile: then it is watched further.
                in_use = pooled.terminal.is_alive and self._remaining_seconds(pooled) > 0
                if self._terminals.get(session) is pooled and not in_use:
                    await self._remove(session)

    def _remaining_seconds(self, pooled: PooledTerminal) -> float:
        return pooled.remaining_seconds(self._clock.monotonic(), self._idle_seconds)

    async def _end(self, session: str) -> None:
        async with self._lock:
            await self._remove(session)

    async def _remove(self, session: str) -> None:
        if (pooled := self._terminals.get(session)) is not None:
            try:
                await pooled.close()
            finally:
                self._terminals.pop(session, None)


def _ends_session(event: AgentEvent, session: str) -> bool:
    """Return whether an event means that the agent or the session has ended."""
    match event:
        case ProcessEnded():
            return True
        case SessionDeleted(id_):
            return id_ == session
        case SessionUpdated(updated):
            return updated.id == session and updated.time.archived is not None
        case _:
            return False
