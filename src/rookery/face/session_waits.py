"""What a session can be waited for, over the connection that it was found by."""

import os
from typing import Literal, TypeVar

from rookery.face.line import Line, as_given, segment
from rookery.sessions.records import SessionInfo, Waited
from rookery.system.errors import RookeryError

T = TypeVar("T")

# What the daemon may take beside the time that something is waited for; it may have to start an agent.
_MORE_SECONDS = 180.0


class SessionWaits:
    def __init__(self, line: Line, record: SessionInfo) -> None:
        self._line = line
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
    ) -> Waited:
        """Until a message fits the regular expression; those that are there already count."""
        return await self._wait("message", timeout, check, pattern=pattern, role=role, since=since)

    async def wait_for_toast(
        self, pattern: str, timeout: float = 10.0, *, since: float | None = None, check: bool = True
    ) -> Waited:
        """Until a toast of its workspace fits the regular expression."""
        return await self._wait("toast", timeout, check, pattern=pattern, since=since)

    async def wait_for_idle(self, timeout: float = 30.0, *, check: bool = True) -> Waited:
        """Until no turn runs."""
        return await self._wait("idle", timeout, check)

    async def wait_for_tool(
        self,
        tool: str | None = None,
        timeout: float = 30.0,
        *,
        pattern: str | None = None,
        since: float | None = None,
        check: bool = True,
    ) -> Waited:
        """Until a run of this tool, or of any, has ended, with the pattern in its input, output or error."""
        return await self._wait("tool", timeout, check, tool=tool, pattern=pattern, since=since)

    async def wait_for_file(
        self, path: str | os.PathLike[str], timeout: float = 30.0, *, pattern: str | None = None, check: bool = True
    ) -> Waited:
        """Until this file of its folder is there, and fits the pattern if there is one."""
        return await self._wait("file", timeout, check, path=os.fspath(path), pattern=pattern)

    async def _wait(
        self, what: str, timeout: float, check: bool, *, since: float | None = None, **more: str | None
    ) -> Waited:
        moment = since * 1000 if since is not None else None
        body = {"for": what, "timeout": timeout * 1000, **as_given(since=moment, **more)}
        found = await self._ask("POST", "/wait", Waited, body, seconds=timeout)
        if check and found.closed:
            raise RookeryError("session-not-found", f"{self.id} was closed before any {what} came", "begin another one")
        if check and not found.found:
            last = f"; seen last: {found.seen}" if found.seen else ""
            raise RookeryError("timeout", f"no {what} came within {timeout:g} s{last}", found.note or "")
        return found

    async def _ask(
        self, method: str, rest: str, kind: type[T], body: object = None, *, seconds: float = 0.0, **query: str | None
    ) -> T:
        place = f"/api/sessions/{segment(self.id)}{rest}"
        return await self._line.ask(method, place, kind, body, seconds=seconds + _MORE_SECONDS, **query)
