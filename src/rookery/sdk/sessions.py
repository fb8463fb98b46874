"""Create, find, drive, wait for and read sessions.

Time limits and moments are in seconds.
"""

import asyncio
import builtins
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rookery.sdk.operations import Operations
from rookery.sdk.operations.session import (
    EXECUTE_TOOL_TIMEOUT,
    MESSAGES_LIMIT,
    SCREENSHOT_SCALE,
    SEND_TIMEOUT,
    SHOW_TOAST_DURATION,
    SHOW_TOAST_VARIANT,
    TOOL_HISTORY_LIMIT,
    WAIT_FOR_MESSAGE_TIMEOUT,
    WAIT_FOR_MODE,
    WAIT_FOR_TOAST_TIMEOUT,
)
from rookery.sessions.records import (
    MessagePage,
    ScreenshotData,
    ScreenState,
    SessionAsk,
    SessionInfo,
    SessionMessage,
    Toast,
    ToolRun,
    Turn,
    WaitKind,
    WaitResult,
)
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import write_atomic


class Session:
    """One conversation of an agent, as of the last request; `refresh` updates it.

    A failed turn, a failed tool and a wait whose time runs out raise RookeryError. With `check=False` the result is
    returned instead, with the information that there is.
    """

    def __init__(self, operations: Operations, record: SessionInfo) -> None:
        self._operations = operations.session
        self.record = record

    @property
    def id(self) -> str:
        return self.record.id

    async def wait_for_message(
        self,
        pattern: str,
        timeout: float = WAIT_FOR_MESSAGE_TIMEOUT,
        *,
        role: Literal["user", "assistant"] | None = None,
        since: float | None = None,
        check: bool = True,
    ) -> WaitResult:
        """Wait for a message that matches the regular expression. Existing messages count."""
        return await self.wait_for("message", timeout, pattern=pattern, role=role, since=since, check=check)

    async def wait_for_toast(
        self, pattern: str, timeout: float = WAIT_FOR_TOAST_TIMEOUT, *, since: float | None = None, check: bool = True
    ) -> WaitResult:
        """Wait for a toast that matches the regular expression. Toasts of other sessions do not count."""
        return await self.wait_for("toast", timeout, pattern=pattern, since=since, check=check)

    async def wait_for_idle(self, timeout: float | None = None, *, check: bool = True) -> WaitResult:
        """Wait until no turn runs."""
        return await self.wait_for("idle", timeout, check=check)

    async def wait_for_tool(
        self,
        tool: str | None = None,
        timeout: float | None = None,
        *,
        pattern: str | None = None,
        since: float | None = None,
        check: bool = True,
    ) -> WaitResult:
        """Wait for a run of this tool, or of any, that has ended, with the pattern in its input, output or error."""
        return await self.wait_for("tool", timeout, tool=tool, pattern=pattern, since=since, check=check)

    async def wait_for_file(
        self,
        path: str | os.PathLike[str],
        timeout: float | None = None,
        *,
        pattern: str | None = None,
        check: bool = True,
    ) -> WaitResult:
        """Wait until this file of the session's folder exists and, with `pattern`, matches."""
        return await self.wait_for("file", timeout, path=path, pattern=pattern, check=check)

    async def wait_for(
        self,
        what: WaitKind,
        timeout: float | None = None,
        *,
        pattern: str | None = None,
        tool: str | None = None,
        path: str | os.PathLike[str] | None = None,
        role: Literal["user", "assistant"] | None = None,
        since: float | None = None,
        check: bool = True,
    ) -> WaitResult:
        """Wait for a message, a toast, idle, the end of a tool, a file or the screen.

        The default time limit is 10 seconds for a toast, and 30 for everything else.
        """
        result = await self._operations.wait(
            self.id,
            what,
            pattern=pattern,
            tool=tool,
            path=os.fspath(path) if path is not None else None,
            role=role,
            since=since,
            timeout=timeout,
        )
        if check:
            _require_match(result, what)
        return result

    async def screenshot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        format: Literal["png", "svg"] | None = None,
        columns: int | None = None,
        rows: int | None = None,
        scale: int = SCREENSHOT_SCALE,
    ) -> ScreenshotData:
        """Return a picture of the session's terminal as `data`, and write it to `path`, whose suffix sets the format.

        `source` is `rendering` if there is no terminal: then it is the conversation, drawn by Rookery.
        """
        if format is None and path is not None and os.fspath(path).lower().endswith(".svg"):
            format = "svg"
        screenshot = await self._operations.screenshot_json(
            session=self.id, format=format, columns=columns, rows=rows, scale=scale
        )
        if path is None:
            return screenshot
        try:
            await asyncio.to_thread(write_atomic, Path(path), screenshot.data)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror}"
            raise RookeryError("file-unwritable", message, "choose another path") from None
        return msgspec.structs.replace(screenshot, saved_to=os.fspath(path))

    async def screen(
        self, *, columns: int | None = None, rows: int | None = None, colours: bool = False
    ) -> ScreenState:
        """Return the screen of the session's terminal.

        `source` is `rendering` if there is none: then it is the conversation.
        """
        return await self._operations.screen(session=self.id, columns=columns, rows=rows, colours=colours)

    async def press(self, *keys: str) -> ScreenState:
        """Press keys by their names, such as `enter` or `ctrl+p`; return the screen that is drawn then."""
        return await self._operations.press_keys(self.id, keys=keys)

    async def type(self, text: str) -> ScreenState:
        """Type text, which is not sent before `press("enter")`."""
        return await self._operations.press_keys(self.id, text=text)

    async def paste(self, text: str) -> ScreenState:
        """Paste text, which may have several lines."""
        return await self._operations.press_keys(self.id, paste=text)

    async def wait_for_screen(self, pattern: str, timeout: float | None = None, *, check: bool = True) -> WaitResult:
        """Wait until the text on the session's terminal matches the regular expression."""
        return await self.wait_for("screen", timeout, pattern=pattern, check=check)

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.status}>"

    @property
    def directory(self) -> Path:
        return Path(self.record.directory)

    @property
    def status(self) -> str:
        """The status: `active`, `idle` or `error`. `record` has OpenCode's own status, and more."""
        return self.record.status

    async def refresh(self) -> "Session":
        """Update the session from the daemon and return it."""
        self.record = await self._operations.show(self.id)
        return self

    async def send(
        self,
        text: str,
        *,
        wait: bool = True,
        timeout: float = SEND_TIMEOUT,
        agent: str | None = None,
        model: str | None = None,
        check: bool = True,
    ) -> Turn:
        """Send a message and wait for the end of the turn. After the time limit the turn goes on."""
        turn = await self._operations.send(self.id, text, wait=wait, timeout=timeout, agent=agent, model=model)
        if check and turn.status == "error":
            raise RookeryError("turn-failed", turn.error or "the turn failed", "see its messages")
        if check and turn.status == "timeout":
            raise RookeryError(
                "timeout", f"the turn is still running after {timeout:g} s", turn.note or "wait_for_idle()"
            )
        return turn

    async def messages(
        self, limit: int = MESSAGES_LIMIT, *, since: float | None = None, before: str | None = None
    ) -> list[SessionMessage]:
        """Return the newest messages, in the order they were created.

        With `since`, a value like `time.time()`, return only messages created after that moment. With `before`, the id
        of a message, return the newest messages before that one.
        """
        return list((await self.messages_page(limit, since=since, before=before)).messages)

    async def messages_page(
        self, limit: int = MESSAGES_LIMIT, *, since: float | None = None, before: str | None = None
    ) -> MessagePage:
        """Return the newest messages as a page.

        Its `before` is the id that requests the previous page, None if there is none.
        """
        return await self._operations.messages(self.id, limit=limit, since=since, before=before)

    async def toasts(self, *, since: float | None = None) -> list[Toast]:
        """Return the toasts that are visible now, or all since a moment, without those of other sessions."""
        return await self._operations.toasts(session=self.id, since=since)

    async def show_toast(
        self,
        message: str,
        *,
        title: str | None = None,
        variant: Literal["info", "success", "warning", "error"] = SHOW_TOAST_VARIANT,
        duration: float = SHOW_TOAST_DURATION,
    ) -> None:
        """Show a toast in the session's workspace for `duration` seconds."""
        await self._operations.show_toast(self.id, message, title=title, variant=variant, duration=duration)

    async def execute_tool(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        wait: bool = True,
        timeout: float = EXECUTE_TOOL_TIMEOUT,
        check: bool = True,
    ) -> ToolRun:
        """Run a tool of the agent with the session's permissions; the conversation stays as it is."""
        run = await self._operations.execute_tool(self.id, tool, args or {}, wait=wait, timeout=timeout)
        if check and run.status in ("error", "aborted"):
            raise RookeryError("tool-failed", f"{tool}: {run.error or run.status}")
        return run

    async def tool_history(self, limit: int = TOOL_HISTORY_LIMIT) -> list[ToolRun]:
        """Return the newest tool runs, in the order they started."""
        return await self._operations.tool_history(session=self.id, limit=limit)

    async def asks(self) -> list[SessionAsk]:
        """Return the open asks of the session."""
        return await self._operations.asks(session=self.id)

    async def answer(
        self,
        ask: SessionAsk | str,
        reply: Literal["once", "always", "reject"] | None = None,
        *,
        answers: Sequence[Sequence[str]] | None = None,
        message: str | None = None,
    ) -> SessionAsk:
        """Answer a permission with a `reply`, or a question with the labels for each of its questions."""
        id_ = ask if isinstance(ask, str) else ask.id
        return await self._operations.answer(id_, session=self.id, reply=reply, answers=answers, message=message)

    async def abort(self) -> "Session":
        """Stop the running turn, if there is one."""
        self.record = await self._operations.abort(self.id)
        return self

    async def close(self, *, delete: bool = False) -> None:
        """Close the session: stop its turn and all waits for it.

        OpenCode keeps its history, unless `delete` is true.
        """
        await self._operations.close(self.id, delete=delete)


