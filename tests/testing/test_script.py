"""A script contains only steps that can be played."""

from typing import Any

import msgspec
import pytest

from rookery.testing.script import Call, Conversation, Regex, Script, Step, Turn, matches_condition, shorten


def convert(step: dict[str, Any]) -> Step:
    return msgspec.convert(step, Step)


def test_a_step_says_calls_or_does_both() -> None:
    both = convert({"say": "I look.", "call": "bash", "with": {"command": "ls"}})
    assert both.calls == (Call("bash", {"command": "ls"}),)
    several = convert({"parallel": [{"call": "read", "with": {"path": "a"}}, {"call": "list"}]})
    assert several.calls == (Call("read", {"path": "a"}), Call("list", {}))
    assert convert({"call": "list"}).calls == (Call("list", {}),)
    assert not convert({"say": ""}).is_failure


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({}, "needs one of"),
        ({"delay": 1}, "needs one of"),
        ({"call": "a", "parallel": [{"call": "b"}]}, "cannot be combined"),
        ({"say": "x", "with": {"a": 1}}, "`with` requires `call`"),
        ({"error": 500, "say": "x"}, "`error` cannot be combined"),
        ({"error": 500, "disconnect": True}, "`error` cannot be combined"),
        ({"say": "x", "message": "y"}, "require `error`"),
        ({"say": "x", "retry_after": 1}, "require `error`"),
        ({"disconnect": True, "call": "a"}, "never made"),
        ({"say": "x", "times": 2}, "`times` requires"),
        ({"error": 200}, ">= 400"),
        ({"error": 503, "times": 0}, ">= 1"),
        ({"say": "x", "delay": -1}, ">= 0"),
        ({"call": ""}, "length >= 1"),
        ({"say": "x", "sleep": 1}, "unknown field `sleep`"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(step: dict[str, Any], told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        convert(step)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([Step(say="a"), Step(say="b")], "step 2 can never be played: step 1 calls no tool"),
        ([Step(call="a"), Step(error=500), Step(say="b")], "step 3 can never be played: step 2 always fails"),
        ([Step(error=500, times=2)], "after step 1 has failed 2 times, another step must follow"),
    ],
)
def test_a_step_that_can_never_be_played_is_refused(steps: list[Step], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Turn(tuple(steps))


def test_a_turn_may_fail_for_ever_at_its_end() -> None:
    assert Turn((Step(call="a"), Step(error=400))).step[1].is_failure
    assert Turn((Step(disconnect=True, times=1), Step(disconnect=True, say="half"))).step[1].is_failure


def test_only_one_conversation_is_for_every_session() -> None:
    turns = (Turn((Step(say="x"),)),)
    with pytest.raises(ValueError, match="conversation 3 can never be played: conversation 1"):
        Script((Conversation(turns), Conversation(turns, when="x"), Conversation(turns)))
    with pytest.raises(ValueError, match="not both"):
        Conversation(turns, when="x", session=1)


def test_a_condition_is_contained_text_or_a_regular_expression() -> None:
    assert matches_condition("login", "Fix the login, please")
    assert not matches_condition("Login", "Fix the login, please")
    assert matches_condition(Regex("(?i)^fix .*LOGIN"), "Fix the login, please")
    assert not matches_condition(Regex("^login"), "Fix the login, please")
    with pytest.raises(ValueError, match="not a regular expression"):
        Regex("(")


def test_steps_tell_what_they_do() -> None:
    assert str(Step(say="Hello", call="bash")) == 'say "Hello" and call bash'
    assert str(Step(parallel=(Call("a"), Call("b")))) == "call a, b"
    assert str(Step(error=503)) == "error 503"
    assert str(Step(disconnect=True, say="Hal")) == 'disconnect and say "Hal"'
    assert shorten("a\n b" * 50, 5) == '"a ba …"'
