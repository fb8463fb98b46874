"""What the tools about sessions do: each one asks the service, in seconds, and tells failures as failures."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path

import msgspec

from rookery.sessions.records import AskShown, Closed, Progress, SessionInfo, Toast, ToolRun, Waited
from rookery.sessions.service import Sessions
from rookery.system.errors import RookeryError
from rookery.toolsets.session_shapes import (
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
from rookery.toolsets.toolset import Told
from rookery.wire.provider import Call, report_progress

_MILLI = 1000


class SessionCalls:
    """`scope` is the only workspace that is seen, None for the owner. `answering` raises where nobody may answer."""

    def __init__(self, sessions: Sessions, scope: Path | None, answering: Callable[[], Awaitable[None]]) -> None:
        self._sessions, self._scope, self._answering = sessions, scope, answering

    # ---- sessions

    async def create(self, call: Call, given: CreateSession) -> SessionInfo:
        return await self._sessions.create(
            given.directory, given.agent, given.model, title=given.title, scope=self._scope
        )

    async def list(self, call: Call, given: NoInput) -> Sequence[SessionInfo]:
        return await self._sessions.list(self._scope)

    async def get(self, call: Call, given: OneSession) -> SessionInfo:
        return await self._sessions.get(given.sessionId, self._scope)

    async def close(self, call: Call, given: CloseSession) -> Closed:
        return await self._sessions.close(given.sessionId, self._scope, delete=given.delete)

    # ---- messages

    async def send(self, call: Call, given: SendMessage) -> Told:
        turn = await self._sessions.send(
            given.sessionId,
            given.content,
            wait=given.waitForResponse,
            timeout=given.timeout / _MILLI,
            agent=given.agent,
            model=given.model,
            scope=self._scope,
            progress=progress_of(call),
        )
        failed = turn.status == "error"
        return Told(turn, error=RookeryError("turn-failed", turn.error or "the turn failed") if failed else None)

    async def messages(self, call: Call, given: GetMessages) -> Told:
        found = await self._sessions.messages(given.sessionId, _count(given.limit), given.since, self._scope)
        return Told(found.messages, found.note)

    async def wait_for_message(self, call: Call, given: WaitForMessage) -> Waited:
        return await self._sessions.wait_for_message(
            given.sessionId,
            given.pattern,
            given.timeout / _MILLI,
            role=given.role,
            since=given.since,
            scope=self._scope,
            progress=progress_of(call),
        )

    # ---- toasts

    async def toasts(self, call: Call, given: GetToasts) -> Sequence[Toast]:
        return await self._sessions.toasts(given.sessionId, given.since, self._scope)

    async def wait_for_toast(self, call: Call, given: WaitForToast) -> Waited:
        return await self._sessions.wait_for_toast(
            given.sessionId,
            given.pattern,
            given.timeout / _MILLI,
            since=given.since,
            scope=self._scope,
            progress=progress_of(call),
        )

    # ---- tools

    async def execute(self, call: Call, given: ExecuteTool) -> Told:
        run = await self._sessions.execute(
            given.sessionId,
            given.tool,
            given.args,
            wait=given.waitForCompletion,
            timeout=given.timeout / _MILLI,
            scope=self._scope,
            progress=progress_of(call),
        )
        failed = run.status in ("error", "aborted")
        return Told(run, error=RookeryError("tool-failed", run.error or f"it was {run.status}") if failed else None)

    async def history(self, call: Call, given: GetToolHistory) -> Sequence[ToolRun]:
        return await self._sessions.tool_history(given.sessionId, _count(given.limit), self._scope)

    # ---- asks

    async def asks(self, call: Call, given: ListAsks) -> Sequence[AskShown]:
        return await self._sessions.asks(given.sessionId, self._scope)

    async def answer(self, call: Call, given: AnswerAsk) -> AskShown:
        if self._scope is None:
            await self._answering()
        return await self._sessions.answer(
            given.askId, given.reply, answers=given.answers, message=given.message, scope=self._scope
        )

    # ---- resources

    async def read_session(self, call: Call, uri: str) -> str:
        return _json(await self._sessions.get(_id(uri), self._scope))

    async def read_messages(self, call: Call, uri: str) -> str:
        found = await self._sessions.messages(_id(uri), None, None, self._scope)
        return _json(found.messages)

    async def complete(self, call: Call, begun: str) -> Sequence[str]:
        """The ids of sessions that begin so."""
        return [one.id for one in await self._sessions.list(self._scope) if one.id.startswith(begun)]


def progress_of(call: Call) -> Progress | None:
    """Tells a client that asked for it what happens while it waits."""
    if "progressToken" not in call.meta:
        return None
    numbers = count(1)

    async def tell(words: str) -> None:
        await report_progress(call, next(numbers), message=words)

    return tell


def _count(limit: float) -> int:
    return max(int(limit), 0)


def _id(uri: str) -> str:
    return uri.partition("://")[2]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
