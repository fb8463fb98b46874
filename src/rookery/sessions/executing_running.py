"""One tool call on its way: the turn of a hidden child in which it is played, until its result is there."""

import asyncio
from dataclasses import dataclass, field

from rookery.agents.client import AgentClient
from rookery.agents.events import Event, SessionGone, SessionSeen
from rookery.agents.injection import TOOL_MODEL
from rookery.agents.life import Life
from rookery.agents.records import Message, Session
from rookery.agents.refusals import LOGS
from rookery.sessions.executing_children import Child
from rookery.sessions.executing_outcome import begun, not_offered, outcome
from rookery.sessions.executing_plays import Play
from rookery.sessions.records import Progress, ToolRun
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

# A turn has no limit of its own: whoever waits for it has.
LONGEST_SECONDS = 7 * 86_400.0
# The call is in the last of the messages, or in the one before that.
_NEWEST = 3


def _future() -> "asyncio.Future[RookeryError]":
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, eq=False)
class Running:
    """`turn` answers the last message of the child, or why there is none; `unwanted` gets why it is to end."""

    life: Life
    session: Session
    child: Child
    play: Play
    turn: "asyncio.Task[Message | RookeryError]"
    unwanted: "asyncio.Future[RookeryError]" = field(default_factory=_future)

    @staticmethod
    def begin(tasks: TaskSet, life: Life, session: Session, child: Child, play: Play) -> "Running":
        return Running(life, session, child, play, tasks.start(_turn(life.client, session, child, play), "turn"))

    def doing(self) -> str:
        asks = [ask for one in self.life.watcher.sessions for ask in one.asks if ask.session == self.child.id]
        return f"it waits for an answer: {asks[0].text}" if asks else f"{self.play.tool} runs"

    def hear(self, event: Event) -> None:
        """Its session may be closed or deleted meanwhile, by whomever."""
        match event:
            case SessionGone(id_):
                gone = id_
            case SessionSeen(session) if session.time.archived is not None:
                gone = session.id
            case _:
                return
        if gone == self.session.id and not self.unwanted.done():
            told = f"{gone} was closed while {self.play.tool} ran"
            self.unwanted.set_result(RookeryError("session-not-found", told, "run it in another session"))

    async def ended(self, progress: Progress | None, seconds: float) -> ToolRun | RookeryError:
        """What came of it. Told meanwhile is what it does, so often; raises why it is not wanted any more."""
        over = {self.turn, self.play.ran, self.unwanted}
        while not (await asyncio.wait(over, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0]:
            if progress is not None:
                await progress(self.doing())
        if self.unwanted.done():
            raise self.unwanted.result()
        return await self._outcome()

    async def stop(self) -> None:
        """End the turn, in which nothing is played any more."""
        if self.play.offered.done() and not self.turn.done():
            await self.life.client.abort(self.child.id)
        await self.turn

    async def _outcome(self) -> ToolRun | RookeryError:
        play, client = self.play, self.life.client
        if self.turn.done() and isinstance(error := self.turn.result(), RookeryError):
            return RookeryError(error.code, f"{play.tool} did not run to its end: {error.message}", error.remedy)
        if play.offered.done() and play.tool not in (offered := play.offered.result()):
            if play.tool is None:
                return begun(play, self.session.id)
            return not_offered(play.tool, offered, await client.tool_ids())
        messages = await client.messages(self.child.id, _NEWEST)
        if (found := outcome(messages, play, self.session.id)) is not None:
            return found
        fault = next((one.info.error.message for one in reversed(messages) if one.info.error is not None), "")
        told = f"{play.tool} was not run: {fault or 'OpenCode has not asked what to do'}"
        return RookeryError("agent-unavailable", told, LOGS)


async def _turn(client: AgentClient, session: Session, child: Child, play: Play) -> Message | RookeryError:
    said = f"Run {play.tool}." if play.tool is not None else "Which tools are there?"
    try:
        return await client.send(child.id, said, agent=session.agent, model=TOOL_MODEL, seconds=LONGEST_SECONDS)
    except RookeryError as error:
        return error
