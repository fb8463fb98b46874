"""Send messages and follow the turns that they start, from the first event to the last."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from rookery.agents.first_prompt import MAX_PROMPT_BYTES
from rookery.agents.opencode.api import AgentClient, new_message_id
from rookery.agents.opencode.records import MessageInfo
from rookery.sessions.aliases import AgentChoice
from rookery.sessions.follow import ChangeFollower, require_timeout
from rookery.sessions.index import SessionRef
from rookery.sessions.records import Progress, SessionAsk, SessionMessage, Turn, TurnReport, TurnUpdate
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

if TYPE_CHECKING:
    from rookery.sessions.transcript import Transcript

_AGENT_ENDED = "the agent ended in the middle of the turn; `rookery agent resume` continues it"
_SESSION_CLOSED = "the session was closed"
# OpenCode confirms a message at once, and reports a moment later that the turn runs.
_START_SECONDS = 10.0


class TurnSender:
    """Sends messages and waits for the turns that they start."""

    def __init__(self, follower: ChangeFollower, clock: Clock) -> None:
        self._follower = follower
        self._clock = clock

    async def send(
        self,
        ref: SessionRef,
        content: str,
        choice: AgentChoice,
        *,
        wait: bool,
        seconds: float,
        progress: Progress | None,
        report: TurnReport | None = None,
    ) -> Turn:
        """Send a message and return its turn. Without `wait`, return once the turn runs."""
        _check_content(content)
        require_timeout(seconds)
        workspace_sessions = ref.workspace_sessions
        async with workspace_sessions.use_agent() as agent_run, workspace_sessions.transcripts.pinned(ref.session):
            running_turn = _RunningTurn(
                ref, content, workspace_sessions.ended_runs, _TurnReporter(report) if report is not None else None
            )
            with running_turn.sending():
                await running_turn.start(agent_run.client, choice, self._clock.wall() * 1000)
                workspace_sessions.workspace_agent.watch_turn(agent_run, ref.id)
                if not wait:
                    await self._follower.wait_until(
                        ref, running_turn.has_started, _START_SECONDS, describe_activity=str
                    )
                    return Turn(session_id=ref.id, message_id=running_turn.message, status="taken")
                is_over = await self._follower.wait_until(
                    ref,
                    running_turn.check_over,
                    seconds,
                    describe_activity=lambda: describe_activity(ref),
                    progress=progress,
                )
                if is_over is None:
                    # Wait until the turn shows as running, so that the next caller does not take the session for idle
                    # on a slow machine.
                    await self._follower.wait_until(
                        ref, running_turn.has_started, _START_SECONDS, describe_activity=str
                    )
                    is_over = await running_turn.check_over()
                return running_turn.turn(is_over is not None)


class _RunningTurn:
    """One turn. `message` is the id of the message that started it, and is empty until that is known."""

    def __init__(self, ref: SessionRef, content: str, ended_runs: int, reporter: "_TurnReporter | None" = None) -> None:
        self.ref = ref
        self.message = ""
        self._content = content
        self._ended_runs = ended_runs
        self._reporter = reporter
        self._is_alone = True
        self._earlier_ids: frozenset[str] = frozenset()
        self._transcript: Transcript | None = None
        self._error: str | None = None

    @contextmanager
    def sending(self) -> Generator[None]:
        """Count the message as being sent, so that a turn is expected before OpenCode reports it."""
        sending = self.ref.workspace_sessions.sending
        self._is_alone = not sending[self.ref.id] and not self.ref.is_running
        sending[self.ref.id] += 1
        try:
            yield
        finally:
            sending[self.ref.id] -= 1
            sending += Counter()

    async def start(self, client: AgentClient, choice: AgentChoice, now: float) -> None:
        """Send the message.

        With an id chosen here the turn is identified at once. But OpenCode only answers messages that are newer than
        its own last one: while it may be writing, it has to choose the id itself.
        """
        transcript = await self.ref.workspace_sessions.transcripts.transcript(self.ref.session)
        self._earlier_ids = frozenset(info.id for info in transcript.infos())
        self.message = new_message_id(now) if self._is_alone else ""
        await client.prompt(
            self.ref.id, self._content, agent=choice.agent, model=choice.model, message=self.message or None
        )

    async def find_message(self) -> Literal[True] | None:
        """Find the id of the message if OpenCode chose it; return True once it is known, else None."""
        if not self.message:
            workspace_sessions = self.ref.workspace_sessions
            transcript = await workspace_sessions.transcripts.transcript(self.ref.session)
            for message in transcript.messages(running=True):
                is_new = (
                    message.role == "user"
                    and message.id not in self._earlier_ids
                    and message.id not in workspace_sessions.matched_messages
                )
                if is_new and message.content.startswith(self._content):
                    self.message = message.id
                    workspace_sessions.matched_messages.append(message.id)
                    break
        return True if self.message else None

    async def has_started(self) -> Literal[True] | None:
        """Return True once the turn runs or is over, else None.

        From then on, a caller that waits for the end of the turn does not take it for one that has not started.
        """
        return True if await self.check_over() or (await self.find_message() and self.ref.is_running) else None

    async def check_over(self) -> Literal[True] | None:
        """Return True once the turn is over, else None, and report its progress."""
        workspace_sessions = self.ref.workspace_sessions
        if workspace_sessions.ended_runs != self._ended_runs:
            self._error = _AGENT_ENDED
            return True
        try:
            if not await self.find_message():
                return None
            session = self.ref.session
            self._transcript = await workspace_sessions.transcripts.transcript(session)
            summary = await workspace_sessions.transcripts.summary(session)
        except RookeryError as error:
            self._error = _SESSION_CLOSED if error.code == "session-not-found" else error.message
            return True
        if self._reporter is not None:
            await self._reporter.report_changes(self.message, self._replies(), workspace_sessions.asks(self.ref.id))
        if not is_turn_over(
            list(self._transcript.infos()), self.message, running=self.ref.is_running, failed=summary.failed
        ):
            return None
        self._error = summary.error if summary.failed else None
        return True

    def turn(self, over: bool) -> Turn:
        """Return the turn as a record."""
        replies = self._replies()
        error = self._error or (replies[-1].error if replies else None)
        status = "timeout" if not over else "finished" if error is None else "error"
        return Turn(
            session_id=self.ref.id,
            message_id=self.message,
            status=status,
            content="\n".join(message.content for message in replies if message.content),
            parts=tuple(run for message in replies for run in message.parts),
            error=error if over else None,
            messages=replies,
            asks=() if over else tuple(self.ref.workspace_sessions.asks(self.ref.id)),
            note=None if over else f"the turn is still running: {describe_activity(self.ref)}",
        )

    def _replies(self) -> tuple[SessionMessage, ...]:
        """Return the assistant's messages of this turn."""
        if self._transcript is None or not self.message:
            return ()
        later = self._transcript.after(self.message, running=self.ref.is_running)
        own = {info.id for info in self._transcript.infos() if info.parent == self.message}
        # A message that was sent during another turn is answered together with that turn, and has no replies of its own
        # then.
        return tuple(message for message in later if message.role == "assistant" and (not own or message.id in own))


