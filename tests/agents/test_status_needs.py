"""The reasons why sessions need their user, and what happens to them when their process ends."""

from rookery.agents.opencode.records import Permission, Question, QuestionItem
from rookery.agents.status import SessionState, TurnState, list_needs, mark_interrupted, summarize_status
from tests.support.requirements import requirement

PERMISSION = Permission("per_1", "ses_1", "bash", ("rm -rf build",))
QUESTION = Question("que_1", "ses_2", (QuestionItem("Which colour?"),))


@requirement("agent.status.values")
def test_each_ask_is_told_by_itself_and_all_that_was_cut_off_together() -> None:
    sessions = [
        SessionState("ses_1", "clean up", "asking", (PERMISSION,)),
        SessionState("ses_2", "paint", "asking", (QUESTION,)),
        SessionState("ses_3", "idle one", "idle"),
        *(SessionState(f"ses_{at}", f"cut {at}", "interrupted") for at in range(4, 9)),
    ]
    assert [(one.reason, one.text) for one in list_needs(sessions)] == [
        ("permission", "clean up asks: bash: rm -rf build; rookery session asks"),
        ("question", "paint asks: Which colour?; rookery session asks"),
        ("interrupted", "cut off in the middle of a turn: cut 4, cut 5, cut 6 and 2 more; rookery agent resume"),
    ]


@requirement("agent.crash.interrupted")
def test_when_the_process_ends_running_turns_are_interrupted_and_asks_are_closed() -> None:
    states: list[TurnState] = ["idle", "busy", "retry", "asking", "interrupted"]
    before = [SessionState(one, "", one, (PERMISSION,) if one == "asking" else ()) for one in states]
    after = mark_interrupted(before)
    assert [one.state for one in after] == ["idle", *["interrupted"] * 4]
    assert not any(one.asks for one in after)
    assert summarize_status(after).type == "idle"
