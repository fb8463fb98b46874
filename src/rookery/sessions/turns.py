"""Sends messages and follows the turns that come of them, from the first event to the last."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from rookery.agents.bodies import message_id
from rookery.agents.client import AgentClient
from rookery.agents.first_prompt import LONGEST
from rookery.agents.records import MessageInfo
from rookery.sessions.choosing import Choice
from rookery.sessions.finding import Found
from rookery.sessions.following import Following, require_seconds
from rookery.sessions.records import MessageShown, Progress, Turn
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

if TYPE_CHECKING:
    from rookery.sessions.book import Book

_DIED = "the agent ended in the middle of the turn; `rookery agent resume` takes it up again"
_CLOSED = "the session was closed"
# OpenCode says at once that it has taken a message, and a moment later that a turn runs.
_BEGUN_SECONDS = 10.0


class Turns:
    def __init__(self, following: Following, clock: Clock) -> None:
        self._following, self._clock = following, clock

    async def send(
        self, found: Found, content: str, choice: Choice, *, wait: bool, seconds: float, progress: Progress | None
    ) -> Turn:
        _check(content)
        require_seconds(seconds)
        room = found.room
        async with room.used() as life, room.ledger.held(found.session):
            following = _Following(found, content, room.ends)
            with following.sending():
                await following.begin(life.client, choice, self._clock.wall() * 1000)
                room.tenant.watch_turn(life, found.id)
                if not wait:
                    await self._following.until(found, following.begun, _BEGUN_SECONDS, doing=str)
                    return Turn(session_id=found.id, message_id=following.message, status="taken")
                over = await self._following.until(
                    found, following.look, seconds, doing=lambda: doing(found), progress=progress
                )
                return following.turn(over is not None)


class _Following:
    """One turn: `message` began it, and is empty as long as it is not known."""

    def __init__(self, found: Found, content: str, ends: int) -> None:
        self.found, self.message = found, ""
        self._content, self._ends = content, ends
        self._alone = True
        self._before: frozenset[str] = frozenset()
        self._book: Book | None = None
        self._error: str | None = None

    @contextmanager
    def sending(self) -> Generator[None]:
        """Whether a turn is about to run is known before OpenCode says so."""
        sending = self.found.room.sending
        self._alone = not sending[self.found.id] and not self.found.running
        sending[self.found.id] += 1
        try:
            yield
        finally:
            sending[self.found.id] -= 1
            sending += Counter()

    async def begin(self, client: AgentClient, choice: Choice, now: float) -> None:
        """Send the message.

        An id of ours tells whose turn it is. But OpenCode answers only what is newer than its own last words: where it
        may be speaking, it has to choose the id itself.
        """
        book = await self.found.room.ledger.book(self.found.session)
        self._before = frozenset(one.id for one in book.infos())
        self.message = message_id(now) if self._alone else ""
        await client.prompt(
            self.found.id, self._content, agent=choice.agent, model=choice.model, message=self.message or None
        )

    async def taken(self) -> Literal[True] | None:
        """Whether its message is known."""
        if not self.message:
            room = self.found.room
            book = await room.ledger.book(self.found.session)
            for one in book.messages(running=True):
                new = one.role == "user" and one.id not in self._before and one.id not in room.claimed
                if new and one.content.startswith(self._content):
                    self.message = one.id
                    room.claimed.append(one.id)
                    break
        return True if self.message else None

    async def begun(self) -> Literal[True] | None:
        """Whether it runs, or is over: whoever waits for its end from now on does not take it for one to come."""
        return True if await self.look() or (await self.taken() and self.found.running) else None

    async def look(self) -> Literal[True] | None:
        """Whether it is over."""
        room = self.found.room
        if room.ends != self._ends:
            self._error = _DIED
            return True
        try:
            if not await self.taken():
                return None
            session = self.found.session
            self._book = await room.ledger.book(session)
            tally = await room.ledger.tally(session)
        except RookeryError as error:
            self._error = _CLOSED if error.code == "session-not-found" else error.message
            return True
        if not is_over(list(self._book.infos()), self.message, running=self.found.running, failed=tally.failed):
            return None
        self._error = tally.error if tally.failed else None
        return True

    def turn(self, over: bool) -> Turn:
        said = self._said()
        error = self._error or (said[-1].error if said else None)
        status = "timeout" if not over else "finished" if error is None else "error"
        return Turn(
            session_id=self.found.id,
            message_id=self.message,
            status=status,
            content="\n".join(one.content for one in said if one.content),
            parts=tuple(run for one in said for run in one.parts),
            error=error if over else None,
            messages=said,
            asks=() if over else tuple(self.found.room.asks(self.found.id)),
            note=None if over else f"the turn goes on: {doing(self.found)}",
        )

    def _said(self) -> tuple[MessageShown, ...]:
        if self._book is None or not self.message:
            return ()
        later = self._book.after(self.message, running=self.found.running)
        own = {one.id for one in self._book.infos() if one.parent == self.message}
        # A message that came while a turn ran is answered together with what that turn was for.
        return tuple(one for one in later if one.role == "assistant" and (not own or one.id in own))


def is_over(infos: Sequence[MessageInfo], message: str, *, running: bool, failed: bool) -> bool:
    """Whether the turn that `message` began has ended. `failed`: a turn has, since the newest message of a person."""
    later = [one for one in infos if one.id > message]
    answers = [one for one in later if one.role == "assistant"]
    if running:
        # Others may have sent more meanwhile, which is answered next.
        own = [one for one in answers if one.parent == message]
        return bool(own) and _is_final(own[-1]) and any(one.role == "user" for one in later)
    if not any(one.id == message for one in infos):
        return False
    return _is_whole(answers[-1]) if answers else failed


def _is_whole(info: MessageInfo) -> bool:
    return info.error is not None or info.time.completed is not None


def _is_final(info: MessageInfo) -> bool:
    return info.error is not None or (_is_whole(info) and info.finish not in ("tool-calls", "unknown", None))


def doing(found: Found) -> str:
    """In words, what a session does."""
    state = found.room.state(found.id)
    if state is None or state.state in ("idle", "interrupted"):
        return state.state if state is not None else "the agent does not run"
    if state.asks:
        return f"waits for an answer: {state.asks[0].text}"
    if state.state == "retry":
        return f"the model is asked again: {state.detail}"
    return found.room.ledger.last_words(found.id) or "busy"


def _check(content: str) -> None:
    if not content.strip():
        raise RookeryError("invalid-input", "the message is empty", "say what is to be done")
    if len(content.encode("utf-8", "surrogatepass")) > LONGEST:
        raise RookeryError("invalid-input", f"the message is longer than {LONGEST} bytes", "put it into a file")
