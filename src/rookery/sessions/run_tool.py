"""Run a tool of an agent by its name, with the permission rules of a session.

OpenCode runs tools only for models. So a hidden child of the session gets a turn with a model of Rookery's own, which
answers the first request with exactly that call and the next one with the end of the turn. The conversation of the
session itself stays as it is. Children are reused until their history makes them slow.
"""

import asyncio
import hmac
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rookery.agents.opencode.api import AgentClient
from rookery.agents.opencode.config import TOOL_MODEL
from rookery.agents.opencode.errors import LOGS_HINT
from rookery.agents.opencode.events import AgentEvent, SessionDeleted, SessionUpdated
from rookery.agents.opencode.records import Message, Session
from rookery.agents.run import AgentRun
from rookery.sessions.conversion import EXECUTE_TOOL_ORIGIN, HIDDEN_TITLE, convert_tool_run, is_hidden
from rookery.sessions.records import Progress, ToolRun, session_not_found
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.tasks import TaskSet

MAX_CONCURRENT_CALLS = 16
# OpenCode sends the whole history of a child with every call, so a child is replaced after this many calls or bytes.
_MAX_CHILD_CALLS = 50
_MAX_CHILD_BYTES = 200_000
_MAX_SESSIONS = 500

# Tools whose whole effect is on the conversation in which they are called.
CONVERSATION_TOOLS = frozenset(
    {"todowrite", "todoread", "task", "question", "plan_enter", "plan_exit", "StructuredOutput"}
)
# OpenCode calls this tool, with success, in place of a tool that does not exist or whose arguments are not valid JSON.
_INVALID_TOOL = "invalid"
# A turn has no time limit of its own; the caller that waits for it has one.
MAX_TURN_SECONDS = 7 * 86_400.0
# The call is in the last message or the one before it.
_NEWEST_MESSAGES = 3
_DEFAULT_SECONDS = 30.0
_PROGRESS_SECONDS = 5.0
_STOP_SECONDS = 10.0
# A child may have been deleted before it is used.
_MAX_TRIES = 2


@dataclass
class HiddenChild:
    """A hidden child session. `rules` are the permissions of its session when it was created.

    `size` is the approximate number of bytes of the inputs and outputs of its calls.
    """

    id: str
    session: str
    rules: tuple[dict[str, str], ...]
    calls: int = 0
    size: int = 0

    @property
    def is_worn_out(self) -> bool:
        """Whether the history of the child is too long for another call."""
        return self.calls >= _MAX_CHILD_CALLS or self.size >= _MAX_CHILD_BYTES


class HiddenChildPool:
    """The hidden children of all sessions.

    A child runs one tool at a time; a session has one for each concurrent call.
    """

    def __init__(self) -> None:
        # Idle children by session, the most recently used session last.
        self._free: OrderedDict[str, list[HiddenChild]] = OrderedDict()
        self._in_use: Counter[str] = Counter()

    async def take(self, client: AgentClient, session: Session) -> HiddenChild:
        """Return an idle child with the current permission rules of the session; create one if there is none.

        Raise an error if `MAX_CONCURRENT_CALLS` tools run in the session already.
        """
        if self._in_use[session.id] >= MAX_CONCURRENT_CALLS:
            raise RookeryError(
                "invalid-input",
                f"{MAX_CONCURRENT_CALLS} tools are already running in {session.id}",
                "wait until one of them has ended",
            )
        self._in_use[session.id] += 1
        free = self._free.get(session.id, [])
        while free:
            if (child := free.pop()).rules == session.permission:
                return child
        try:
            child_session = await client.create_session(
                title=HIDDEN_TITLE, parent=session.id, agent=session.agent, permission=session.permission or None
            )
        except BaseException:
            self._decrement(session.id)
            raise
        return HiddenChild(child_session.id, session.id, session.permission)

    def release(self, child: HiddenChild, size: int) -> None:
        """Return an idle child to the pool after a call of this size."""
        self._decrement(child.session)
        child.calls += 1
        child.size += size
        if not child.is_worn_out:
            self._free.setdefault(child.session, []).append(child)
            self._free.move_to_end(child.session)
            if len(self._free) > _MAX_SESSIONS:
                self._free.popitem(last=False)

    def discard(self, child: HiddenChild) -> None:
        """Give up a child that may still be busy, or no longer exists."""
        self._decrement(child.session)

    def _decrement(self, session: str) -> None:
        self._in_use[session] -= 1
        if not self._in_use[session]:
            del self._in_use[session]


