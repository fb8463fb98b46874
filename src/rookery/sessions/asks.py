"""Permissions and questions that sessions wait for, and the owner's answers to them.

Nothing is answered automatically.
"""

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rookery.agents.opencode.api import AgentClient, PermissionReply
from rookery.agents.opencode.events import AgentEvent, AskAnswered, AskOpened, ProcessEnded, SessionStatusChanged
from rookery.agents.opencode.records import GatewayPermission
from rookery.sessions.conversion import PERMISSION_REPLIES
from rookery.sessions.index import SessionIndex, WorkspaceSessions
from rookery.sessions.records import SessionAsk
from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix, new_id

# How many calls of one workspace may wait for the owner, so that no agent can flood the list.
_MAX_OPEN = 32


def require_owner(scope: Path | None) -> None:
    """Raise an error if the caller is not the owner: an agent that answers asks could allow itself anything."""
    if scope is not None:
        message = "only the owner may see and answer asks: otherwise an agent could allow itself anything"
        raise RookeryError("tool-denied", message, "answer it yourself: rookery session asks")


class ToolAsks:
    """The asks about calls that wait in the gateway for the owner's permission.

    They are kept with the asks of the session that makes the call, and end with its turn.
    """

    def __init__(self, index: SessionIndex) -> None:
        self._index = index
        # The reply of each open ask: why the tool must not be run, empty if it may.
        self._replies: dict[str, asyncio.Future[str]] = {}
        self._open: Counter[Path] = Counter()
        # The tools that the owner has allowed to a root session until the daemon ends.
        self._allowed: set[tuple[str, str]] = set()

    async def find_root(self, workspace: Path, session: str) -> str | None:
        """Return the root of a session; None if the agent of the workspace has no such session."""
        return await self._index.find_root(workspace, session)

    @contextmanager
    def ask(
        self, workspace: Path, session: str, root: str, tool: str, server: str, arguments: str
    ) -> Generator["asyncio.Future[str]"]:
        """Ask the owner, until the end of the block, whether a session, which works for `root`, may call a tool.

        The result is why it may not, empty if it may.
        """
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        agent_run = self._index.find_run(workspace)
        if agent_run is None:
            reply.set_result("its agent has ended")
        elif (root, tool) in self._allowed:
            reply.set_result("")
        elif self._open[workspace] >= _MAX_OPEN:
            reply.set_result(f"{_MAX_OPEN} asks of its workspace already wait for an answer")
        if agent_run is None or reply.done():
            yield reply
            return
        about = {"server": server, "tool": tool, "arguments": arguments}
        ask = GatewayPermission(f"ask_{new_id()}", session, tool, (arguments,), about, (tool,))

        def on_event(event: AgentEvent) -> None:
            """End the ask with its turn, which may have been aborted."""
            match event:
                case SessionStatusChanged(id_, status) if id_ == session and status.type == "idle":
                    _set_reply(reply, "its turn has ended")
                case ProcessEnded():
                    _set_reply(reply, "its agent has ended")
                case _:
                    pass

        self._replies[ask.id] = reply
        self._open[workspace] += 1
        agent_run.listeners.append(on_event)
        agent_run.watcher.apply_early(AskOpened(ask))
        try:
            yield reply
        finally:
            agent_run.listeners.remove(on_event)
            del self._replies[ask.id]
            self._open[workspace] -= 1
            agent_run.watcher.apply_early(AskAnswered(session, ask.id))

    def answer(self, ask: SessionAsk, reply: PermissionReply | None, message: str | None) -> bool:
        """Reply to an ask, and return whether it is one of these."""
        future = self._replies.get(ask.id)
        if future is None:
            return False
        if reply == "always":
            self._allowed.add((ask.session_id, ask.detail["permission"]))
        _set_reply(future, "" if reply in ("once", "always") else message or "no reason was given")
        return True


def _set_reply(reply: "asyncio.Future[str]", reason: str) -> None:
    if not reply.done():
        reply.set_result(reason)


class PendingAsks:
    """The open asks of all sessions, and the replies to them."""

    def __init__(self, index: SessionIndex, tool_asks: ToolAsks) -> None:
        self._index = index
        self._tool_asks = tool_asks

    def all(self) -> list[SessionAsk]:
        """Return the open asks of all sessions."""
        return [ask for workspace_sessions in self._index.visible_to(None) for ask in workspace_sessions.asks()]

    async def for_session(self, id_: str) -> list[SessionAsk]:
        """Return the open asks that a session waits for, or that it has raised itself as a child of another one."""
        ref = await self._index.find(id_, None)
        asks = ref.workspace_sessions.asks()
        return [ask for ask in asks if ref.id in (ask.session_id, ask.asked_by)]

    async def answer(
        self, id_: str, reply: PermissionReply | None, answers: Sequence[Sequence[str]] | None, message: str | None
    ) -> SessionAsk:
        """Reply to an ask and return it.

        A permission takes `reply`, a question takes `answers`, or the reply `reject`.
        """
        workspace_sessions, ask = self._find_open(id_)
        if ask.kind == "permission":
            _check_permission_reply(ask, reply, answers)
            if self._tool_asks.answer(ask, reply, message):
                return ask
        async with workspace_sessions.use_agent() as agent_run:
            if ask.kind == "permission":
                assert reply is not None
                await agent_run.client.answer_permission(ask.id, reply, message)
            else:
                await _answer_question(agent_run.client, ask, reply, answers)
            agent_run.watcher.apply_early(AskAnswered(ask.asked_by, ask.id))
        return ask

    def _find_open(self, id_: str) -> tuple[WorkspaceSessions, SessionAsk]:
        """Return the open ask with this id or unique prefix, and the sessions of its workspace."""
        open_asks = {
            ask.id: (workspace_sessions, ask)
            for workspace_sessions in self._index.visible_to(None)
            for ask in workspace_sessions.asks()
        }
        match = match_prefix(id_, open_asks, "asks")
        if match is None:
            remedy = "list the open asks: list_asks, or rookery session asks"
            raise RookeryError("ask-not-found", f"there is no open ask {id_!r}", remedy)
        return open_asks[match]


def _check_permission_reply(
    ask: SessionAsk, reply: PermissionReply | None, answers: Sequence[Sequence[str]] | None
) -> None:
    if reply not in PERMISSION_REPLIES or answers is not None:
        raise RookeryError(
            "invalid-input", f"{ask.id} asks for a permission", f"reply with one of {', '.join(PERMISSION_REPLIES)}"
        )


async def _answer_question(
    client: AgentClient, ask: SessionAsk, reply: PermissionReply | None, answers: Sequence[Sequence[str]] | None
) -> None:
    if reply == "reject" and answers is None:
        await client.reject_question(ask.id)
        return
    if answers is None or reply is not None or len(answers) != len(ask.options):
        remedy = f"give `answers`, a list of labels for each of its {len(ask.options)} questions, or reply reject"
        raise RookeryError("invalid-input", f"{ask.id} asks a question: {ask.text}", remedy)
    await client.answer_question(ask.id, answers)
