"""Permissions and questions that sessions wait for, and the owner's answers to them.

Nothing is answered automatically.
"""

from collections.abc import Sequence
from pathlib import Path

from rookery.agents.opencode.api import AgentClient, PermissionReply
from rookery.agents.opencode.events import AskAnswered
from rookery.sessions.conversion import PERMISSION_REPLIES
from rookery.sessions.index import SessionIndex, WorkspaceSessions
from rookery.sessions.records import SessionAsk
from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix


def require_owner(scope: Path | None) -> None:
    """Raise an error if the caller is not the owner: an agent that answers asks could allow itself anything."""
    if scope is not None:
        message = "only the owner may see and answer asks: otherwise an agent could allow itself anything"
        raise RookeryError("tool-denied", message, "answer it yourself: rookery session asks")


class PendingAsks:
    """The open asks of all sessions, and the replies to them."""

    def __init__(self, index: SessionIndex) -> None:
        self._index = index

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
        async with workspace_sessions.use_agent() as agent_run:
            if ask.kind == "permission":
                await _answer_permission(agent_run.client, ask, reply, answers, message)
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


async def _answer_permission(
    client: AgentClient,
    ask: SessionAsk,
    reply: PermissionReply | None,
    answers: Sequence[Sequence[str]] | None,
    message: str | None,
) -> None:
    if reply not in PERMISSION_REPLIES or answers is not None:
        raise RookeryError(
            "invalid-input", f"{ask.id} asks for a permission", f"reply with one of {', '.join(PERMISSION_REPLIES)}"
        )
    await client.answer_permission(ask.id, reply, message)


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