class ScriptedCall:
    """One call of `tool` that the model is to make, and that OpenCode records under `id`.

    Without a tool, the agent is only asked which tools it offers.

    `offered` gets the tools that the agent offers with its first request. `finished` is done when the agent sends the
    result.
    """

    def __init__(self, tool: str | None, arguments: Mapping[str, Any]) -> None:
        self.id = f"call_{new_id()}"
        self.tool = tool
        self.arguments = arguments
        loop = asyncio.get_running_loop()
        self.offered: asyncio.Future[frozenset[str]] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()

    def begin(self, offered: Iterable[str]) -> bool:
        """Record the tools that the agent offers, perhaps with a repeated request; return whether to call the tool."""
        names = frozenset(offered)
        if not self.offered.done():
            self.offered.set_result(names)
        return self.tool in names

    def end(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)


class ScriptedCalls:
    """The calls that hidden children are to make, at most one in each child at a time."""

    def __init__(self) -> None:
        self._by_child: dict[str, tuple[ScriptedCall, bytes]] = {}

    def get(self, child: str | None, key: str | None) -> ScriptedCall | None:
        """Return the call of a child if `key` is the key of its agent. To know the id of the child is not enough."""
        entry = self._by_child.get(child) if child is not None else None
        if entry is None or not key or not hmac.compare_digest(key.encode(), entry[1]):
            return None
        return entry[0]

    @contextmanager
    def registered(self, child: str, call: ScriptedCall, key: str) -> Generator[None]:
        """Register a call for a child until the end of the block, for the agent with this key."""
        if child in self._by_child:
            raise RookeryError("internal-error", f"{child} already plays another call")
        self._by_child[child] = call, key.encode()
        try:
            yield
        finally:
            del self._by_child[child]


def require_runnable(tool: str) -> None:
    """Raise an error for a tool that only works inside a conversation."""
    if tool in CONVERSATION_TOOLS or tool == _INVALID_TOOL:
        raise RookeryError(
            "invalid-input",
            f"the tool {tool!r} works only inside a conversation",
            "send a message that asks the agent to use it",
        )


def list_runnable(offered: Iterable[str]) -> list[str]:
    """Return the tools that can be called by name, of those that an agent offers to its model."""
    return sorted(name for name in offered if name not in CONVERSATION_TOOLS and name != _INVALID_TOOL)


def not_offered_error(tool: str, offered: Iterable[str], all_tools: Iterable[str]) -> RookeryError:
    """Return the error for a tool that is not offered. `all_tools` are all tools that the agent has, offered or not."""
    names = list_runnable(offered)
    if tool in all_tools:
        message = f"the tool {tool!r} exists, but the rules of this session or its agent do not allow it"
        return RookeryError("tool-denied", message, "change the permission rules, or use another agent", names)
    message = f"there is no tool {tool!r} in this session; available: {', '.join(names) or 'none'}"
    return RookeryError("invalid-input", message, "use one of them", names)


def make_running_run(call: ScriptedCall, session: str) -> ToolRun:
    """Return the record of a call of which nothing is known yet except that it was requested."""
    tool = call.tool or ""
    arguments = dict(call.arguments)
    return ToolRun(
        id=call.id, session_id=session, tool=tool, input=arguments, status="running", origin=EXECUTE_TOOL_ORIGIN
    )


def find_outcome(messages: Sequence[Message], call: ScriptedCall, session: str) -> ToolRun | None:
    """Return the recorded run of a call, attributed to `session`; None if OpenCode has not recorded the call."""
    for message in messages:
        for part in message.parts:
            if part.type == "tool" and part.call == call.id and part.state is not None:
                run = msgspec.structs.replace(
                    convert_tool_run(part, session, EXECUTE_TOOL_ORIGIN), id=call.id, tool=call.tool or ""
                )
                # OpenCode does not record the arguments of a call that it refuses.
                return run if run.input is not None else msgspec.structs.replace(run, input=dict(call.arguments))
    return None


def measure_run(run: ToolRun) -> int:
    """Return roughly how many bytes a run adds to the history of its child."""
    return len(run.output or run.error or "") + len(msgspec.json.encode(run.input))


