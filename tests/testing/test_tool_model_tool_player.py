"""Single tool calls, played for requests of the right session."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rookery.sessions.run_tool import ScriptedCall, ScriptedCalls
from rookery.system.errors import RookeryError
from rookery.testing.player import NoMatchingStep
from rookery.testing.request import ModelRequest
from rookery.testing.routes import FramedReply
from rookery.testing.tool_model import ToolPlayer
from tests.support.agents.completions import Message, asked as plain, called, result, said, user

pytestmark = pytest.mark.anyio

# A call of before, as it is sent along with the next one.
EARLIER = [user("Run read."), called("read"), result("something"), said("")]
KEY = "mine"


def asked(messages: Sequence[Message], session: str | None = "ses_1", key: str | None = KEY) -> ModelRequest:
    return replace(plain(messages, session), key=key)


async def test_the_call_is_made_once_and_its_result_ends_the_turn() -> None:
    plays, play = ScriptedCalls(), ScriptedCall("bash", {"command": "ls", "n": 2**70})
    player = ToolPlayer(plays)
    with plays.registered("ses_1", play, KEY):
        for _ in range(2):  # OpenCode asks again where an answer did not reach it
            request = asked([*EARLIER, user("Run bash.")])
            whole = json.loads(FramedReply(player.reply_to(request), request, 0).body())
            (call,) = whole["choices"][0]["message"]["tool_calls"]
            assert (call["id"], call["function"]["name"]) == (play.id, "bash")
            assert json.loads(call["function"]["arguments"]) == {"command": "ls", "n": 2**70}
            assert whole["usage"]["total_tokens"] == 0
        assert play.offered.result() == {"bash", "read"} and not play.finished.done()
        image = user("Attached media from tool result:")
        for _ in range(2):
            done = player.reply_to(asked([*EARLIER, user("Run bash."), called("bash"), result("done"), image]))
            assert (done.text, done.calls) == ("", ())
        assert play.finished.done()


async def test_a_tool_that_is_not_offered_is_not_called() -> None:
    plays, play, only_looking = ScriptedCalls(), ScriptedCall("levitate", {}), ScriptedCall(None, {})
    player = ToolPlayer(plays)
    for child, one in (("ses_1", play), ("ses_2", only_looking)):
        with plays.registered(child, one, KEY):
            assert player.reply_to(asked([user("Run it.")], child)).calls == ()
            assert one.offered.result() == {"bash", "read"}


async def test_a_call_is_played_only_in_its_registered_session_and_for_its_agents_key() -> None:
    plays, play = ScriptedCalls(), ScriptedCall("bash", {})
    player = ToolPlayer(plays)
    with plays.registered("ses_1", play, KEY):
        for session, key in (("ses_2", KEY), (None, KEY), ("ses_1", "another's"), ("ses_1", ""), ("ses_1", None)):
            with pytest.raises(NoMatchingStep, match="choose another model"):
                player.reply_to(asked([user("Hello")], session, key))
        with pytest.raises(RookeryError), plays.registered("ses_1", ScriptedCall("read", {}), KEY):
            raise AssertionError("that must not be reached")
    with pytest.raises(NoMatchingStep):
        player.reply_to(asked([user("Run bash.")]))
    assert not play.offered.done()


async def test_what_opencode_asks_on_its_own_account_is_answered() -> None:
    title = [{"role": "system", "content": "You are a title generator."}, user("Run bash.")]
    assert ToolPlayer(ScriptedCalls()).reply_to(plain(title, tools=())).text == "Run bash."
