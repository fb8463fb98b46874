"""The operations on sessions: life cycle, messages, waits, toasts, tools and asks. Times are in milliseconds."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rookery.operations.operation import AGENT_START_LIMIT, Caller, McpTool, Parameters, RestRoute, operation
from rookery.operations.results import Emit, EventResult, NotedResult
from rookery.sessions.records import (
    CloseResult,
    MessagePage,
    SessionAsk,
    SessionInfo,
    SessionMessage,
    ShownToast,
    Toast,
    ToolRun,
    Turn,
    TurnUpdate,
    WaitKind,
    WaitResult,
    WaitResults,
)
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

_MILLISECONDS = 1000
# What the daemon may need in addition to the time limit of a wait: it may have to start an agent.
TIME_LIMIT = 180.0
SESSION_PATH = "/api/sessions/{session}"
_SINCE = "Time in milliseconds since the epoch"
SESSION_NAME = {"session": "sessionId"}

Session = Annotated[str, Meta(description="Id of the session, as returned by list_sessions")]
AnySession = Annotated[str | None, Meta(description="Id of the session; default: all that you may access")]
Milliseconds = Annotated[
    float, Meta(description="How long to wait at most, in milliseconds", extra={"unit": "milliseconds"})
]
Moment = Annotated[float | None, Meta(description=_SINCE, extra={"unit": "milliseconds"})]

# The default time limits of waits.
_TOAST_MILLISECONDS = 10_000
_WAIT_MILLISECONDS = 30_000


class CreateSession(Parameters):
    directory: Annotated[
        str, Meta(description="Working directory: the path of a workspace; a folder in it means the whole workspace")
    ]
    agent: Annotated[str | None, Meta(description="Agent type (e.g., claude, gpt), or an agent of OpenCode")] = None
    model: Annotated[str | None, Meta(description="Model identifier, as provider/model")] = None
    title: Annotated[str | None, Meta(description="Title of the session")] = None


class ListSessions(Parameters):
    project: Annotated[str | None, Meta(description="Id of a project; default: all")] = None
    workspace: Annotated[str | None, Meta(description="Name of a workspace; default: all")] = None


class OneSession(Parameters):
    session: Session


class CloseSession(Parameters):
    session: Session
    delete: Annotated[bool, Meta(description="If true, delete its history too")] = False


class SendMessage(Parameters):
    session: Session
    content: Annotated[str, Meta(description="The message")]
    wait: Annotated[bool, Meta(description="If false, return as soon as the message is accepted")] = True
    stream: Annotated[
        bool, Meta(description="If true, the response is a stream of events", extra={"form": "events"})
    ] = False
    timeout: Milliseconds = 30_000
    agent: Annotated[str | None, Meta(description="Agent for this turn; default: that of the session")] = None
    model: Annotated[str | None, Meta(description="Model for this turn, as provider/model")] = None


class GetMessages(Parameters):
    session: Session
    limit: Annotated[float, Meta(description="Maximum number of messages; the newest are returned")] = 50
    since: Annotated[
        float | None,
        Meta(description="Timestamp to get messages after, in milliseconds", extra={"unit": "milliseconds"}),
    ] = None
    before: Annotated[
        str | None, Meta(description="Id of a message: get the newest ones before it, to page through older messages")
    ] = None


class WaitForMessage(Parameters):
    session: Session
    pattern: Annotated[str, Meta(description="Regex pattern to match")]
    timeout: Milliseconds = _WAIT_MILLISECONDS
    role: Annotated[
        Literal["user", "assistant"] | None, Meta(description="Only messages of the user, or of the assistant")
    ] = None
    since: Annotated[
        float | None,
        Meta(description=f"{_SINCE}; messages before it do not count", extra={"unit": "milliseconds"}),
    ] = None


class WaitForToast(Parameters):
    session: Session
    pattern: Annotated[str, Meta(description="Regex pattern to match toast")]
    timeout: Milliseconds = _TOAST_MILLISECONDS
    since: Annotated[
        float | None, Meta(description=f"{_SINCE}; toasts before it do not count", extra={"unit": "milliseconds"})
    ] = None


class WaitCondition(Parameters):
    """What to wait for. The other parameters depend on `what`."""

    what: Annotated[
        WaitKind,
        Meta(description="message, toast, idle (no turn runs), tool (the end of a run), file or screen"),
    ]
    pattern: Annotated[
        str | None,
        Meta(description="Regex pattern; required for message, toast and screen, optional for tool and file"),
    ] = None
    tool: Annotated[str | None, Meta(description="For tool: its name; default: any")] = None
    path: Annotated[str | None, Meta(description="For file: its path, relative to the session's directory")] = None
    role: Annotated[
        Literal["user", "assistant"] | None, Meta(description="For message: of the user, or of the assistant")
    ] = None
    since: Annotated[
        float | None,
        Meta(
            description=f"{_SINCE}; for message, toast and tool: nothing before it counts",
            extra={"unit": "milliseconds"},
        ),
    ] = None
    timeout: Annotated[
        float | None,
        Meta(
            description="How long to wait at most, in milliseconds; default: 10000 for a toast, else 30000",
            extra={"unit": "milliseconds", "longest_default": _WAIT_MILLISECONDS},
        ),
    ] = None

    @property
    def seconds(self) -> float:
        default = _TOAST_MILLISECONDS if self.what == "toast" else _WAIT_MILLISECONDS
        return (default if self.timeout is None else self.timeout) / _MILLISECONDS


class WaitInSession(WaitCondition, kw_only=True):
    session: Session


class WaitInSessions(WaitCondition, kw_only=True):
    sessions: Annotated[list[str], Meta(description="Ids of the sessions, as returned by list_sessions", min_length=1)]
    mode: Annotated[
        Literal["any", "all"], Meta(description="Whether one of the sessions is enough, or all must match")
    ] = "all"


class GetToasts(Parameters):
    session: AnySession = None
    since: Annotated[
        float | None,
        Meta(
            description=f"{_SINCE}: all toasts since then, including those no longer displayed",
            extra={"unit": "milliseconds"},
        ),
    ] = None


class ShowToast(Parameters):
    session: Session
    message: Annotated[str, Meta(description="Text of the toast")]
    title: Annotated[str | None, Meta(description="Title of the toast")] = None
    variant: Annotated[Literal["info", "success", "warning", "error"], Meta(description="Kind of the toast")] = "info"
    duration: Annotated[
        int, Meta(description="How long it is displayed, in milliseconds", extra={"unit": "milliseconds"})
    ] = 5000


class ExecuteTool(Parameters):
    session: Session
    tool: Annotated[
        str,
        Meta(
            description="read, write, bash, edit, grep, or any other tool that the agent has",
            examples=["read", "write", "bash", "edit", "grep"],
        ),
    ]
    args: Annotated[dict[str, Any], Meta(description="Arguments of the tool, as the model would give them")] = (
        msgspec.field(default_factory=dict[str, Any])
    )
    wait: Annotated[bool, Meta(description="If false, return the id of the run at once")] = True
    timeout: Milliseconds = 120_000


class GetToolHistory(Parameters):
    session: AnySession = None
    limit: Annotated[float, Meta(description="Maximum number of runs; the newest are returned")] = 20


class ListAsks(Parameters):
    session: AnySession = None


class AnswerAsk(Parameters):
    ask: Annotated[str, Meta(description="Id of the permission or question, as returned by list_asks")]
    session: Annotated[str | None, Meta(description="Id of its session")] = None
    reply: Annotated[
        Literal["once", "always", "reject"] | None,
        Meta(description="To a permission: allow it once, always, or not; reject also declines a question"),
    ] = None
    answers: Annotated[
        list[list[str]] | None, Meta(description="To questions: for each one the labels that are chosen")
    ] = None
    message: Annotated[
        str | None, Meta(description="With reject: a message to the model, which then continues; without it, it stops")
    ] = None


def _fail_turn(turn: Turn) -> NotedResult:
    failed = turn.status == "error"
    return NotedResult(turn, error=RookeryError("turn-failed", turn.error or "the turn failed") if failed else None)


def _fail_run(run: ToolRun) -> NotedResult:
    if run.status not in ("error", "aborted"):
        return NotedResult(run)
    return NotedResult(run, error=RookeryError("tool-failed", run.error or run.status))


def _list_messages(page: MessagePage) -> NotedResult:
    return NotedResult(page.messages, page.note)


class SessionOperations:
    """The operations on sessions. `record_view` is called with the id of a session that the user has viewed."""

    group = "session"

    def __init__(self, sessions: Sessions, record_view: Callable[[str], None]) -> None:
        self._sessions = sessions
        self._record_view = record_view

    # Life cycle

    @operation(
        access="workspace",
        time_limit=AGENT_START_LIMIT,
        rest=RestRoute("POST", "/api/sessions", (201,)),
        mcp=McpTool(
            "session",
            "create_session",
            "Create a new OpenCode session in the workspace that contains `directory`, with the root of that workspace "
            "as its working directory; the agent is started if it does not run. Returns its id and workspace. `notes` "
            "lists anything that differs from your request.",
        ),
        python="sessions.create",
    )
    async def create(self, caller: Caller, arguments: CreateSession) -> SessionInfo:
        """Create a session in the workspace at `directory`; starts its agent if necessary."""
        return await self._sessions.create(
            arguments.directory, arguments.agent, arguments.model, title=arguments.title, scope=caller.scope
        )

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", "/api/sessions"),
        mcp=McpTool(
            "session",
            "list_sessions",
            "List all active sessions: id, directory, status (active, idle, error), number of messages and last "
            "activity of each, the one used last first.",
            omit=frozenset({"project", "workspace"}),
        ),
        python="sessions.list",
    )
    async def list(self, caller: Caller, arguments: ListSessions) -> Sequence[SessionInfo]:
        """All open sessions, the most recently used first; `?project=` and `?workspace=` filter by id and name.

        With both of them, the sessions of an agent that is starting are waited for.
        """
        project = arguments.project
        workspace = arguments.workspace
        if project is not None and workspace is not None and caller.scope is None:
            return await self._sessions.list_in(project, workspace)
        return [
            session
            for session in await self._sessions.list(caller.scope)
            if project in (None, session.project) and workspace in (None, session.workspace)
        ]

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", SESSION_PATH),
        mcp=McpTool(
            "session",
            "get_session",
            "Get session details: what it does, with OpenCode's own status beside it, and how its last turn failed.",
            names=SESSION_NAME,
        ),
        python="sessions.get",
    )
    async def show(self, caller: Caller, arguments: OneSession) -> SessionInfo:
        """A session: its state, number of messages, time of last activity, and the failure of its last turn."""
        return self._viewed(caller, arguments.session, await self._sessions.get(arguments.session, caller.scope))

    @operation(
        access="workspace",
        rest=RestRoute("DELETE", SESSION_PATH),
        mcp=McpTool(
            "session",
            "close_session",
            "Close a session: its turn and all calls that wait for it end, and it is no longer listed. OpenCode keeps "
            "its history, unless `delete` is true.",
            names=SESSION_NAME,
            destructive=True,
        ),
        python="Session.close",
    )
    async def close(self, caller: Caller, arguments: CloseSession) -> CloseResult:
        """Close a session: its turn and all waits for it end. `?delete=true` deletes its history too."""
        return await self._sessions.close(arguments.session, caller.scope, delete=arguments.delete)

    @operation(
        access="workspace",
        rest=RestRoute("POST", f"{SESSION_PATH}/abort"),
        mcp=McpTool(
            "session",
            "abort_turn",
            "Abort the running turn of a session, if there is one, and return the session. What was done so far stays.",
            names=SESSION_NAME,
            destructive=True,
            forbid_unknown=True,
        ),
        python="Session.abort",
    )
    async def abort(self, caller: Caller, arguments: OneSession) -> SessionInfo:
        """Abort the running turn, if there is one; returns the session."""
        return await self._sessions.abort(arguments.session, caller.scope)

    # Messages

    @operation(
        access="workspace",
        cancellable=True,
        time_limit=TIME_LIMIT,
        rest=RestRoute(
            "POST",
            f"{SESSION_PATH}/messages",
            media_types=("application/json", "text/event-stream"),
            events={**dict.fromkeys(("taken", "text", "tool", "ask"), TurnUpdate), "turn": Turn},
        ),
        mcp=McpTool(
            "session",
            "send_message",
            "Send a message to OpenCode session. Waits for the end of the turn and returns what the assistant said and "
            "which tools it ran; after `timeout` returns status timeout and the result so far, while the turn goes on.",
            names=SESSION_NAME | {"wait": "waitForResponse"},
            omit=frozenset({"stream"}),
            present=_fail_turn,
        ),
        python="Session.send",
    )
    async def send(self, caller: Caller, arguments: SendMessage) -> Turn | EventResult:
        """Send a message; returns at the end of the turn, at `timeout`, or without `wait` immediately. See `status`.

        With `stream`, server-sent events report the progress: `taken`, `text`, `tool` and `ask`, and finally the
        `turn`.
        """
        send = partial(
            self._sessions.send,
            arguments.session,
            arguments.content,
            wait=arguments.wait,
            timeout=arguments.timeout / _MILLISECONDS,
            agent=arguments.agent,
            model=arguments.model,
            scope=caller.scope,
            progress=caller.progress,
        )
        if not arguments.stream:
            return self._viewed(caller, arguments.session, await send())

        async def run(emit: Emit) -> Turn:
            async def report(update: TurnUpdate) -> None:
                await emit(update.kind, update)

            return self._viewed(caller, arguments.session, await send(report=report))

        return EventResult(run, "turn")

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", f"{SESSION_PATH}/messages"),
        mcp=McpTool(
            "session",
            "get_messages",
            "Get all messages in session: the newest ones, in the order they were made, each with its text as content. "
            "A note after the list says when older messages are left out, and with which `before` you get them.",
            names=SESSION_NAME,
            present=_list_messages,
            result=Sequence[SessionMessage],
        ),
        python="Session.messages_page",
    )
    async def messages(self, caller: Caller, arguments: GetMessages) -> MessagePage:
        """The newest `?limit=` messages (50), in the order of their creation, after `?since=`.

        If older messages are left out, `before` in the response is an id: `?before=` with that id returns the previous
        page.
        """
        page = await self._sessions.messages(
            arguments.session,
            max(int(arguments.limit), 0),
            arguments.since,
            caller.scope,
            before=arguments.before,
        )
        return self._viewed(caller, arguments.session, page)

    # Waits

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        time_limit=TIME_LIMIT,
        rest=RestRoute("POST", f"{SESSION_PATH}/wait", names={"what": "for"}),
        python="Session.wait_for",
        absent={"mcp": "`wait_for` takes one session as well as several"},
    )
    async def wait(self, caller: Caller, arguments: WaitInSession) -> WaitResult:
        """Wait until a session meets the condition `for`, such as idle or message; `found` is false on timeout."""
        result = await self._wait(caller, arguments.session, arguments, arguments.seconds)
        return self._viewed(caller, arguments.session, result)

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        time_limit=TIME_LIMIT,
        rest=RestRoute("POST", "/api/sessions/wait", names={"what": "for"}),
        mcp=McpTool(
            "session",
            "wait_for",
            "Wait until sessions meet a condition: a message, a toast or text on the screen that matches, no running "
            "turn (idle), the end of a tool, or a file. Waits for all of the sessions, or with mode any for one. "
            "Returns for each session what matched, or what was seen last; found is false on timeout.",
            names={"what": "for", "sessions": "sessionIds"},
            forbid_unknown=True,
        ),
        python="sessions.wait_for",
    )
    async def wait_for(self, caller: Caller, arguments: WaitInSessions) -> WaitResults:
        """Wait until `any` or `all` of several sessions meet a condition; returns a result for each of them."""
        ids = list(dict.fromkeys(arguments.sessions))
        waits = TaskSet("waits for sessions")
        tasks = [waits.start(self._try_wait(caller, id_, arguments, arguments.seconds), id_) for id_ in ids]
        try:
            pending = set(tasks)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                results = [_raise_error(task.result()) for task in done]
                if arguments.mode == "any" and any(result.found for result in results):
                    break
        finally:
            await waits.close()
        # A wait of no length returns what was seen last by those that were still waiting.
        results = [
            _raise_error(task.result()) if not task.cancelled() else await self._wait(caller, id_, arguments, 0.0)
            for id_, task in zip(ids, tasks, strict=True)
        ]
        found = [result.found for result in results]
        return WaitResults(found=any(found) if arguments.mode == "any" else all(found), results=results)

    async def _try_wait(
        self, caller: Caller, session: str, condition: WaitCondition, seconds: float
    ) -> WaitResult | RookeryError:
        try:
            return await self._wait(caller, session, condition, seconds)
        except RookeryError as error:
            return error

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        time_limit=TIME_LIMIT,
        mcp=McpTool(
            "session",
            "wait_for_message",
            "Wait for specific message pattern. Existing messages count. On timeout, found is "
            "false and seen contains what was seen last.",
            names=SESSION_NAME,
        ),
        python="Session.wait_for_message",
        absent={"rest": "`POST /api/sessions/{session}/wait` with `for: message` is this wait"},
    )
    async def wait_for_message(self, caller: Caller, arguments: WaitForMessage) -> WaitResult:
        """Wait for a message that matches the regular expression. Existing messages count."""
        return await self._sessions.wait_for_message(
            arguments.session,
            arguments.pattern,
            arguments.timeout / _MILLISECONDS,
            role=arguments.role,
            since=arguments.since,
            scope=caller.scope,
            progress=caller.progress,
        )

    @operation(
        access="workspace",
        changes=False,
        cancellable=True,
        time_limit=TIME_LIMIT,
        mcp=McpTool(
            "session",
            "wait_for_toast",
            "Wait for specific toast message of a session. Displayed toasts count, those of other sessions do not; one "
            "whose session is not known does, and `attributed` is false. On timeout, found is false and seen "
            "contains what was seen last.",
            names=SESSION_NAME,
        ),
        python="Session.wait_for_toast",
        absent={"rest": "`POST /api/sessions/{session}/wait` with `for: toast` is this wait"},
    )
    async def wait_for_toast(self, caller: Caller, arguments: WaitForToast) -> WaitResult:
        """Wait for a toast that matches the regular expression. Toasts of other sessions do not count."""
        return await self._sessions.wait_for_toast(
            arguments.session,
            arguments.pattern,
            arguments.timeout / _MILLISECONDS,
            since=arguments.since,
            scope=caller.scope,
            progress=caller.progress,
        )

    def _wait(
        self, caller: Caller, session: str, condition: WaitCondition, seconds: float
    ) -> Coroutine[Any, Any, WaitResult]:
        sessions = self._sessions
        scope = caller.scope
        progress = caller.progress
        match condition.what:
            case "message":
                return sessions.wait_for_message(
                    session,
                    _require(condition.pattern, "pattern"),
                    seconds,
                    role=condition.role,
                    since=condition.since,
                    scope=scope,
                    progress=progress,
                )
            case "toast":
                pattern = _require(condition.pattern, "pattern")
                return sessions.wait_for_toast(
                    session, pattern, seconds, since=condition.since, scope=scope, progress=progress
                )
            case "idle":
                return sessions.wait_for_idle(session, seconds, scope=scope, progress=progress)
            case "tool":
                return sessions.wait_for_tool(
                    session,
                    condition.tool,
                    seconds,
                    pattern=condition.pattern,
                    since=condition.since,
                    scope=scope,
                    progress=progress,
                )
            case "file":
                path = _require(condition.path, "path")
                return sessions.wait_for_file(
                    session, path, seconds, pattern=condition.pattern, scope=scope, progress=progress
                )
            case "screen":
                pattern = _require(condition.pattern, "pattern")
                return sessions.wait_for_screen(session, pattern, seconds, scope=scope, progress=progress)

    # Toasts

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", f"{SESSION_PATH}/toasts", short_path="/api/sessions/toasts"),
        mcp=McpTool(
            "session",
            "get_toasts",
            "Get current toast notifications of a session, or of all; with `since` also those no longer displayed. "
            "Toasts of other sessions are left out; one whose session is not known is there, with `attributed` false. "
            "`source` is `screen` for one that OpenCode's own interface has raised on the session's terminal.",
            names=SESSION_NAME,
        ),
        python="Session.toasts",
    )
    async def toasts(self, caller: Caller, arguments: GetToasts) -> Sequence[Toast]:
        """The visible toasts of a session, or of all; with `?since=` also those that are no longer visible."""
        return await self._sessions.toasts(arguments.session, arguments.since, caller.scope)

    @operation(
        access="workspace",
        rest=RestRoute("POST", f"{SESSION_PATH}/toasts"),
        mcp=McpTool(
            "session",
            "show_toast",
            "Show a toast to the person who looks at the session's workspace.",
            names=SESSION_NAME,
            forbid_unknown=True,
        ),
        python="Session.show_toast",
    )
    async def show_toast(self, caller: Caller, arguments: ShowToast) -> ShownToast:
        """Show a toast in the session's workspace."""
        await self._sessions.show_toast(
            arguments.session,
            arguments.message,
            title=arguments.title,
            variant=arguments.variant,
            duration=arguments.duration,
            scope=caller.scope,
        )
        return ShownToast()

    # Tools

    @operation(
        access="workspace",
        cancellable=True,
        time_limit=TIME_LIMIT,
        rest=RestRoute(
            "POST", f"{SESSION_PATH}/tools", (200, 202), status=lambda arguments, _: 200 if arguments.wait else 202
        ),
        mcp=McpTool(
            "session",
            "execute_tool",
            "Execute an OpenCode tool programmatically, in the session's directory and under its permissions; the "
            "conversation stays as it is. A tool that needs permission waits until the user has answered.",
            names=SESSION_NAME | {"wait": "waitForCompletion"},
            required=frozenset({"args"}),
            present=_fail_run,
            destructive=True,
        ),
        python="Session.execute_tool",
    )
    async def execute_tool(self, caller: Caller, arguments: ExecuteTool) -> ToolRun:
        """Run a tool of the agent with the session's permissions, outside its conversation; see its `status`."""
        return await self._sessions.execute(
            arguments.session,
            arguments.tool,
            arguments.args,
            wait=arguments.wait,
            timeout=arguments.timeout / _MILLISECONDS,
            scope=caller.scope,
            progress=caller.progress,
        )

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", f"{SESSION_PATH}/tools", short_path="/api/sessions/tools"),
        mcp=McpTool(
            "session",
            "get_tool_history",
            "Get history of tool executions, the newest, in the order they began: input, output, status, start, end "
            "and error of each.",
            names=SESSION_NAME,
        ),
        python="Session.tool_history",
    )
    async def tool_history(self, caller: Caller, arguments: GetToolHistory) -> Sequence[ToolRun]:
        """The newest `?limit=` tool runs (20) of a session, or of all, in the order of their start."""
        return await self._sessions.tool_history(arguments.session, max(int(arguments.limit), 0), caller.scope)

    # Asks

    @operation(
        changes=False,
        rest=RestRoute("GET", f"{SESSION_PATH}/asks", short_path="/api/sessions/asks"),
        mcp=McpTool(
            "session",
            "list_asks",
            "List the permissions and questions that sessions wait for. Only for the owner.",
            names=SESSION_NAME,
            forbid_unknown=True,
        ),
        python="Session.asks",
    )
    async def asks(self, caller: Caller, arguments: ListAsks) -> Sequence[SessionAsk]:
        """The asks of a session, or of all sessions: permissions and questions, with the words to answer with."""
        return await self._sessions.asks(arguments.session)

    @operation(
        rest=RestRoute("POST", f"{SESSION_PATH}/asks/{{ask}}", short_path="/api/sessions/asks/{ask}"),
        mcp=McpTool(
            "session",
            "answer_ask",
            "Answer a permission or a question that a session waits for. Only for the owner, and only as the user "
            "told you to.",
            names={"ask": "askId"},
            omit=frozenset({"session"}),
            destructive=True,
            forbid_unknown=True,
        ),
        python="Session.answer",
    )
    async def answer(self, caller: Caller, arguments: AnswerAsk) -> SessionAsk:
        """Answer an ask of a session; returns the ask. Refused to processes that Rookery has started."""
        return await self._sessions.answer(
            arguments.ask, arguments.reply, answers=arguments.answers, message=arguments.message
        )

    def _viewed(self, caller: Caller, session: str | None, result: Any) -> Any:
        """Record that the user has viewed a session, and return the result."""
        if caller.is_user and session is not None:
            self._record_view(session)
        return result


def _raise_error(result: WaitResult | RookeryError) -> WaitResult:
    if isinstance(result, RookeryError):
        raise result
    return result


def _require(value: str | None, name: str) -> str:
    if value is None:
        raise RookeryError("invalid-input", f"{name} is missing", f"send {name} along with `for`")
    return value