def _new_future() -> "asyncio.Future[RookeryError]":
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, eq=False)
class RunningCall:
    """A call that is running.

    `turn` returns the last message of the child, or the error of the turn. `stop_reason` gets the error if the call is
    to be stopped.
    """

    agent_run: AgentRun
    session: Session
    child: HiddenChild
    call: ScriptedCall
    turn: "asyncio.Task[Message | RookeryError]"
    stop_reason: "asyncio.Future[RookeryError]" = field(default_factory=_new_future)

    @staticmethod
    def start(
        tasks: TaskSet, agent_run: AgentRun, session: Session, child: HiddenChild, call: ScriptedCall
    ) -> "RunningCall":
        """Start the turn of a child in which the call is made."""
        return RunningCall(
            agent_run, session, child, call, tasks.start(_run_turn(agent_run.client, session, child, call), "turn")
        )

    def describe_activity(self) -> str:
        """Describe the activity of the call."""
        asks = [ask for state in self.agent_run.watcher.sessions for ask in state.asks if ask.session == self.child.id]
        return f"it waits for an answer: {asks[0].text}" if asks else f"{self.call.tool} runs"

    def on_event(self, event: AgentEvent) -> None:
        """Mark the call as unwanted if its session was closed or deleted meanwhile."""
        match event:
            case SessionDeleted(id_):
                closed_id = id_
            case SessionUpdated(session) if session.time.archived is not None:
                closed_id = session.id
            case _:
                return
        if closed_id == self.session.id and not self.stop_reason.done():
            message = f"{closed_id} was closed while {self.call.tool} ran"
            self.stop_reason.set_result(RookeryError("session-not-found", message, "run it in another session"))

    async def wait(self, progress: Progress | None, seconds: float) -> ToolRun | RookeryError:
        """Wait for the outcome, and report progress every `seconds`.

        Raise the error with which the call became unwanted.
        """
        futures = {self.turn, self.call.finished, self.stop_reason}
        while not (await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0]:
            if progress is not None:
                await progress(self.describe_activity())
        if self.stop_reason.done():
            raise self.stop_reason.result()
        return await self._outcome()

    async def stop(self) -> None:
        """Stop the turn after its call is no longer registered."""
        if self.call.offered.done() and not self.turn.done():
            await self.agent_run.client.abort(self.child.id)
        await self.turn

    async def _outcome(self) -> ToolRun | RookeryError:
        call = self.call
        client = self.agent_run.client
        if self.turn.done() and isinstance(error := self.turn.result(), RookeryError):
            return RookeryError(error.code, f"{call.tool} did not finish: {error.message}", error.remedy)
        if call.offered.done() and call.tool not in (offered := call.offered.result()):
            if call.tool is None:
                return make_running_run(call, self.session.id)
            return not_offered_error(call.tool, offered, await client.tool_ids())
        messages = await client.messages(self.child.id, _NEWEST_MESSAGES)
        if (run := find_outcome(messages, call, self.session.id)) is not None:
            return run
        reason = next(
            (message.info.error.message for message in reversed(messages) if message.info.error is not None), ""
        )
        message = f"{call.tool} was not run: {reason or 'OpenCode sent no request to its model'}"
        return RookeryError("agent-unavailable", message, LOGS_HINT)


async def _run_turn(
    client: AgentClient, session: Session, child: HiddenChild, call: ScriptedCall
) -> Message | RookeryError:
    """Start a turn in the child and return its last message, or the error."""
    prompt = f"Run {call.tool}." if call.tool is not None else "Which tools are there?"
    try:
        return await client.send(child.id, prompt, agent=session.agent, model=TOOL_MODEL, seconds=MAX_TURN_SECONDS)
    except RookeryError as error:
        return error


