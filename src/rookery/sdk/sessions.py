"""Create, find, drive, wait for and read sessions.

Time limits and moments are in seconds.
"""

import asyncio
import builtins
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw

from rookery.sdk.rest import RestClient, drop_none, quote_segment
from rookery.sessions.records import (
    CloseResult,
    MessagePage,
    ScreenshotData,
    ScreenState,
    SessionAsk,
    SessionInfo,
    SessionMessage,
    Toast,
    ToolRun,
    Turn,
    WaitResult,
)
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import write_atomic

T = TypeVar("T")

# What the daemon may need in addition to the time limit of a wait: it may have to start an agent.
_OVERHEAD_SECONDS = 180.0


class Session:
    """One conversation of an agent, as of the last request; `refresh` updates it.

    A failed turn, a failed tool and a wait whose time runs out raise RookeryError. With `check=False` the result is
    returned instead, with the information that there is.
    """

    def __init__(self, rest: RestClient, record: SessionInfo) -> None:
        self._rest = rest
        self.record = record

    @property
    def id(self) -> str:
        return self.record.id

    async def wait_for_message(
        self,
        pattern: str,
        timeout: float = 30.0,
        *,
        role: Literal["user", "assistant"] | None = None,
        since: float | None = None,
        check: bool = True,
    ) -> WaitResult:
        """Wait for a message that matches the regular expression. Existing messages count."""
        return await self._wait("message", timeout, check, pattern=pattern, role=role, since=since)

    async def wait_for_toast(
        self, pattern: str, timeout: float = 10.0, *, since: float | None = None, check: bool = True
    ) -> WaitResult:
        """Wait for a toast that matches the regular expression. Toasts of other sessions do not count."""
        return await self._wait("toast", timeout, check, pattern=pattern, since=since)

    async def wait_for_idle(self, timeout: float = 30.0, *, check: bool = True) -> WaitResult:
        """Wait until no turn runs."""
        return await self._wait("idle", timeout, check)

    async def wait_for_tool(
        self,
        tool: str | None = None,
        timeout: float = 30.0,
        *,
        pattern: str | None = None,
        since: float | None = None,
        check: bool = True,
    ) -> WaitResult:
        """Wait for a run of this tool, or of any, that has ended, with the pattern in its input, output or error."""
        return await self._wait("tool", timeout, check, tool=tool, pattern=pattern, since=since)

    async def wait_for_file(
        self, path: str | os.PathLike[str], timeout: float = 30.0, *, pattern: str | None = None, check: bool = True
    ) -> WaitResult:
        """Wait until this file of the session's folder exists and, with `pattern`, matches."""
        return await self._wait("file", timeout, check, path=os.fspath(path), pattern=pattern)

    async def _wait(
        self, what: str, timeout: float, check: bool, *, since: float | None = None, **more: str | None
    ) -> WaitResult:
        """Send a wait to the daemon; with `check`, raise an error if it found nothing."""
        moment = since * 1000 if since is not None else None
        body = {"for": what, "timeout": timeout * 1000, **drop_none(since=moment, **more)}
        result = await self._request("POST", "/wait", WaitResult, body, seconds=timeout)
        if check and result.closed:
            raise RookeryError(
                "session-not-found", f"{self.id} was closed during the wait for {what}", "create another session"
            )
        if check and not result.found:
            last_seen = f"; last seen: {result.seen}" if result.seen else ""
            raise RookeryError("timeout", f"no {what} within {timeout:g} s{last_seen}", result.note or "")
        return result

    async def _request(
        self, method: str, suffix: str, kind: type[T], body: object = None, *, seconds: float = 0.0, **query: str | None
    ) -> T:
        path = f"/api/sessions/{quote_segment(self.id)}{suffix}"
        return await self._rest.request(method, path, kind, body, seconds=seconds + _OVERHEAD_SECONDS, **query)

    async def screenshot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        format: Literal["png", "svg"] | None = None,
        columns: int | None = None,
        rows: int | None = None,
        scale: int = 1,
    ) -> ScreenshotData:
        """Return a picture of the session's terminal as `data`, and write it to `path`, whose suffix sets the format.

        `source` is `rendering` if there is no terminal: then it is the conversation, drawn by Rookery.
        """
        is_svg = os.fspath(path).lower().endswith(".svg") if path is not None else False
        screenshot = await self._request(
            "GET",
            "/screenshot",
            ScreenshotData,
            format=format or ("svg" if is_svg else "png"),
            columns=str(columns) if columns is not None else None,
            rows=str(rows) if rows is not None else None,
            scale=str(scale),
            json="true",
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
        return await self._request(
            "GET",
            "/screen",
            ScreenState,
            columns=str(columns) if columns is not None else None,
            rows=str(rows) if rows is not None else None,
            colours="true" if colours else None,
        )

    async def press(self, *keys: str) -> ScreenState:
        """Press keys by their names, such as `enter` or `ctrl+p`; return the screen that is drawn then."""
        return await self._request("POST", "/keys", ScreenState, {"keys": keys})

    async def type(self, text: str) -> ScreenState:
        """Type text, which is not sent before `press("enter")`."""
        return await self._request("POST", "/keys", ScreenState, drop_none(text=text))

    async def paste(self, text: str) -> ScreenState:
        """Paste text, which may have several lines."""
        return await self._request("POST", "/keys", ScreenState, drop_none(paste=text))

    async def wait_for_screen(self, pattern: str, timeout: float = 30.0, *, check: bool = True) -> WaitResult:
        """Wait until the text on the session's terminal matches the regular expression."""
        return await self._wait("screen", timeout, check, pattern=pattern)

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
        self.record = await self._request("GET", "", SessionInfo)
        return self

    async def send(
        self,
        text: str,
        *,
        wait: bool = True,
        timeout: float = 30.0,
        agent: str | None = None,
        model: str | None = None,
        check: bool = True,
    ) -> Turn:
        """Send a message and wait for the end of the turn. After the time limit the turn goes on."""
        body = {"content": text, "wait": wait, "timeout": timeout * 1000, **drop_none(agent=agent, model=model)}
        turn = await self._request("POST", "/messages", Turn, body, seconds=timeout)
        if check and turn.status == "error":
            raise RookeryError("turn-failed", turn.error or "the turn failed", "see its messages")
        if check and turn.status == "timeout":
            raise RookeryError(
                "timeout", f"the turn is still running after {timeout:g} s", turn.note or "wait_for_idle()"
            )
        return turn

    async def messages(
        self, limit: int = 50, *, since: float | None = None, before: str | None = None
    ) -> list[SessionMessage]:
        """Return the newest messages, in the order they were created.

        With `since`, a value like `time.time()`, return only messages created after that moment. With `before`, the id
        of a message, return the newest messages before that one.
        """
        return list((await self.messages_page(limit, since=since, before=before)).messages)

    async def messages_page(
        self, limit: int = 50, *, since: float | None = None, before: str | None = None
    ) -> MessagePage:
        """Return the newest messages as a page.

        Its `before` is the id that requests the previous page, None if there is none.
        """
        return await self._request(
            "GET", "/messages", MessagePage, limit=str(limit), since=_format_milliseconds(since), before=before
        )

    async def toasts(self, *, since: float | None = None) -> list[Toast]:
        """Return the toasts that are visible now, or all since a moment, without those of other sessions."""
        return await self._request("GET", "/toasts", list[Toast], since=_format_milliseconds(since))

    async def show_toast(
        self,
        message: str,
        *,
        title: str | None = None,
        variant: Literal["info", "success", "warning", "error"] = "info",
        duration: float = 5.0,
    ) -> None:
        """Show a toast in the session's workspace for `duration` seconds."""
        body = {"message": message, "variant": variant, "duration": int(duration * 1000), **drop_none(title=title)}
        await self._request("POST", "/toasts", Raw, body)

    async def execute_tool(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        wait: bool = True,
        timeout: float = 120.0,
        check: bool = True,
    ) -> ToolRun:
        """Run a tool of the agent with the session's permissions; the conversation stays as it is."""
        body = {"tool": tool, "args": dict(args or {}), "wait": wait, "timeout": timeout * 1000}
        run = await self._request("POST", "/tools", ToolRun, body, seconds=timeout)
        if check and run.status in ("error", "aborted"):
            raise RookeryError("tool-failed", f"{tool}: {run.error or run.status}")
        return run

    async def tool_history(self, limit: int = 20) -> list[ToolRun]:
        """Return the newest tool runs, in the order they started."""
        return await self._request("GET", "/tools", list[ToolRun], limit=str(limit))

    async def asks(self) -> list[SessionAsk]:
        """Return the open asks of the session."""
        return await self._request("GET", "/asks", list[SessionAsk])

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
        body = drop_none(reply=reply, answers=answers, message=message)
        return await self._request("POST", f"/asks/{quote_segment(id_)}", SessionAsk, body)

    async def abort(self) -> "Session":
        """Stop the running turn, if there is one."""
        self.record = await self._request("POST", "/abort", SessionInfo)
        return self

    async def close(self, *, delete: bool = False) -> None:
        """Close the session: stop its turn and all waits for it.

        OpenCode keeps its history, unless `delete` is true.
        """
        await self._request("DELETE", "", CloseResult, delete="true" if delete else None)


def _format_milliseconds(moment: float | None) -> str | None:
    """Convert seconds to milliseconds, as a query parameter."""
    return None if moment is None else repr(moment * 1000)


class Sessions:
    """The sessions of all workspaces."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

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
        body = {"directory": str(folder), **drop_none(agent=agent, model=model, title=title)}
        return Session(self._rest, await self._rest.request("POST", "/api/sessions", SessionInfo, body))

    async def list(self) -> builtins.list[Session]:
        """Return all open sessions, the most recently used first."""
        return [
            Session(self._rest, record)
            for record in await self._rest.request("GET", "/api/sessions", list[SessionInfo])
        ]

    async def get(self, id_: str) -> Session:
        """Return a session by its id, or by a unique prefix of it."""
        return Session(self._rest, await self._rest.request("GET", f"/api/sessions/{quote_segment(id_)}", SessionInfo))

    async def asks(self) -> builtins.list[SessionAsk]:
        """Return the open asks of all sessions."""
        return await self._rest.request("GET", "/api/sessions/asks", list[SessionAsk])


class WorkspaceSessions:
    """The sessions of one workspace: `ws.sessions`."""

    def __init__(self, rest: RestClient, project: str, name: str, path: Path) -> None:
        self._rest, self._project, self._name, self._path = rest, project, name, path

    async def create(self, *, agent: str | None = None, model: str | None = None, title: str | None = None) -> Session:
        """Create a session; start the agent of the workspace if it does not run.

        `record.notes` lists what differs from the request.
        """
        body = {"directory": str(self._path), **drop_none(agent=agent, model=model, title=title)}
        return Session(self._rest, await self._rest.request("POST", "/api/sessions", SessionInfo, body))

    async def list(self) -> builtins.list[Session]:
        """Return the open sessions of the workspace, the most recently used first."""
        records = await self._rest.request(
            "GET", "/api/sessions", list[SessionInfo], project=self._project, workspace=self._name
        )
        return [Session(self._rest, record) for record in records]
