"""Waits and turns that are cancelled at any moment leave no listener, lock or task."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from rookery.agents.opencode.events import ToastShown
from rookery.agents.opencode.records import Session
from rookery.sessions.aliases import AgentChoice
from rookery.sessions.follow import ChangeFollower
from rookery.sessions.index import ChangeNotifier, SessionRef
from rookery.sessions.records import SessionChange
from rookery.sessions.toasts import ToastLog
from rookery.sessions.transcript_store import TranscriptCache, TranscriptStore
from rookery.sessions.turns import TurnSender
from rookery.sessions.waits import Waits
from tests.support.clock import SetClock

pytestmark = pytest.mark.anyio


class FakeIndex:
    """One session, whose agent answers in its own time."""

    path = "/ws"
    ended_runs = 0

    def __init__(self) -> None:
        self.shelf = TranscriptCache()
        self.transcripts = TranscriptStore(self.shelf, cast(Any, self.use_agent))
        self.toasts = ToastLog("app-1", "one")
        self.awake = 0
        self.sending: Counter[str] = Counter()
        self.matched_messages: deque[str] = deque()
        self.client = self.workspace_agent = self

    @asynccontextmanager
    async def use_agent(self) -> AsyncGenerator["FakeIndex"]:
        self.awake += 1
        try:
            await asyncio.sleep(0)
            yield self
        finally:
            self.awake -= 1

    async def read_messages_as(self, session: str, kind: Any, newest: int | None = None) -> list[Any]:
        await asyncio.sleep(0)
        return []

    async def prompt(self, session: str, text: str, **more: Any) -> None:
        await asyncio.sleep(0)

    def watch_turn(self, agent_run: Any, session: str) -> None: ...

    def session(self, id_: str) -> Session:
        return Session(id_)

    def is_running(self, id_: str) -> bool:
        return True

    def state(self, id_: str) -> None: ...

    def asks(self, id_: str) -> list[Any]:
        return []


class Finding:
    def __init__(self, index: FakeIndex) -> None:
        self.found = SessionRef(cast(Any, index), "ses_1")

    async def find(self, id_: str, scope: Any) -> SessionRef:
        await asyncio.sleep(0)
        return self.found


async def test_d18_waits_and_turns_cut_off_at_whatever_moment_leave_nothing_behind() -> None:
    chance, clock, changes, index = random.Random(18), SetClock(), ChangeNotifier(), FakeIndex()
    following, finding = ChangeFollower(changes, clock), Finding(index)
    waits, turns = Waits(cast(Any, finding), following, clock), TurnSender(following, clock)

    async def tell(words: str) -> None:
        await asyncio.sleep(0)

    works: list[Callable[[], Awaitable[Any]]] = [
        lambda: waits.wait_for_message("ses_1", "never", 60, progress=tell),
        lambda: waits.wait_for_toast("ses_1", "never", 60),
        lambda: waits.wait_for_idle("ses_1", 60, progress=tell),
        lambda: waits.wait_for_tool("ses_1", timeout=60),
        lambda: turns.send(finding.found, "hello", AgentChoice(), wait=True, seconds=60, progress=tell),
    ]
    for _ in range(300):
        cut_off = [asyncio.ensure_future(work()) for work in works]
        for _ in range(chance.randrange(12)):
            clock.now += 2
            changes.notify(SessionChange("messages", "/ws", "ses_1"))
            index.toasts.add(ToastShown("some"), 0)
            await asyncio.sleep(0)
        for one in cut_off:
            one.cancel()
        done = await asyncio.gather(*cut_off, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in done), done
        assert not changes._listeners
        assert index.awake == 0 and not index.sending
        transcript = index.shelf.peek("ses_1")
        assert transcript is None or transcript.pins == 0
        index.transcripts.drop("ses_1")
