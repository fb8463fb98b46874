"""For any order of answers, each question gets its own answer once, and the call its result."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rookery.gateway.elicitation import ParkedCalls
from rookery.wire.protocol.messages import WireError
from rookery.wire.protocol.provider import Call, ClientQuestion
from tests.gateway.test_elicitation_parking import HERE, a_call
from tests.support.requirements import requirement

ROOTS = ClientQuestion("roots/list", {})


class Askers:
    """So many that ask at the same time, each so many times."""

    def __init__(self, times: list[int]) -> None:
        self.times = times
        self.answered = 0

    async def __call__(self, call: Call) -> Mapping[str, Any]:
        async with asyncio.TaskGroup() as group:
            for number, times in enumerate(self.times):
                group.create_task(self._ask(call, f"a{number}", times))
        return {"answered": self.answered}

    async def _ask(self, call: Call, key: str, times: int) -> None:
        for _ in range(times):
            found = (await call.ask({key: ROOTS}))[key]
            assert found == {"for": key}
            self.answered += 1


async def played(times: list[int], said: list[bool]) -> tuple[Any, int]:
    """The result, and how many questions there were.

    The client answers what it is asked where `said` has a yes, and tries every state a second time.
    """
    parking, askers, turns = ParkedCalls(), Askers(times), iter(said)
    result: Any = await parking.start(HERE, a_call(), askers)
    keys: set[str] = set()
    while "requestState" in result:
        asked = result["inputRequests"]
        keys |= set(asked)
        # At the end of what was drawn everything is answered.
        answers = {key: {"for": key.partition("-")[0]} for key in asked if next(turns, True)}
        params: dict[str, Any] = {"requestState": result["requestState"], "inputResponses": answers}
        result = await parking.resume(HERE, a_call(**params))
        with pytest.raises(WireError, match=r"already used|has ended"):
            await parking.resume(HERE, a_call(**params))
    assert len(parking) == 0
    await parking.close()
    return result, len(keys)


@requirement("hub.call.server-requests")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.booleans(), max_size=12))
def test_every_question_gets_its_own_answer_and_the_call_its_result(times: list[int], said: list[bool]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rookery.gateway.elicitation._BATCH_SECONDS", 0.0)
        assert asyncio.run(played(times, said)) == ({"answered": sum(times)}, sum(times))
