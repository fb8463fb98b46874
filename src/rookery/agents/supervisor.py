"""Supervise the agent of one workspace: start it once for all callers, restart it, stop it when it is idle."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Literal

from rookery.agents.policy import IdleTimer, RestartPolicy, SupervisionIntervals
from rookery.agents.run import AgentRun, StartedAgent, StartOutcome, wait_for_run
from rookery.agents.status import SessionState, mark_interrupted, summarize_status
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.workspaces.model import AgentStatus

logger = logging.getLogger("rookery.agents")

AgentState = Literal["stopped", "starting", "running", "asleep", "restarting", "failed"]
DetailCallback = Callable[[str], None]
# Starts the process, and reports meanwhile what the start waits for.
StartAgent = Callable[[DetailCallback], Awaitable[StartedAgent]]


class AgentSupervisor:
    """Starts, restarts and stops the agent of one workspace. `on_change` is called after every change of its state.

    `sessions` are the last known sessions of the previous run.
    """

    def __init__(
        self,
        name: str,
        start: StartAgent,
        on_change: Callable[[], None],
        *,
        sessions: tuple[SessionState, ...] = (),
        idle_seconds: float = 0.0,
        intervals: SupervisionIntervals = SupervisionIntervals(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.state: AgentState = "stopped"
        self.error: str | None = None
        self.detail: str | None = None
        self.run: AgentRun | None = None
        # The last known states. Sessions that ran when their process ended are interrupted.
        self.sessions = mark_interrupted(sessions)
        self._start = start
        self._on_change = on_change
        self._intervals = intervals
        self._clock = clock
        self._idle_timer = IdleTimer(idle_seconds, clock.monotonic())
        self._were_running = frozenset(session.id for session in self.sessions if session.state == "interrupted")
        self._supervision: asyncio.Task[None] | None = None
        # The outcome of the current start, or of the next one.
        self._outcome: StartOutcome = asyncio.get_running_loop().create_future()
        self._wake_requested = asyncio.Event()
        self._stop_lock = asyncio.Lock()
        self._tasks = TaskSet(f"agent {name}")

    @property
    def status(self) -> AgentStatus:
        return summarize_status(self.sessions) if self.state != "stopped" else AgentStatus()

    # Requests

    def report_waiting(self, detail: str) -> None:
        """Report that the agent will start, and what the start waits for."""
        if self._supervision is None:
            self._set_state("starting", detail=detail)

    def start(self) -> None:
        """Start the agent unless it is started; it is kept running until it is stopped."""
        if self._supervision is None:
            self._renew_outcome()
            error = self.error
            self._supervision = self._tasks.keep_running(lambda: self._supervise(error), "supervision")

    async def ensure_running(self) -> AgentRun:
        """Return the running process; start or wake it if necessary. Raise RookeryError if it cannot be started."""
        self.start()
        self._idle_timer.mark_used(self._clock.monotonic())
        if self.run is not None:
            return self.run
        self._wake_requested.set()
        return await wait_for_run(self._outcome)

    @contextlib.asynccontextmanager
    async def keep_awake(self) -> AsyncGenerator[AgentRun]:
        """Yield the running process like `ensure_running`, and keep it awake until the end of the block."""
        self._idle_timer.enter()
        try:
            yield await self.ensure_running()
        finally:
            self._idle_timer.leave(self._clock.monotonic())

    async def stop(self) -> bool:
        """Stop the agent and return whether there was anything to stop."""
        # A caller that is cancelled must not leave the agent half stopped.
        return await asyncio.shield(self._tasks.start(self._stop(), "stop"))

    async def restart(self) -> AgentRun:
        return await wait_for_run(await asyncio.shield(self._tasks.start(self._restart(), "restart")))

    async def _stop(self) -> bool:
        async with self._stop_lock:
            previous = self.state
            await self._cancel_supervision()
            message = f"the agent of {self.name} was stopped"
            self._resolve(RookeryError("agent-unavailable", message, "start it: rookery agent start"))
            self._set_state("stopped")
            return previous != "stopped"

    async def _restart(self) -> StartOutcome:
        async with self._stop_lock:
            await self._cancel_supervision()
            self._set_state("restarting")
            self.start()
            return self._outcome

    async def _cancel_supervision(self) -> None:
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
            self._supervision = None

    # Supervision

    async def _supervise(self, error: str | None) -> None:
        restarts = RestartPolicy(self._intervals.first_pause)
        if self.state != "restarting":
            self._set_state("starting", error=error)
        while True:
            outcome = await self._try_start()
            if isinstance(outcome, AgentRun):
                restarts.on_listening(self._clock.monotonic())
                reason = await self._watch_run(outcome)
                if reason is None:
                    self._set_state("asleep")
                    await self._wait_until_wanted(None)
                    self._set_state("starting")
                    continue
            else:
                reason = f"{outcome.message}; {outcome.remedy}" if outcome.remedy else outcome.message
            decision = restarts.on_failure(self._clock.monotonic())
            logger.warning("the agent of %s: %s; retrying in %g s", self.name, reason, decision.seconds)
            self._set_state(decision.state, error=reason)
            if isinstance(outcome, RookeryError):
                self._resolve(outcome)
                self._renew_outcome()
            await self._wait_until_wanted(decision.seconds)
            self._set_state("restarting", error=reason)

    async def _try_start(self) -> AgentRun | RookeryError:
        try:
            started = await self._start(self._on_detail)
        except RookeryError as error:
            return error
        except Exception as error:
            logger.exception("the agent of %s could not be started because of an internal error", self.name)
            return RookeryError("internal-error", f"{type(error).__name__}: {error}")
        return AgentRun(
            started,
            self._on_sessions_changed,
            self._idle_timer,
            were_running=self._were_running,
            failed={session.id: session.failure for session in self.sessions if session.failure is not None},
            intervals=self._intervals,
            clock=self._clock,
        )

    async def _watch_run(self, run: AgentRun) -> str | None:
        self.run = run
        self._set_state("running")
        self._resolve(run)
        try:
            reason = await run.wait_until_over()
            # Set here and not by the caller, so that the state is correct as soon as the run is over.
            self.state, self.error = ("asleep", None) if reason is None else ("restarting", reason)
            return reason
        finally:
            self.run, self._were_running, self.sessions = None, run.running, mark_interrupted(self.sessions)
            # Callers wait for the next run from now on.
            self._renew_outcome()
            await run.close()

    async def _wait_until_wanted(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_requested.wait()

    # State changes

    def _on_sessions_changed(self) -> None:
        if self.run is not None and self.run.sessions is not None:
            self.sessions = self.run.sessions
            self._on_change()

    def _on_detail(self, detail: str) -> None:
        self.detail = detail
        self._on_change()

    def _set_state(self, state: AgentState, *, error: str | None = None, detail: str | None = None) -> None:
        self.state = state
        self.error = error
        self.detail = detail
        self._on_change()

    def _resolve(self, outcome: AgentRun | RookeryError) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _renew_outcome(self) -> None:
        if self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()
            self._wake_requested.clear()
