"""The implementation of the session tools: milliseconds become seconds, failures become failed results."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from rookery.sessions.records import CloseResult, Progress, SessionAsk, SessionInfo, Toast, ToolRun, WaitResult
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError
from rookery.toolsets.resources import AnnotatedText
from rookery.toolsets.session.inputs import (
    AnswerAsk,
    CloseSession,
    CreateSession,
    ExecuteTool,
    GetMessages,
    GetToasts,
    GetToolHistory,
    ListAsks,
    NoInput,
    OneSession,
    SendMessage,
    WaitForMessage,
    WaitForToast,
)
from rookery.toolsets.toolset import NotedResult
from rookery.wire.protocol.provider import Call, report_progress

_MILLI = 1000


class SessionCalls:
    """The functions of the session tools. `scope` is the only accessible workspace, None for the owner."""

    def __init__(self, sessions: Sessions, scope: Path | None) -> None:
        self._sessions, self._scope = sessions, scope

    # Sessions

    async def create(self, call: Call, arguments: CreateSession) -> SessionInfo:
        return await self._sessions.create(
            arguments.directory, arguments.agent, arguments.model, title=arguments.title, scope=self._scope
        )

    async def list(self, call: Call, arguments: NoInput) -> Sequence[SessionInfo]:
        return await self._sessions.list(self._scope)

    async def get(self, call: Call, arguments: OneSession) -> SessionInfo:
        return await self._sessions.get(arguments.sessionId, self._scope)

    async def close(self, call: Call, arguments: CloseSession) -> CloseResult:
        return await self._sessions.close(arguments.sessionId, self._scope, delete=arguments.delete)

    # Messages

    async def send(self, call: Call, arguments: SendMessage) -> NotedResult:
        turn = await self._sessions.send(
            arguments.sessionId,
            arguments.content,
            wait=arguments.waitForResponse,
            timeout=arguments.timeout / _MILLI,
            agent=arguments.agent,
            model=arguments.model,
            scope=self._scope,
            progress=progress_reporter(call),
        )
        failed = turn.status == "error"
        return NotedResult(turn, error=RookeryError("turn-failed", turn.error or "the turn failed") if failed else None)

    async def messages(self, call: Call, arguments: GetMessages) -> NotedResult:
        page = await self._sessions.messages(
            arguments.sessionId, _count(arguments.limit), arguments.since, self._scope, before=arguments.before
        )
        return NotedResult(page.messages, page.note)

    async def wait_for_message(self, call: Call, arguments: WaitForMessage) -> WaitResult:
        return await self._sessions.wait_for_message(
            arguments.sessionId,
            arguments.pattern,
            arguments.timeout / _MILLI,
            role=arguments.role,
            since=arguments.since,
            scope=self._scope,
            progress=progress_reporter(call),
        )

    # Toasts

    async def toasts(self, call: Call, arguments: GetToasts) -> Sequence[Toast]:
        return await self._sessions.toasts(arguments.sessionId, arguments.since, self._scope)

    async def wait_for_toast(self, call: Call, arguments: WaitForToast) -> WaitResult:
        return await self._sessions.wait_for_toast(
            arguments.sessionId,
            arguments.pattern,
            arguments.timeout / _MILLI,
            since=arguments.since,
            scope=self._scope,
            progress=progress_reporter(call),
        )

    # Tools

    async def execute(self, call: Call, arguments: ExecuteTool) -> NotedResult:
        run = await self._sessions.execute(
            arguments.sessionId,
            arguments.tool,
            arguments.args,
            wait=arguments.waitForCompletion,
            timeout=arguments.timeout / _MILLI,
            scope=self._scope,
            progress=progress_reporter(call),
        )
        failed = run.status in ("error", "aborted")
        return NotedResult(
            run, error=RookeryError("tool-failed", run.error or f"it was {run.status}") if failed else None
        )

    async def history(self, call: Call, arguments: GetToolHistory) -> Sequence[ToolRun]:
        return await self._sessions.tool_history(arguments.sessionId, _count(arguments.limit), self._scope)

    # Permissions and questions

    async def asks(self, call: Call, arguments: ListAsks) -> Sequence[SessionAsk]:
        return await self._sessions.asks(arguments.sessionId, self._scope)

    async def answer(self, call: Call, arguments: AnswerAsk) -> SessionAsk:
        return await self._sessions.answer(
            arguments.askId, arguments.reply, answers=arguments.answers, message=arguments.message, scope=self._scope
        )

    # Resources

    async def read_session(self, call: Call, uri: str) -> str:
        return _json(await self._sessions.get(_read_id(uri), self._scope))

    async def read_messages(self, call: Call, uri: str) -> str | AnnotatedText:
        """Return all messages that are kept in memory, or with `?before=` a page of older ones."""
        query = parse_qs(urlsplit(uri).query)
        before, limit = (query.get(name, [None])[-1] for name in ("before", "limit"))
        if limit is not None and not (limit.isascii() and limit.isdecimal() and len(limit) < 10):
            raise RookeryError(
                "invalid-input", f"limit={limit[:40]!r} is not a number", "set limit to the number of messages to read"
            )
        count = int(limit) if limit is not None else None
        page = await self._sessions.messages(_read_id(uri), count, None, self._scope, before=before)
        if page.before is None:
            return _json(page.messages)
        more = f"messages://{_read_id(uri)}?before={page.before}" + (f"&limit={limit}" if limit is not None else "")
        return AnnotatedText(_json(page.messages), f"[older messages are left out; read {more}]")

    async def complete_id(self, call: Call, prefix: str) -> Sequence[str]:
        """Return the ids of sessions that start with a text."""
        return [session.id for session in await self._sessions.list(self._scope) if session.id.startswith(prefix)]


def progress_reporter(call: Call) -> Progress | None:
    """Return a function that reports progress to a client that asked for it, None for other clients."""
    if "progressToken" not in call.meta:
        return None
    numbers = count(1)

    async def report(message: str) -> None:
        await report_progress(call, next(numbers), message=message)

    return report


def _count(limit: float) -> int:
    return max(int(limit), 0)


def _read_id(uri: str) -> str:
    return uri.partition("://")[2].partition("?")[0]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
