"""A wait checks the state first and after every relevant change, reports progress, and always times out."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rookery.sessions.follow import ChangeFollower, require_timeout
from rookery.sessions.index import ChangeNotifier, SessionRef
from rookery.sessions.records import SessionChange
from rookery.system.errors import RookeryError
from tests.support.clock import SetClock

pytestmark = pytest.mark.anyio

FOUND = SessionRef(cast(Any, SimpleNamespace(path="/ws")), "ses_1")


def a_following() -> tuple[ChangeNotifier, ChangeFollower, SetClock]:
    changes, clock = ChangeNotifier(), SetClock()
    return changes, ChangeFollower(changes, clock), clock


async def test_what_is_there_already_is_found_without_a_change() -> None:
    _, following, _ = a_following()

    async def look() -> str:
        return "there"

    assert await following.wait_until(FOUND, look, 0, describe_activity=str) == "there"


async def test_what_is_there_already_is_found_without_time_though_the_look_takes_some() -> None:
    _, following, _ = a_following()

    async def look() -> str:
        await asyncio.to_thread(str)
        return "there"

    assert await following.wait_until(FOUND, look, 0, describe_activity=str) == "there"


async def test_a_look_is_taken_after_each_change_that_concerns_the_session() -> None:
    changes, following, _ = a_following()
    looks: list[int] = []
    looked = asyncio.Event()

    async def look() -> str | None:
        looks.append(len(looks))
        looked.set()
        return "found" if len(looks) == 4 else None

    async def again() -> None:
        looked.clear()
        await looked.wait()

    waiting = asyncio.ensure_future(following.wait_until(FOUND, look, 60, describe_activity=str))
    await again()
    changes.notify(SessionChange("messages", "/ws", "ses_2"))
    changes.notify(SessionChange("messages", "/elsewhere", "ses_1"))
    changes.notify(SessionChange("messages", "/elsewhere", None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(looks) == 1
    for change in (
        SessionChange("messages", "/ws", "ses_1"),
        SessionChange("session", "/ws", None),
        SessionChange("toasts", "/ws", None),
    ):
        changes.notify(change)
        changes.notify(SessionChange("session", "/ws", "ses_1"))
        if change.what != "toasts":
            await again()
    assert await waiting == "found"
    assert not changes._listeners


async def test_time_runs_out_and_nobody_listens_any_more() -> None:
    changes, following, _ = a_following()

    async def look() -> None:
        return None

    assert await following.wait_until(FOUND, look, 0.01, describe_activity=str) is None
    assert not changes._listeners
    for seconds in (-1, 1e6, float("nan")):
        with pytest.raises(RookeryError) as caught:
            await following.wait_until(FOUND, look, seconds, describe_activity=str)
        assert caught.value.code == "invalid-input"
    require_timeout(0)


async def test_whoever_waits_is_told_how_it_goes_and_not_too_often() -> None:
    changes, following, clock = a_following()
    told: list[str] = []
    looked = asyncio.Event()
    ended = asyncio.Event()

    async def look() -> bool | None:
        looked.set()
        return True if ended.is_set() else None

    async def progress(words: str) -> None:
        told.append(words)

    async def change() -> None:
        looked.clear()
        changes.notify(SessionChange("messages", "/ws", "ses_1"))
        await looked.wait()

    doing = iter(["one", "two"])
    waiting = asyncio.ensure_future(
        following.wait_until(FOUND, look, 60, describe_activity=lambda: next(doing), progress=progress)
    )
    await looked.wait()
    for _ in range(3):
        await change()
    assert told == []
    clock.now = 1.5
    for _ in range(3):
        await change()
    assert told == ["one"]
    # Where nothing happens for long, that is told too.
    clock.now = 10
    ended.set()
    await change()
    assert told == ["one", "two"]
    assert await waiting is True


async def test_changes_of_one_turn_of_the_loop_are_told_together() -> None:
    changes = ChangeNotifier()
    told: list[frozenset[SessionChange]] = []
    stop = changes.listen(told.append)
    one, two = SessionChange("session", "/ws", "a"), SessionChange("messages", "/ws", "a")
    for change in (one, two, one):
        changes.notify(change)
    assert told == []
    await asyncio.sleep(0)
    assert told == [frozenset({one, two})]
    stop()
    changes.notify(one)
    await asyncio.sleep(0)
    assert len(told) == 1
