"""Transcripts are read once and updated by events; what is missed or dropped is read again."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from rookery.agents.opencode.events import MessageUpdated, PartUpdated, TurnFailed
from rookery.agents.opencode.records import MessageInfo, Session, SessionTimes, TurnError
from rookery.sessions.transcript_store import TranscriptCache, TranscriptStore
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio

SESSION = Session("ses_1", time=SessionTimes(1, 7))


class OpenCode:
    """Holds messages, and lets something happen while it is asked for them."""

    def __init__(self) -> None:
        self.messages = [self.message("m1", "one")]
        self.asked: list[int | None] = []
        self.meanwhile: list[Any] = []
        self.largest = 10_000

    @staticmethod
    def message(id_: str, text: str, created: int = 0) -> dict[str, Any]:
        part = {"id": f"p{id_}", "messageID": id_, "type": "text", "text": text, "time": {"start": 1, "end": 2}}
        return {"info": {"id": id_, "role": "user", "time": {"created": created}}, "parts": [part]}

    async def message_at(self, session: str, message: str, kind: Any) -> Any:
        (found,) = [one for one in self.messages if one["info"]["id"] == message]
        return msgspec.convert(found, kind)

    async def read_messages_as(
        self, session: str, kind: Any, newest: int | None = None, *, before: tuple[str, float] | None = None
    ) -> list[Any]:
        self.asked.append(newest)
        found = [one for one in self.messages if before is None or one["info"]["id"] < before[0]]
        found = found[-newest:] if newest is not None else found
        told = msgspec.json.encode(found)
        await asyncio.sleep(0)
        while self.meanwhile:
            self.meanwhile.pop(0)()
        await asyncio.sleep(0)
        if len(told) > self.largest:
            raise RookeryError("agent-unavailable", "the agent cannot be reached: the response is larger than 1 bytes")
        return msgspec.json.decode(told, type=list[kind])


def make_store() -> tuple[TranscriptStore, OpenCode, TranscriptCache]:
    opencode, cache = OpenCode(), TranscriptCache()

    @asynccontextmanager
    async def used() -> AsyncGenerator[Any]:
        await asyncio.sleep(0)
        yield SimpleNamespace(client=opencode)

    return TranscriptStore(cache, cast(Any, used)), opencode, cache


def said(store: TranscriptStore, id_: str, text: str) -> None:
    """OpenCode's events about a new message."""
    store.apply(MessageUpdated(SESSION.id, MessageInfo(id_, "user")))
    store.apply(PartUpdated(SESSION.id, msgspec.Raw(msgspec.json.encode(OpenCode.message(id_, text)["parts"][0]))))


async def contents(store: TranscriptStore) -> list[str]:
    return [one.content for one in (await store.transcript(SESSION)).messages(running=False)]


async def test_what_was_read_is_kept_current_and_costs_no_second_reading() -> None:
    store, opencode, _ = make_store()
    assert await asyncio.gather(contents(store), contents(store)) == [["one"], ["one"]]
    said(store, "m2", "two")
    assert await contents(store) == ["one", "two"]
    assert (await store.summary(SESSION)).count == 2
    assert opencode.asked == [None]
    assert store.describe_last_message(SESSION.id) == "user: two"


async def test_what_is_heard_while_it_is_read_is_not_lost_and_counts_once() -> None:
    store, opencode, _ = make_store()
    opencode.meanwhile = [lambda: said(store, "m1", "one"), lambda: said(store, "m2", "two")]
    assert await contents(store) == ["one", "two"]
    assert (await store.summary(SESSION)).count == 2


