"""What sessions wait for, and the answers of the owner. Nothing is ever answered by itself."""

from collections.abc import Sequence
from pathlib import Path

from rookery.agents.client import AgentClient, Reply
from rookery.agents.events import Answered
from rookery.sessions.finding import Finding
from rookery.sessions.records import AskShown
from rookery.sessions.room import Room
from rookery.sessions.shown import REPLIES
from rookery.system.errors import RookeryError


def require_owner(scope: Path | None) -> None:
    if scope is not None:
        message = "only the owner sees and answers what a session asks: an agent could allow itself anything otherwise"
        raise RookeryError("tool-denied", message, "answer it yourself: rookery session asks")


class Asking:
    def __init__(self, finding: Finding) -> None:
        self._finding = finding

    def all(self) -> list[AskShown]:
        return [ask for room in self._finding.rooms(None) for ask in room.asks()]

    async def of(self, id_: str) -> list[AskShown]:
        found = await self._finding.find(id_, None)
        asks = found.room.asks()
        return [one for one in asks if found.id in (one.session_id, one.asked_by)]

    async def answer(
        self, id_: str, reply: Reply | None, answers: Sequence[Sequence[str]] | None, message: str | None
    ) -> AskShown:
        room, ask = self._open(id_)
        async with room.used() as life:
            if ask.kind == "permission":
                await _permit(life.client, ask, reply, answers, message)
            else:
                await _tell(life.client, ask, reply, answers)
            life.watcher.learn(Answered(ask.asked_by, ask.id))
        return ask

    def _open(self, id_: str) -> tuple[Room, AskShown]:
        for room in self._finding.rooms(None):
            for ask in room.asks():
                if ask.id == id_:
                    return room, ask
        raise RookeryError(
            "invalid-input", f"there is no open ask {id_!r}", "see what there is: list_asks, or rookery session asks"
        )


async def _permit(
    client: AgentClient,
    ask: AskShown,
    reply: Reply | None,
    answers: Sequence[Sequence[str]] | None,
    message: str | None,
) -> None:
    if reply not in REPLIES or answers is not None:
        raise RookeryError("invalid-input", f"{ask.id} asks for a permission", f"reply one of {', '.join(REPLIES)}")
    await client.answer_permission(ask.id, reply, message)


async def _tell(
    client: AgentClient, ask: AskShown, reply: Reply | None, answers: Sequence[Sequence[str]] | None
) -> None:
    if reply == "reject" and answers is None:
        await client.reject_question(ask.id)
        return
    if answers is None or reply is not None or len(answers) != len(ask.options):
        remedy = f"give `answers`, a list of labels for each of its {len(ask.options)} questions, or reply reject"
        raise RookeryError("invalid-input", f"{ask.id} asks a question: {ask.text}", remedy)
    await client.answer_question(ask.id, answers)
