"""If one of several parallel steps fails, all of them end."""

import asyncio

import pytest

from rookery.demo.tour import run_together
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio


async def test_what_all_come_to_is_answered_in_their_order() -> None:
    assert await run_together([asyncio.sleep(0, "a"), asyncio.sleep(0, "b")]) == ["a", "b"]


async def test_where_one_fails_the_others_are_called_off_and_its_error_is_raised() -> None:
    ended = list[str]()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("called off")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise RookeryError("timeout", "too late")

    with pytest.raises(RookeryError, match="too late"):
        await run_together([waits(), fails()])
    assert ended == ["called off"]