async def test_f02_after_a_gap_only_what_is_unchanged_is_still_right() -> None:
    store, opencode, _ = make_store()
    assert await contents(store) == ["one"]
    opencode.messages.append(opencode.message("m2", "two"))
    store.resync([SESSION], lambda session, updated: (session, updated) == (SESSION.id, 7))
    assert await contents(store) == ["one"]
    store.resync([SESSION], lambda session, updated: False)
    assert await contents(store) == ["one", "two"]
    # A gap in the middle of a reading: it is read once more.
    store.drop(SESSION.id)
    opencode.asked.clear()
    opencode.meanwhile = [lambda: store.resync([SESSION], lambda session, updated: True)]
    assert await contents(store) == ["one", "two"]
    assert opencode.asked == [None, None]


async def test_a_session_that_is_too_large_to_be_read_is_read_in_part() -> None:
    store, opencode, _ = make_store()
    opencode.messages = [opencode.message(f"m{number:04}", "x" * 100) for number in range(700)]
    opencode.largest = 15_000
    transcript = await store.transcript(SESSION)
    assert (opencode.asked, len(transcript), transcript.is_complete) == ([None, 500, 50], 50, False)
    assert not transcript.has_all_since(None)
    opencode.largest = 10
    store.drop(SESSION.id)
    with pytest.raises(RookeryError):
        await store.transcript(SESSION)


async def test_pages_of_older_messages_are_read_and_not_kept() -> None:
    store, opencode, _ = make_store()
    opencode.messages = [opencode.message(f"m{number:04}", "x" * 100, number) for number in range(700)]
    opencode.largest = 15_000

    async def page(before: str | None, limit: int = 40, since: float | None = None) -> tuple[list[str], bool]:
        shown, older = await store.page(SESSION, running=False, limit=limit, since=since, before=before)
        return [one.id for one in shown], older

    def ids(first: int, last: int) -> list[str]:
        return [f"m{number:04}" for number in range(first, last)]

    assert await page(None) == (ids(660, 700), True)
    # From those that are held, then from OpenCode: as many as are wanted, or as many as can be read at once.
    assert await page("m0660", 5) == (ids(655, 660), True)
    opencode.asked.clear()
    assert await page("m0660") == (ids(620, 660), True) and opencode.asked == [41]
    assert await page("m0650", 100) == (ids(600, 650), True) and opencode.asked == [41, 101, 51]
    assert await page("m0600", since=590) == (ids(591, 600), False)
    assert await page("m0030") == (ids(0, 30), False)
    assert await page("m0000") == ([], False)
    assert await page("m0040") == (ids(0, 40), False)
    transcript = await store.transcript(SESSION)
    assert len(transcript) == 50


async def test_an_event_that_is_not_understood_makes_it_read_again() -> None:
    store, opencode, _ = make_store()
    assert await contents(store) == ["one"]
    store.apply(PartUpdated(SESSION.id, msgspec.Raw(b'{"id": 7}')))
    assert await contents(store) == ["one"]
    assert opencode.asked == [None, None]


async def test_d18_readers_cancelled_at_whatever_moment_leave_nothing_behind() -> None:
    store, opencode, cache = make_store()
    chance = random.Random(18)

    async def hold() -> None:
        async with store.pinned(SESSION):
            await asyncio.sleep(0)

    for _ in range(300):
        readers = [asyncio.ensure_future(work) for work in (hold(), contents(store), store.summary(SESSION), hold())]
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        for reader in chance.sample(readers, 2):
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert not store._pending_events
        assert not any(lock.locked() for lock in store._locks.values())
        transcript = cache.peek(SESSION.id)
        assert transcript is None or transcript.pins == 0
        if chance.random() < 0.5:
            store.drop(SESSION.id)
    assert await contents(store) == ["one"]
    assert len(opencode.asked) > 50


async def test_a_turn_that_fails_while_messages_are_read_has_failed() -> None:
    for read in (TranscriptStore.summary, TranscriptStore.transcript):
        store, opencode, _ = make_store()
        opencode.meanwhile.append(lambda store=store: store.apply(TurnFailed("ses_1", TurnError("APIError"))))
        await read(store, SESSION)
        assert (await store.summary(SESSION)).failed
