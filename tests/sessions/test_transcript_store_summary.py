"""Messages are counted once each, and the failure of the last turn is known until the next turn."""

from typing import Any

from rookery.agents.opencode.events import MessageRemoved, MessageUpdated, TurnFailed
from rookery.agents.opencode.records import MessageInfo, MessageTimes, Session, SessionTimes, TurnError
from rookery.sessions.transcript_store import PromptTimes, TranscriptSummary

BROKE = TurnError("APIError", {"message": "it broke"})
ABORTED = TurnError("MessageAbortedError", {"message": "Aborted"})


def seen(id_: str, role: str, **more: Any) -> MessageUpdated:
    return MessageUpdated("s", MessageInfo(id_, role, **more))


def test_each_message_counts_once_however_often_it_is_heard_of() -> None:
    summary = TranscriptSummary.from_infos([MessageInfo("m1", "user"), MessageInfo("m2", "assistant")], 7)
    assert (summary.count, summary.error, summary.updated) == (2, None, 7)
    for _ in range(3):
        summary.apply(seen("m3", "user"))
    summary.apply(seen("m2", "assistant"))
    assert summary.count == 3
    summary.apply(MessageRemoved("s", "m3"))
    assert summary.count == 2


def test_a_failure_is_known_until_a_person_says_more() -> None:
    summary = TranscriptSummary.from_infos([MessageInfo("m1", "user"), MessageInfo("m2", "assistant", error=BROKE)], 0)
    assert summary.error == "it broke"
    summary.apply(seen("m3", "user"))
    assert (summary.error, summary.failed) == (None, False)
    # Where there is no model there is no message either.
    summary.apply(TurnFailed("s", BROKE))
    assert (summary.error, summary.failed) == ("it broke", True)
    summary.apply(seen("m4", "user"))
    summary.apply(seen("m5", "assistant"))
    summary.apply(TurnFailed("s", ABORTED))
    summary.apply(seen("m5", "assistant", error=ABORTED))
    assert (summary.error, summary.failed) == (None, True)


def test_the_last_prompt_time_is_unknown_only_if_a_session_changed_during_a_gap() -> None:
    def sessions(**updated: float) -> list[Session]:
        return [Session(id_, time=SessionTimes(updated=moment)) for id_, moment in updated.items()]

    def prompted(session: str, moment: float, role: str = "user") -> MessageUpdated:
        return MessageUpdated(session, MessageInfo(f"m{moment}", role, time=MessageTimes(created=moment)))

    prompts = PromptTimes()
    # Whatever was said before the first event is older than every toast.
    prompts.resync(sessions(a=1, b=1))
    assert (prompts.get("a"), prompts.get("b")) == (0, 0)
    for event in (prompted("a", 5), prompted("a", 3), prompted("a", 9, "assistant")):
        prompts.apply(event)
    for session in sessions(a=5):
        prompts.record_update(session)
    # Events are missed, in which one session changes and one is made.
    prompts.resync(sessions(a=5, b=7, c=7))
    assert [prompts.get(id_) for id_ in "abc"] == [5, None, None]
    prompts.apply(prompted("b", 8))
    prompts.drop("c")
    assert [prompts.get(id_) for id_ in "abc"] == [5, 8, 0]
    summary = TranscriptSummary.from_infos(
        [MessageInfo("m1", "user", time=MessageTimes(created=4)), MessageInfo("m2", "assistant")], 7
    )
    assert summary.prompted_at == 4