class _TurnReporter:
    """Reports new text, tool runs and asks of a turn."""

    def __init__(self, report: TurnReport) -> None:
        self._report = report
        self._taken = False
        # The reported number of characters of each message, the reported state of each tool, and the reported asks.
        self._texts: Counter[str] = Counter()
        self._tools: dict[str, str] = {}
        self._asks: set[str] = set()

    async def report_changes(self, message: str, replies: Sequence[SessionMessage], asks: Sequence[SessionAsk]) -> None:
        """Compare the turn with the last call, and report the differences."""
        if not self._taken:
            self._taken = True
            await self._report(TurnUpdate(kind="taken", message_id=message))
        for reply in replies:
            for run in reply.parts:
                await self._report_text(reply, run.offset or 0)
                # A pending run has no input yet.
                if run.status not in ("pending", self._tools.get(run.id)):
                    self._tools[run.id] = run.status
                    await self._report(TurnUpdate(kind="tool", message_id=reply.id, tool=run))
            await self._report_text(reply, len(reply.content))
        for ask in asks:
            if ask.id not in self._asks:
                self._asks.add(ask.id)
                await self._report(TurnUpdate(kind="ask", message_id=message, ask=ask))

    async def _report_text(self, message: SessionMessage, until: int) -> None:
        """Report the text of a message up to an offset."""
        start = self._texts[message.id]
        if until > start:
            self._texts[message.id] = until
            await self._report(TurnUpdate(kind="text", message_id=message.id, text=message.content[start:until]))


def is_turn_over(infos: Sequence[MessageInfo], message: str, *, running: bool, failed: bool) -> bool:
    """Return whether the turn that `message` started has ended.

    `failed` is whether a turn has failed or was stopped since the newest message of a person.
    """
    newer = [info for info in infos if info.id > message]
    answers = [info for info in newer if info.role == "assistant"]
    if running:
        # Other messages may have been sent meanwhile, which are answered next.
        own = [info for info in answers if info.parent == message]
        return bool(own) and _is_final(own[-1]) and any(info.role == "user" for info in newer)
    if not any(info.id == message for info in infos):
        return False
    return _is_complete(answers[-1]) if answers else failed


def _is_complete(info: MessageInfo) -> bool:
    return info.error is not None or info.time.completed is not None


def _is_final(info: MessageInfo) -> bool:
    return info.error is not None or (_is_complete(info) and info.finish not in ("tool-calls", "unknown", None))


def describe_activity(ref: SessionRef) -> str:
    """Describe the activity of a session in words."""
    state = ref.workspace_sessions.state(ref.id)
    if state is None or state.state in ("idle", "interrupted"):
        return state.state if state is not None else "the agent does not run"
    if state.asks:
        return f"waits for an answer: {state.asks[0].text}"
    if state.state == "retry":
        return f"the request to the model is retried: {state.detail}"
    return ref.workspace_sessions.transcripts.describe_last_message(ref.id) or "busy"


def _check_content(content: str) -> None:
    """Raise an error for a message that is empty or too long."""
    if not content.strip():
        raise RookeryError("invalid-input", "the message is empty", "describe the task")
    if len(content.encode("utf-8", "surrogatepass")) > MAX_PROMPT_BYTES:
        raise RookeryError(
            "invalid-input", f"the message is longer than {MAX_PROMPT_BYTES} bytes", "put it into a file"
        )
