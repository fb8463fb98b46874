"""The one service behind every face: sessions are made, driven, waited for and read through it.

Time limits are in seconds, moments in milliseconds since the epoch. `scope` is the folder of the one workspace that
the caller may see, None for the owner, who sees all.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from rookery.agents.life import Life
from rookery.sessions.records import (
    AskShown,
    Change,
    Closed,
    Messages,
    Progress,
    SessionInfo,
    Toast,
    ToolRun,
    Turn,
)
from rookery.sessions.waits import Waits

Reply = Literal["once", "always", "reject"]


class Executor(Protocol):
    """Whoever runs a tool of an agent by its name, as `executing.py` does."""

    async def execute(
        self,
        life: Life,
        session_id: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        wait: bool = True,
        timeout: float = 30.0,
        progress: Progress | None = None,
    ) -> ToolRun: ...


class Sessions(Waits):
    """Raises RookeryError: `session-not-found`, `workspace-not-found`, `invalid-input`, `agent-unavailable`, ..."""

    # Given by whoever wires all of it.
    executor: Executor | None = None

    # ---- sessions

    async def create(
        self,
        directory: str,
        agent: str | None = None,
        model: str | None = None,
        *,
        title: str | None = None,
        scope: Path | None = None,
    ) -> SessionInfo:
        """A session in the workspace at `directory`, whose agent is started if it has to be."""
        raise NotImplementedError

    async def list(self, scope: Path | None = None) -> Sequence[SessionInfo]:
        """All open sessions, the one that was used last first."""
        raise NotImplementedError

    async def get(self, id_: str, scope: Path | None = None) -> SessionInfo:
        raise NotImplementedError

    async def close(self, id_: str, scope: Path | None = None, *, delete: bool = False) -> Closed:
        """End its turn and all that waits for it. OpenCode keeps its history, unless that is to be deleted too."""
        raise NotImplementedError

    async def abort(self, id_: str, scope: Path | None = None) -> SessionInfo:
        """End the turn that runs, if there is one."""
        raise NotImplementedError

    @asynccontextmanager
    async def used(self, id_: str, scope: Path | None = None) -> AsyncGenerator[Life]:
        """The agent of a session, kept awake until the end of the block."""
        raise NotImplementedError
        yield

    # ---- messages

    async def send(
        self,
        id_: str,
        content: str,
        *,
        wait: bool = True,
        timeout: float = 30.0,
        agent: str | None = None,
        model: str | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> Turn:
        """Send a message and, if wanted, wait for the end of the turn; past the time limit the turn goes on."""
        raise NotImplementedError

    async def messages(
        self, id_: str, limit: int | None = 50, since: float | None = None, scope: Path | None = None
    ) -> Messages:
        """The newest ones, in the order in which they were made; without a limit all."""
        raise NotImplementedError

    # ---- toasts, tools, asks

    async def toasts(
        self, id_: str | None = None, since: float | None = None, scope: Path | None = None
    ) -> Sequence[Toast]:
        """Those on show now, or all since a moment; of one session's workspace, or of all."""
        raise NotImplementedError

    async def show_toast(
        self,
        id_: str,
        message: str,
        *,
        title: str | None = None,
        variant: str = "info",
        duration: int = 5000,
        scope: Path | None = None,
    ) -> None:
        raise NotImplementedError

    async def tool_history(
        self, id_: str | None = None, limit: int = 20, scope: Path | None = None
    ) -> Sequence[ToolRun]:
        """The newest runs, in the order in which they began; of one session, or of all."""
        raise NotImplementedError

    async def execute(
        self,
        id_: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        wait: bool = True,
        timeout: float = 30.0,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> ToolRun:
        raise NotImplementedError

    async def asks(self, id_: str | None = None, scope: Path | None = None) -> Sequence[AskShown]:
        """What sessions wait for; for the owner only."""
        raise NotImplementedError

    async def answer(
        self,
        ask_id: str,
        reply: Reply | None = None,
        *,
        answers: Sequence[Sequence[str]] | None = None,
        message: str | None = None,
        scope: Path | None = None,
    ) -> AskShown:
        """For the owner only. A permission takes a `reply`, a question the labels for each of its questions."""
        raise NotImplementedError

    # ---- changes

    def listen(self, told: Callable[[frozenset[Change]], None]) -> Callable[[], None]:
        """Be told what has changed, many changes at once; answers how to end that."""
        raise NotImplementedError