class HiddenChildExecutor:
    """Runs tools in hidden children.

    The model that agents know as `TOOL_MODEL` plays the calls of `calls`. Progress is reported every
    `progress_seconds`.
    """

    def __init__(self, calls: ScriptedCalls, progress_seconds: float = _PROGRESS_SECONDS) -> None:
        self._calls = calls
        self._progress_seconds = progress_seconds
        self._children = HiddenChildPool()
        self._tasks = TaskSet("tools by name")

    async def execute(
        self,
        agent_run: AgentRun,
        session_id: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        wait: bool = True,
        timeout: float = _DEFAULT_SECONDS,
        progress: Progress | None = None,
    ) -> ToolRun:
        """Run a tool and return the run; stop the tool after the time limit.

        Without `wait`, return once the tool has started; it keeps running.

        Raise `invalid-input` for a tool that does not exist, `tool-denied` for one that is not allowed, `timeout`,
        `session-not-found` or `agent-unavailable`. A tool that fails raises nothing: its run has the error.
        """
        require_runnable(tool)
        call = ScriptedCall(tool, _require_json(args))
        if wait:
            return await self._run(agent_run, session_id, call, timeout, progress)
        task = self._tasks.start(self._run_in_background(agent_run, session_id, call), tool)
        await asyncio.wait([task, call.offered], return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and tool in call.offered.result():
            return make_running_run(call, session_id)
        if isinstance(outcome := await task, RookeryError):
            raise outcome
        return outcome

    async def tools(self, agent_run: AgentRun, session_id: str, timeout: float = _DEFAULT_SECONDS) -> list[str]:
        """Return the tools that can be run in a session, including those of MCP servers."""
        call = ScriptedCall(None, {})
        await self._run(agent_run, session_id, call, timeout, None)
        return list_runnable(call.offered.result())

    async def close(self) -> None:
        await self._tasks.close()

    async def _run_in_background(
        self, agent_run: AgentRun, session_id: str, call: ScriptedCall
    ) -> ToolRun | RookeryError:
        """Run a call for which no caller waits; return its error instead of raising it."""
        try:
            return await self._run(agent_run, session_id, call, MAX_TURN_SECONDS, None)
        except RookeryError as error:
            return error

    async def _run(
        self, agent_run: AgentRun, session_id: str, call: ScriptedCall, timeout: float, progress: Progress | None
    ) -> ToolRun:
        deadline = asyncio.get_running_loop().time() + timeout
        with agent_run.keep_awake():
            for _ in range(_MAX_TRIES):
                running = await self._start(agent_run, session_id, call, deadline)
                outcome = await self._wait(running, deadline, progress)
                self._tasks.start(self._return_child(running, outcome), "keep")
                if isinstance(outcome, ToolRun):
                    return outcome
                if outcome.code != "session-not-found" or call.offered.done():
                    raise outcome
        raise RookeryError("agent-unavailable", "OpenCode lost the session that it has just created", LOGS_HINT)

    async def _start(self, agent_run: AgentRun, session_id: str, call: ScriptedCall, deadline: float) -> RunningCall:
        """Start the call in a hidden child of the session."""
        try:
            async with asyncio.timeout_at(deadline):
                session = await agent_run.client.session(session_id)
                if is_hidden(session):
                    raise session_not_found(session_id)
                child = await self._children.take(agent_run.client, session)
        except TimeoutError:
            raise _timeout_error(call, "the agent has not started it") from None
        return RunningCall.start(self._tasks, agent_run, session, child, call)

    async def _wait(self, running: RunningCall, deadline: float, progress: Progress | None) -> ToolRun | RookeryError:
        """Wait for the outcome of a call until the deadline, and stop the turn if the wait fails."""
        running.agent_run.listeners.append(running.on_event)
        try:
            with self._calls.registered(running.child.id, running.call, running.agent_run.process.token):
                async with asyncio.timeout_at(deadline):
                    return await running.wait(progress, self._progress_seconds)
        except TimeoutError:
            error = _timeout_error(running.call, running.describe_activity())
            # The tool must have stopped before the error says so.
            await asyncio.shield(self._tasks.start(self._stop(running), "stop"))
            raise error from None
        except BaseException:
            self._tasks.start(self._stop(running), "stop")
            raise
        finally:
            running.agent_run.listeners.remove(running.on_event)

    async def _return_child(self, running: RunningCall, outcome: ToolRun | RookeryError) -> None:
        """Return the child to the pool once its turn is over."""
        if isinstance(await running.turn, RookeryError):
            self._children.discard(running.child)
        else:
            self._children.release(running.child, measure_run(outcome) if isinstance(outcome, ToolRun) else 0)

    async def _stop(self, running: RunningCall) -> None:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await running.stop()
        except (TimeoutError, RookeryError):
            running.turn.cancel()
        finally:
            self._children.discard(running.child)


def _require_json(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments if they can be written as JSON, else raise an error."""
    try:
        msgspec.json.encode(dict(args))
    except (TypeError, ValueError) as error:
        raise RookeryError(
            "invalid-input", f"these arguments are not valid JSON: {error}", "give plain values"
        ) from None
    return args


def _timeout_error(call: ScriptedCall, activity: str) -> RookeryError:
    message = f"{call.tool} did not finish in time and was stopped: {activity}"
    return RookeryError("timeout", message, "give it more time, or do not wait for it")
