"""One run of an agent's process: watched from when it listens until it exits, hangs or idles for long."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.agents.opencode.api import AgentClient
from rookery.agents.opencode.config import LaunchContext
from rookery.agents.opencode.events import (
    AgentEvent,
    PartDelta,
    PartUpdated,
    ProcessEnded,
    SessionStatusChanged,
    TurnFailed,
)
from rookery.agents.opencode.install import Installation
from rookery.agents.opencode.process import AgentProcess
from rookery.agents.policy import HangDetector, IdleTimer, SupervisionIntervals
from rookery.agents.watcher import AgentWatcher
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

if TYPE_CHECKING:
    from rookery.agents.status import SessionState, TurnFailure

_IDLE_CHECK_SECONDS = 3600.0
# A first turn takes seconds to begin, and much longer on a busy machine.
_BEGIN_SECONDS = 60.0
_SNAPSHOT_SECONDS = 120.0
# Time limit for the first output of a free model, or for its failure.
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class StartedAgent:
    """A listening process with its client, launch context and installation. `notes` say what does not work in it.

    `follows_servers` says whether changes of the MCP servers reach it while it runs.
    """

    process: AgentProcess
    client: AgentClient
    context: LaunchContext
    installation: Installation
    notes: tuple[str, ...] = ()
    follows_servers: bool = False


class AgentRun:
    """One run of an agent's process. `on_change` is called after every change of `sessions`, None until they are known.

    Functions that are in `listeners` before the run is watched receive every event.
    """

    def __init__(
        self,
        started: StartedAgent,
        on_change: Callable[[], None],
        idle_timer: IdleTimer,
        *,
        were_running: Collection[str] = (),
        failed: "Mapping[str, TurnFailure] | None" = None,
        intervals: SupervisionIntervals = SupervisionIntervals(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.started = started
        self.process = started.process
        self.client = started.client
        self.sessions: tuple[SessionState, ...] | None = None
        self.listeners: list[Callable[[AgentEvent], None]] = []
        self.watcher = AgentWatcher(
            started.client,
            self._on_watcher_change,
            on_event=self._dispatch,
            were_running=were_running,
            failed=failed,
            silence=intervals.silence,
            clock=clock,
        )
        self._were_running = frozenset(were_running)
        self._on_change = on_change
        self._idle_timer = idle_timer
        self._intervals = intervals
        self._clock = clock
        self._stream_lost = asyncio.Event()
        self._sessions_changed = asyncio.Event()

    @property
    def running(self) -> frozenset[str]:
        """The sessions with a running turn; until the sessions are known, those that ran in the previous run."""
        return self._were_running if self.sessions is None else self.watcher.running

    async def wait_until_over(self) -> str | None:
        """Watch the process until it has to end; return the reason, or None if it may only sleep."""
        tasks = TaskSet(f"life of {self.process.pid}")
        try:
            self.watcher.start()
            self._idle_timer.mark_used(self._clock.monotonic())
            died = tasks.start(self._wait_for_exit(), "end")
            hangs = tasks.start(self._wait_for_hang(), "hang")
            idle = tasks.start(self._wait_until_idle(), "idle")
            await asyncio.wait([died, hangs, idle], return_when=asyncio.FIRST_COMPLETED)
            # A task that crashed raises here, so that it is not mistaken for an agent that may sleep.
            return next((task.result() for task in (died, hangs, idle) if task.done()), None)
        finally:
            await tasks.close()

    @contextlib.contextmanager
    def keep_awake(self) -> Generator[None]:
        """Keep the agent awake until the end of the block."""
        self._idle_timer.enter()
        try:
            yield
        finally:
            self._idle_timer.leave(self._clock.monotonic())

    async def keep_awake_until_begun(self, session: str) -> None:
        """Keep the agent awake until a requested turn runs, with a time limit: OpenCode accepts it before it begins."""
        with self.keep_awake(), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                while session not in self.watcher.running:
                    self._sessions_changed.clear()
                    await self._sessions_changed.wait()

    async def wait_for_turns(self) -> None:
        """Wait until no session is in the middle of a turn."""
        while self.running:
            self._sessions_changed.clear()
            await self._sessions_changed.wait()

    @contextlib.contextmanager
    def track_first_steps(self) -> Generator["FirstStepTracker"]:
        """Track until the end of the block which sessions have begun the first step of a turn."""
        tracker = FirstStepTracker()
        self.listeners.append(tracker.on_event)
        try:
            yield tracker
        finally:
            self.listeners.remove(tracker.on_event)

    async def close(self) -> None:
        """Stop the watcher and the process, and send `ProcessEnded` to the listeners."""
        await self.watcher.close()
        self._dispatch(ProcessEnded())
        await self.process.stop()

    async def _wait_for_exit(self) -> str:
        return (await self.process.wait()).reason or "OpenCode ended"

    async def _wait_for_hang(self) -> str:
        checks = HangDetector()
        while True:
            await self._stream_lost.wait()
            failure = ""
            try:
                await self.client.health(self._intervals.check)
            except RookeryError as error:
                failure = error.message
            if checks.record_check(not failure):
                return f"OpenCode does not respond: {failure}"
            await asyncio.sleep(self._intervals.between_checks)

    async def _wait_until_idle(self) -> None:
        while True:
            # Until the sessions are known, one of them may be busy.
            busy = self.sessions is None or bool(self.running)
            seconds = self._idle_timer.seconds_left(self._clock.monotonic(), busy)
            if seconds == 0:
                return
            await asyncio.sleep(seconds if seconds is not None else _IDLE_CHECK_SECONDS)

    def _dispatch(self, event: AgentEvent) -> None:
        for listener in self.listeners:
            listener(event)

    def _on_watcher_change(self) -> None:
        if self.watcher.error is not None:
            # The known sessions may be outdated, but there is no newer state.
            self._stream_lost.set()
            return
        self._stream_lost.clear()
        self.sessions = self.watcher.sessions
        self._sessions_changed.set()
        self._idle_timer.mark_used(self._clock.monotonic())
        self._on_change()


class FirstStepTracker:
    """Tracks for which sessions OpenCode has taken its snapshot, or whose turn is over."""

    def __init__(self) -> None:
        self._first_steps_done: set[str] = set()
        self._started: set[str] = set()
        self._answered: set[str] = set()
        self._failures: dict[str, str] = {}
        self._ended = False
        self._news = asyncio.Event()

    def on_event(self, event: AgentEvent) -> None:
        """Handle an event of the agent."""
        match event:
            case PartUpdated(session, part) if b'"step-start"' in bytes(part):
                self._first_steps_done.add(session)
            case PartDelta(session=session):
                self._answered.add(session)
            case TurnFailed(session, error):
                self._first_steps_done.add(session)
                self._failures[session] = error.message
            case SessionStatusChanged(session, doing) if doing.type != "idle":
                self._started.add(session)
                if doing.type == "retry":
                    self._failures[session] = doing.message
            case SessionStatusChanged(session, _) if session in self._started:
                self._first_steps_done.add(session)
            case ProcessEnded():
                self._ended = True
            case _:
                return
        self._news.set()

    async def wait_for_answer(self, session: str) -> str:
        """Wait for the first output of the model, for a limited time; return why there is none, if that is known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while not self._ended and session not in self._answered and session not in self._failures:
                    self._news.clear()
                    await self._news.wait()
        return "" if session in self._answered else self._failures.get(session, "")

    async def wait_until_begun(self, session: str) -> None:
        """Wait until a requested turn runs or is over, for a limited time: OpenCode accepts it before it begins."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                while session not in self._started | self._first_steps_done and not self._ended:
                    self._news.clear()
                    await self._news.wait()

    async def wait_for_first_step(self, session: str) -> None:
        """Wait for the first step of a requested turn, for a limited time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                while session not in self._first_steps_done and not self._ended:
                    self._news.clear()
                    await self._news.wait()


# The outcome of a start.
StartOutcome = asyncio.Future[AgentRun | RookeryError]


async def wait_for_run(outcome: StartOutcome) -> AgentRun:
    """Return the run that a start led to, or raise its error. A cancelled caller does not cancel the start."""
    result = await asyncio.shield(outcome)
    if isinstance(result, RookeryError):
        raise RookeryError(result.code, result.message, result.remedy)
    return result
