"""One session: driven, waited for and read. Time limits and moments are in seconds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Raw

from rookery.face.line import as_given, segment
from rookery.face.session_screen import SessionScreens
from rookery.sessions.records import AskShown, Closed, Messages, MessageShown, SessionInfo, Toast, ToolRun, Turn
from rookery.system.errors import RookeryError


class Session(SessionScreens):
    """One conversation of an agent, as it was when it was last asked about: `refresh` asks again.

    What ends badly raises RookeryError: a turn or a tool that failed, and a wait whose time runs out. With
    `check=False` it is answered instead, and tells what there is.
    """

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.status}>"

    @property
    def directory(self) -> Path:
        return Path(self.record.directory)

    @property
    def status(self) -> str:
        """`active`, `idle` or `error`; `record` has OpenCode's own, and more."""
        return self.record.status

    async def refresh(self) -> "Session":
        """Ask what it is now; answers itself."""
        self.record = await self._ask("GET", "", SessionInfo)
        return self

    # ---- messages

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
        """Send a message, and wait for the end of the turn; past the time limit the turn goes on."""
        body = {"content": text, "wait": wait, "timeout": timeout * 1000, **as_given(agent=agent, model=model)}
        turn = await self._ask("POST", "/messages", Turn, body, seconds=timeout)
        if check and turn.status == "error":
            raise RookeryError("turn-failed", turn.error or "the turn failed", "see its messages")
        if check and turn.status == "timeout":
            raise RookeryError("timeout", f"the turn goes on after {timeout:g} s", turn.note or "wait_for_idle()")
        return turn

    async def messages(self, limit: int = 50, *, since: float | None = None) -> list[MessageShown]:
        """The newest ones, in the order they were made; after the moment `since`, as `time.time()` tells it."""
        found = await self._ask("GET", "/messages", Messages, limit=str(limit), since=_milli(since))
        return list(found.messages)

    # ---- toasts, tools, asks

    async def toasts(self, *, since: float | None = None) -> list[Toast]:
        """Those on show now in its workspace, or all since a moment."""
        return await self._ask("GET", "/toasts", list[Toast], since=_milli(since))

    async def show_toast(
        self,
        message: str,
        *,
        title: str | None = None,
        variant: Literal["info", "success", "warning", "error"] = "info",
        duration: float = 5.0,
    ) -> None:
        """Show a toast in its workspace for so many seconds."""
        body = {"message": message, "variant": variant, "duration": int(duration * 1000), **as_given(title=title)}
        await self._ask("POST", "/toasts", Raw, body)

    async def execute_tool(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        wait: bool = True,
        timeout: float = 120.0,
        check: bool = True,
    ) -> ToolRun:
        """Run a tool of the agent under the session's permissions; the conversation stays as it is."""
        body = {"tool": tool, "args": dict(args or {}), "wait": wait, "timeout": timeout * 1000}
        run = await self._ask("POST", "/tools", ToolRun, body, seconds=timeout)
        if check and run.status in ("error", "aborted"):
            raise RookeryError("tool-failed", f"{tool}: {run.error or run.status}")
        return run

    async def tool_history(self, limit: int = 20) -> list[ToolRun]:
        """The newest runs of tools, in the order they began."""
        return await self._ask("GET", "/tools", list[ToolRun], limit=str(limit))

    async def asks(self) -> list[AskShown]:
        """What it waits for."""
        return await self._ask("GET", "/asks", list[AskShown])

    async def answer(
        self,
        ask: AskShown | str,
        reply: Literal["once", "always", "reject"] | None = None,
        *,
        answers: Sequence[Sequence[str]] | None = None,
        message: str | None = None,
    ) -> AskShown:
        """Answer a permission with a `reply`, or questions with the labels for each of them."""
        id_ = ask if isinstance(ask, str) else ask.id
        body = as_given(reply=reply, answers=answers, message=message)
        return await self._ask("POST", f"/asks/{segment(id_)}", AskShown, body)

    # ---- its end

    async def abort(self) -> "Session":
        """End the turn that runs, if there is one."""
        self.record = await self._ask("POST", "/abort", SessionInfo)
        return self

    async def close(self, *, delete: bool = False) -> None:
        """End its turn and all that waits for it. OpenCode keeps its history, unless `delete` is true."""
        await self._ask("DELETE", "", Closed, delete="true" if delete else None)


def _milli(moment: float | None) -> str | None:
    return None if moment is None else repr(moment * 1000)
