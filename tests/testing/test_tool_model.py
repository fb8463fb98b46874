"""The model that plays tool calls, as agents use it."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from rookery.sessions.run_tool import ScriptedCall, ScriptedCalls
from rookery.testing.tool_model import ToolModel
from tests.support.agents.completions import body, user

pytestmark = pytest.mark.anyio


async def test_the_model_starts_on_demand_checks_keys_and_serves_each_session_its_call() -> None:
    plays = ScriptedCalls()
    model = ToolModel(plays, lambda key: key in (b"one", b"two"))
    await model.stop()
    port = await model.port()
    assert await model.port() == port
    try:
        async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:

            async def ask(session: str, authorization: str = "Bearer one") -> tuple[int, Any]:
                headers = {"x-session-id": session, "authorization": authorization}
                url = f"http://127.0.0.1:{port}/v1/chat/completions"
                async with http.post(url, json=body([user("Run it.")]), headers=headers) as answer:
                    return answer.status, await answer.json()

            calls = {f"ses_{number}": ScriptedCall("bash", {"number": number}) for number in range(20)}
            for session, play in calls.items():
                stack.enter_context(plays.registered(session, play, "one"))
            answers = await asyncio.gather(*map(ask, calls))
            for play, (status, answer) in zip(calls.values(), answers, strict=True):
                assert (status, answer["choices"][0]["message"]["tool_calls"][0]["id"]) == (200, play.id)
            for wrong in ("Bearer three", "Basic one", "one"):
                assert (await ask("ses_1", wrong))[0] == 401
            # Nor is what one is to do told to another, or to whoever has nothing to do.
            mine = ScriptedCall("bash", {})
            stack.enter_context(plays.registered("ses_mine", mine, "one"))
            for session, who in (("ses_mine", "Bearer two"), ("ses_other", "Bearer one")):
                status, answer = await ask(session, who)
                assert status == 400 and "choose another model" in answer["error"]["message"]
            assert not mine.offered.done()
            assert (await ask("ses_mine"))[0] == 200 and mine.offered.done()
            headers = {"authorization": "Bearer one"}
            async with http.get(f"http://127.0.0.1:{port}/requests", headers=headers) as kept:
                assert (await kept.json())["requests"] == []
    finally:
        await model.stop()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
