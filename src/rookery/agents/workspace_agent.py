"""The agent of one workspace, its first prompt, and the events about both.

The agent starts when the workspace is prepared.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from rookery.agents import first_prompt
from rookery.agents.activity import ActivityStore
from rookery.agents.admission import NEEDS_APPROVAL_TEXT, FirstTurnLimiter, PreparationBarrier
from rookery.agents.launch import Launcher
from rookery.agents.opencode.install import ProgressCallback
from rookery.agents.opencode.project_config import APPROVAL_KIND
from rookery.agents.policy import SupervisionIntervals
from rookery.agents.run import AgentRun, StartedAgent
from rookery.agents.supervisor import AgentSupervisor
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.workspaces.model import AgentActivity, AgentInfo, AgentStatus, Need, Workspace, format_path

logger = logging.getLogger("rookery.agents")
# Time for running turns to end before their process is stopped.
_ENDING_SECONDS = 5.0
# A first prompt that times out is tried this many times before the failure is reported.
_SILENT_TIMEOUTS = 3
_MAX_PAUSE = 10.0
_SENDING = "its first prompt is being sent"
_ANSWERING = "its first prompt was sent; waiting for the model"


def describe_queue(before: int) -> str:
    """Return the text for a first prompt that waits behind `before` others."""
    return f"its first prompt is queued behind {'one other' if before == 1 else f'{before} others'}"


class WorkspaceAgent:
    """The agent of one workspace. `git_folder` is the workspace's git folder."""

    def __init__(
        self,
        workspace: Workspace,
        git_folder: Path,
        *,
        launcher: Launcher,
        barrier: PreparationBarrier,
        admission: FirstTurnLimiter,
        events: Bus,
        idle_seconds: float,
        intervals: SupervisionIntervals,
        on_started: Callable[["WorkspaceAgent", AgentRun], None],
    ) -> None:
        self.workspace = workspace
        self.git_folder = git_folder
        # The session of the first prompt.
        self.session: str | None = None
        # Whether the launch context has changed since the agent was started.
        self.outdated = False
        # Why the first prompt was not sent.
        self.unsent: RookeryError | None = None
        # Why no model answers the first prompt.
        self.unanswered: RookeryError | None = None
        self._launcher = launcher
        self._barrier = barrier
        self._admission = admission
        self._events = events
        self._queue_position = 0
        # The progress of the first prompt, once the agent runs.
        self._detail = ""
        self._published: tuple[AgentInfo, AgentStatus] = AgentInfo(), AgentStatus()
        self._start_task: asyncio.Task[None] | None = None
        # Set when the outcome of the first prompt is known, and when another attempt is worthwhile.
        self._settled = asyncio.Event()
        self._retry = asyncio.Event()
        self._changed = asyncio.Event()
        self._on_started = on_started
        self._announced_run: AgentRun | None = None
        self._tasks = TaskSet(f"workspace {workspace.name}")
        self.activity = ActivityStore(git_folder)
        self.supervisor = AgentSupervisor(
            workspace.name,
            self._start,
            self.publish_changes,
            sessions=self.activity.sessions(),
            idle_seconds=idle_seconds,
            intervals=intervals,
        )

    def start_and_prompt(self) -> None:
        """Start the agent once the workspace is prepared, and send the first prompt if one is saved."""
        self._settled.clear()
        self._retry.set()
        if self._start_task is None or self._start_task.done():
            self._start_task = self._tasks.keep_running(self._start_and_prompt, "take up")

    @property
    def is_active(self) -> bool:
        """Whether the agent runs, or is about to run."""
        waits = self._start_task is not None and not self._start_task.done()
        return waits or self.supervisor.state in ("starting", "running", "restarting")

    @property
    def is_starting(self) -> bool:
        """Whether the agent is about to listen: it has not failed, and it does not wait for an approval."""
        agent = self.supervisor
        if agent.state == "stopped":
            return self._start_task is not None and not self._start_task.done()
        return agent.state in ("starting", "restarting") and agent.error is None and agent.detail != NEEDS_APPROVAL_TEXT

    async def wait_until_started(self) -> None:
        """Wait until the agent listens, or is no longer about to listen. Do not start it."""
        while self.is_starting:
            self._changed.clear()
            await self._changed.wait()

    def watch_turn(self, run: AgentRun, session: str) -> None:
        """Keep the agent awake until a requested turn has begun."""
        self._tasks.start(run.keep_awake_until_begun(session), "turn")

    @property
    def is_prompt_pending(self) -> bool:
        """Whether a first prompt is about to be sent, so that its session does not exist yet."""
        pending = self._start_task is not None and not self._start_task.done() and not self._settled.is_set()
        return pending and first_prompt.load(self.git_folder) is not None

    async def wait_until_prompted(self) -> None:
        """Wait until `start_and_prompt` has succeeded or failed. A failure is retried in the background."""
        if self._start_task is not None:
            await self._settled.wait()

    def require_sent(self, prefix: str = "") -> None:
        """Raise the reason why the first prompt was not sent, with `prefix` before it, or why no model answers it."""
        if (error := self.unsent) is not None:
            raise RookeryError(error.code, f"{prefix}{error.message}", error.remedy)
        if self.unanswered is not None:
            raise self.unanswered

    async def end_turns(self) -> None:
        """Abort the running turns, so that OpenCode records them as ended and not as cut off.

        OpenCode then also records the responses that it received before: an agent itself may have requested the end of
        its workspace.
        """
        if (run := self.supervisor.run) is None:
            return
        with contextlib.suppress(RookeryError, TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                await asyncio.gather(*map(run.client.abort, run.running))
                # Wait until the activity record shows that the turns have ended, before the process ends.
                await run.wait_for_turns()

    async def close(self) -> bool:
        """Stop the agent and return whether there was anything to stop."""
        await self._tasks.close()
        return await self.supervisor.stop()

    def info(self) -> AgentInfo:
        """Return the state of the agent as interfaces show it."""
        agent = self.supervisor
        run = self.supervisor.run
        unapproved = run.started.context.unapproved if run is not None else ""
        needs = self.activity.needs(agent.sessions)
        if unapproved:
            needs.append(Need("needs-approval", f"{unapproved}: rookery guard approve {APPROVAL_KIND}", APPROVAL_KIND))
        if self.unsent is not None and agent.error is None:
            text = f"{self.unsent.message}; {self.unsent.remedy}" if self.unsent.remedy else self.unsent.message
            needs.append(Need("prompt-not-sent", f"the first prompt was not sent: {text}"))
        if (error := self.unanswered) is not None:
            needs.append(Need(error.code, f"{error.message}; {error.remedy}", self.session or ""))
        return AgentInfo(
            state=agent.state,
            port=run.process.port if run is not None else None,
            pid=run.process.pid if run is not None else None,
            error=agent.error,
            detail=describe_queue(self._queue_position) if self._queue_position else self._detail or agent.detail,
            notes=(*run.started.notes, *([unapproved] if unapproved else [])) if run is not None else (),
            needs_restart=self.outdated and run is not None,
            attention=tuple(needs),
            activity="waiting" if self.unanswered is not None else self._activity(),
        )

    def _activity(self) -> AgentActivity:
        return self.activity.summary(self.supervisor.sessions, queued=first_prompt.load(self.git_folder) is not None)

    def publish_changes(self) -> None:
        """Record the activity of the sessions, and publish changes."""
        self.activity.observe(self.supervisor.sessions)
        if self.unanswered is not None and self.session in [
            session.id for session in self.supervisor.sessions if session.state == "idle"
        ]:
            # The turn is over: either it was answered after all, or it counts as failed.
            self.unanswered = None
        previous = self._published
        current = (self.info(), self.supervisor.status)
        self._published = current
        self._changed.set()
        if current[0] != previous[0]:
            self._publish("agent.state", agent=msgspec.to_builtins(current[0]))
        if current[1] != previous[1]:
            self._publish("agent.status", status=msgspec.to_builtins(current[1]))
        if self.supervisor.run is not None and self.supervisor.run is not self._announced_run:
            self._announced_run = self.supervisor.run
            self._on_started(self, self._announced_run)
            if first_prompt.load(self.git_folder) is not None:
                self.start_and_prompt()

    async def _start_and_prompt(self) -> None:
        workspace = await self._barrier.wait_until_prepared(self.workspace, self.supervisor.report_waiting)
        self.supervisor.start()
        await self._foresee_failure()
        failures = 0
        while (prompt := first_prompt.load(self.git_folder)) is not None:
            self._retry.clear()
            run: AgentRun | None = None
            try:
                async with self.supervisor.keep_awake() as run, self._admission.turn(self._on_queue_change) as waited:
                    # The start of this process is no reason for another attempt.
                    self._retry.clear()
                    self._publish("agent.admitted", waited=waited)
                    self._set_detail(_SENDING)
                    proxied = run.process.is_proxied
                    with run.track_first_steps() as steps:
                        sent = await first_prompt.send(run.client, workspace, self.git_folder, prompt, proxied=proxied)
                        first_prompt.delete(self.git_folder)
                        self._set_detail(_ANSWERING)
                        self.session = sent.session
                        self.watch_turn(run, sent.session)
                        if not sent.answered:
                            # Callers that wait for the end of the turn must not take it for one that is yet to begin.
                            await steps.wait_until_begun(sent.session)
                        self._on_sent(sent.session, await steps.wait_for_answer(sent.session) if sent.only_free else "")
                        await steps.wait_for_first_step(sent.session)
                break
            except (RookeryError, OSError) as caught:
                error = caught if isinstance(caught, RookeryError) else RookeryError("internal-error", str(caught))
                failures += 1
                self._set_detail("")
                self._on_send_failed(error, failures)
                await self._wait_for_retry(run, error, failures)
                continue
        self._settled.set()
        self.publish_changes()

    async def _foresee_failure(self) -> None:
        """Report at once that no model will answer, if that is known; the prompt is sent nevertheless."""
        if first_prompt.load(self.git_folder) is None:
            return
        try:
            error = await self._launcher.foresee_failure(self.workspace)
        except RookeryError:
            return  # the start of the agent reports the same error
        if error is not None:
            self._on_send_failed(error, 1)

    def _set_detail(self, detail: str) -> None:
        """Publish the progress of the first prompt."""
        self._detail = detail
        self.publish_changes()

    def _on_sent(self, session: str, failure: str) -> None:
        self.unsent = None
        self._detail = ""
        self.unanswered = first_prompt.unanswered_error(failure) if failure else None
        error = self.unanswered.as_dict() if self.unanswered is not None else None
        self._publish("agent.prompted", session=session, error=error)
        self._settled.set()
        self.publish_changes()

    def _on_queue_change(self, position: int) -> None:
        """Publish how many first prompts are sent before this one."""
        self._queue_position = position
        self.publish_changes()

    def _on_send_failed(self, error: RookeryError, failures: int) -> None:
        # An error that was foreseen, or that is the same as the last one, is not reported again.
        if self.unsent is None or self.unsent.as_dict() != error.as_dict():
            logger.warning("the first prompt of %s was not sent: %s", self.workspace.name, error.message)
            # An agent that takes long may just be one of many.
            if error.code == "timeout" and failures < _SILENT_TIMEOUTS:
                return
            self.unsent = error
            self._publish("agent.prompted", session=None, error=error.as_dict())
        self._settled.set()
        self.publish_changes()

    async def _wait_for_retry(self, run: AgentRun | None, error: RookeryError, failures: int) -> None:
        """Wait before another attempt: for a pause, or for the next process if this one has ended or cannot succeed."""
        ended = run is None or self.supervisor.run is not run
        if ended and self.supervisor.run is not None:
            return
        hopeless = ended or error.code == first_prompt.NO_PROVIDER
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if hopeless else min(2.0 ** (failures - 1), _MAX_PAUSE)):
                await self._retry.wait()

    async def _start(self, on_progress: ProgressCallback) -> StartedAgent:
        self.outdated = False
        return await self._launcher.start(self.workspace, on_progress)

    def _publish(self, event: str, **fields: object) -> None:
        workspace = self.workspace
        self._events.publish(
            event, project=workspace.project.id, name=workspace.name, path=format_path(workspace.path), **fields
        )
