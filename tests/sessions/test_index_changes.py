"""All listeners are notified of changes of sessions, even if one of them fails."""

import asyncio
from typing import Any

import pytest

from rookery.sessions.index import ChangeNotifier
from rookery.sessions.records import SessionChange

pytestmark = pytest.mark.anyio

CHANGE = SessionChange("messages", "/ws", "ses_1")


async def test_a_listener_that_fails_is_recorded_and_keeps_nothing_from_the_others() -> None:
    changes, told, failed = ChangeNotifier(), list[frozenset[SessionChange]](), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context["exception"]))

    def fails(marked: frozenset[SessionChange]) -> None:
        raise KeyError("branch")

    changes.listen(fails)
    end = changes.listen(told.append)
    for _ in range(2):
        changes.notify(CHANGE)
        changes.notify(CHANGE)
        await asyncio.sleep(0)
    assert told == [frozenset({CHANGE})] * 2 and [type(one) for one in failed] == [KeyError, KeyError]
    end()
    changes.notify(CHANGE)
    await asyncio.sleep(0)
    assert len(told) == 2