def _require_match(result: WaitResult, what: str) -> None:
    """Raise an error if a wait found nothing."""
    if result.closed:
        message = f"{result.session_id} was closed during the wait for {what}"
        raise RookeryError("session-not-found", message, "create another session")
    if not result.found:
        last_seen = f"; last seen: {result.seen}" if result.seen else ""
        raise RookeryError("timeout", f"{result.session_id}: no {what} in time{last_seen}", result.note or "")


class Sessions:
    """The sessions of all workspaces."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def create(
        self,
        directory: str | os.PathLike[str],
        *,
        agent: str | None = None,
        model: str | None = None,
        title: str | None = None,
    ) -> Session:
        """Create a session in the workspace that contains a folder, at the root of that workspace.

        `record.notes` lists what differs from the request.
        """
        folder = await asyncio.to_thread(Path(directory).absolute)
        record = await self._operations.session.create(str(folder), agent=agent, model=model, title=title)
        return Session(self._operations, record)

    async def list(self) -> builtins.list[Session]:
        """Return all open sessions, the most recently used first."""
        return [Session(self._operations, record) for record in await self._operations.session.list()]

    async def get(self, id_: str) -> Session:
        """Return a session by its id, or by a unique prefix of it."""
        return Session(self._operations, await self._operations.session.show(id_))

    async def wait_for(
        self,
        sessions: Sequence[Session | str],
        what: WaitKind,
        timeout: float | None = None,
        *,
        mode: Literal["any", "all"] = WAIT_FOR_MODE,
        pattern: str | None = None,
        tool: str | None = None,
        path: str | os.PathLike[str] | None = None,
        role: Literal["user", "assistant"] | None = None,
        since: float | None = None,
        check: bool = True,
    ) -> builtins.list[WaitResult]:
        """Wait until all of several sessions, or with `mode="any"` one of them, meet a condition.

        Return a result for each of them. With `check`, raise an error if not enough of them match.
        """
        ids = [session if isinstance(session, str) else session.id for session in sessions]
        outcome = await self._operations.session.wait_for(
            what,
            ids,
            mode=mode,
            pattern=pattern,
            tool=tool,
            path=os.fspath(path) if path is not None else None,
            role=role,
            since=since,
            timeout=timeout,
        )
        if check and not outcome.found:
            for result in outcome.results:
                _require_match(result, what)
        return outcome.results

    async def asks(self) -> builtins.list[SessionAsk]:
        """Return the open asks of all sessions."""
        return await self._operations.session.asks()


class WorkspaceSessions:
    """The sessions of one workspace: `ws.sessions`."""

    def __init__(self, operations: Operations, project: str, name: str, path: Path) -> None:
        self._operations = operations
        self._project = project
        self._name = name
        self._path = path

    async def create(self, *, agent: str | None = None, model: str | None = None, title: str | None = None) -> Session:
        """Create a session; start the agent of the workspace if it does not run.

        `record.notes` lists what differs from the request.
        """
        record = await self._operations.session.create(str(self._path), agent=agent, model=model, title=title)
        return Session(self._operations, record)

    async def list(self) -> builtins.list[Session]:
        """Return the open sessions of the workspace, the most recently used first."""
        records = await self._operations.session.list(project=self._project, workspace=self._name)
        return [Session(self._operations, record) for record in records]
