"""The transcript of a session equals OpenCode's messages for any order of events."""

import json
from typing import Any

import msgspec

from rookery.agents.opencode.events import MessageRemoved, MessageUpdated, PartDelta, PartRemoved, PartUpdated
from rookery.agents.opencode.records import Message, MessageInfo
from rookery.sessions.conversion import iterate_content
from rookery.sessions.transcript import Transcript

SESSION = "ses_1"


def info(id_: str, role: str = "assistant", created: float = 0, **more: Any) -> MessageInfo:
    return msgspec.convert(
        {"id": id_, "role": role, "sessionID": SESSION, "time": {"created": created}, **more}, MessageInfo
    )


def text(id_: str, message: str, said: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "messageID": message, "type": "text", "text": said, **more}


def seen(part: dict[str, Any]) -> PartUpdated:
    return PartUpdated(SESSION, msgspec.Raw(json.dumps(part).encode()))


def make_transcript(*messages: dict[str, Any], limit: int = 10_000_000) -> Transcript:
    transcript = Transcript(SESSION, limit)
    transcript.fill(msgspec.convert(list(messages), list[Message]))
    return transcript


def message(id_: str, said: str, created: float, role: str = "user") -> dict[str, Any]:
    head = {"id": id_, "role": role, "time": {"created": created}}
    return {"info": head, "parts": [text(f"prt_{id_}", id_, said)]}


def contents(transcript: Transcript, **more: Any) -> list[str]:
    return [one.content for one in transcript.messages(running=True, **more)]


def test_the_newest_are_told_in_the_order_in_which_they_were_made() -> None:
    transcript = make_transcript(message("m1", "one", 1), message("m2", "two", 2), message("m3", "three", 3))
    assert contents(transcript) == ["one", "two", "three"]
    assert contents(transcript, limit=2) == ["two", "three"]
    assert contents(transcript, since=1) == ["two", "three"]
    assert contents(transcript, since=1, limit=1) == ["three"]
    transcript.apply(MessageUpdated(SESSION, info("m15", "user", 1.5)))
    transcript.apply(seen(text("p", "m15", "between")))
    assert contents(transcript) == ["one", "between", "two", "three"]
    transcript.apply(MessageRemoved(SESSION, "m2"))
    assert contents(transcript) == ["one", "between", "three"]


def test_those_before_a_message_and_after_a_moment_are_told() -> None:
    transcript = make_transcript(*(message(f"m{number}", str(number), number) for number in range(6)))
    assert contents(transcript, before="m4", limit=2) == ["2", "3"]
    assert contents(transcript, before="m4", since=2) == ["3"]
    assert contents(transcript, before="m0") == []
    assert "m4" in transcript and "m9" not in transcript and transcript.has_all_since(None)


def test_each_tool_is_told_with_the_text_that_preceded_it() -> None:
    def tool(id_: str) -> dict[str, Any]:
        return {"id": id_, "messageID": "m1", "type": "tool", "tool": id_, "state": {"status": "completed"}}

    head = {"id": "m1", "role": "assistant", "time": {"created": 1, "completed": 2}}
    parts = [tool("p1"), text("p2", "m1", "First,"), tool("p3"), tool("p4"), text("p5", "m1", "then."), tool("p6")]
    (shown,) = make_transcript({"info": head, "parts": parts}).messages(running=False)
    assert shown.content == "First,\nthen." and [run.offset for run in shown.parts] == [0, 6, 6, 12]
    told = [one if isinstance(one, str) else one.tool for one in iterate_content(shown)]
    assert told == ["p1", "First,", "p3", "p4", "then.", "p6"]


def test_what_is_being_written_grows_until_it_is_told_whole() -> None:
    transcript = make_transcript()
    transcript.apply(MessageUpdated(SESSION, info("m1")))
    transcript.apply(seen(text("p1", "m1", "", time={"start": 1})))
    for word in ("all ", "is ", "well"):
        transcript.apply(PartDelta(SESSION, "m1", "p1", "text", word))
    assert contents(transcript) == ["all is well"]
    before = transcript.version
    transcript.apply(seen(text("p1", "m1", "all is well.", time={"start": 1, "end": 2})))
    # What was said before the whole was read, and is heard after it, is in it already.
    transcript.apply(PartDelta(SESSION, "m1", "p1", "text", "well"))
    assert contents(transcript) == ["all is well."]
    assert [one.content for one in transcript.changed_since(before, running=True)] == ["all is well."]
    assert list(transcript.changed_since(transcript.version, running=True)) == []
    transcript.apply(seen(text("p2", "m1", "More.", time={"start": 1, "end": 2})))
    assert contents(transcript) == ["all is well.\nMore."]
    transcript.apply(PartRemoved(SESSION, "m1", "p1"))
    assert contents(transcript) == ["More."]
    # Of messages that are not there nothing is kept.
    transcript.apply(seen(text("p9", "m9", "lost")))
    transcript.apply(PartDelta(SESSION, "m9", "p9", "text", "lost"))
    transcript.apply(PartRemoved(SESSION, "m9", "p9"))
    transcript.apply(MessageRemoved(SESSION, "m9"))
    assert contents(transcript) == ["More."]


def test_a_tool_of_a_turn_that_is_over_does_not_run_any_more() -> None:
    transcript = make_transcript()
    transcript.apply(MessageUpdated(SESSION, info("m1")))
    tool = {"id": "p1", "messageID": "m1", "type": "tool", "tool": "bash", "callID": "c"}
    transcript.apply(
        seen(tool | {"state": {"status": "running", "input": {"command": "x"}, "metadata": {"output": "so far"}}})
    )
    ((run,),) = [one.parts for one in transcript.messages(running=True)]
    assert (run.status, run.output, run.session_id) == ("running", "so far", SESSION)
    ((run,),) = [one.parts for one in transcript.messages(running=False)]
    assert (run.status, run.error) == ("aborted", "its turn was cut off before the tool finished")
    transcript.apply(
        MessageUpdated(SESSION, info("m1", error={"name": "MessageAbortedError", "data": {"message": "Aborted"}}))
    )
    (shown,) = transcript.messages(running=True)
    assert (shown.parts[0].status, shown.error) == ("aborted", "Aborted")


def test_a_transcript_keeps_to_its_limit_and_says_what_it_has_left_out() -> None:
    transcript = make_transcript(*(message(f"m{number}", "x" * 1000, number) for number in range(10)), limit=8000)
    assert transcript.size <= 8000
    assert 0 < len(transcript) < 10 and transcript.left_out == 10 - len(transcript)
    assert contents(transcript, limit=1) == ["x" * 1000]
    oldest = transcript.messages(running=False)[0].time
    assert (
        not transcript.has_all_since(None)
        and transcript.has_all_since(oldest)
        and not transcript.has_all_since(oldest - 1)
    )
    kept = len(transcript)
    transcript.apply(MessageUpdated(SESSION, info("n", created=99)))
    transcript.apply(seen(text("p", "n", "", time={"start": 1})))
    for _ in range(200):
        transcript.apply(PartDelta(SESSION, "n", "p", "text", "y" * 100))
    assert len(transcript) < kept
    assert contents(transcript)[-1] == "y" * 20_000
    # The one that is being written is never cut.
    assert len(transcript) == 1


def test_a_text_beyond_all_measure_is_cut_and_says_so() -> None:
    (said,) = contents(make_transcript(message("m1", "x" * 1_000_010, 1)))
    assert said.endswith("[10 more characters are not kept]")
    assert len(said) < 1_000_100


def test_only_what_has_changed_is_looked_at_again_the_newest_first() -> None:
    transcript = make_transcript(message("m1", "one", 1), message("m2", "two", 2), message("m3", "three", 3))

    def changed(version: int) -> list[str]:
        return [one.id for one in transcript.changed_since(version, running=True)]

    assert changed(-1) == ["m3", "m2", "m1"]
    before = transcript.version
    assert changed(before) == []
    transcript.apply(MessageUpdated(SESSION, info("m4", "user", 4)))
    transcript.apply(seen(text("p1", "m1", "one more")))
    transcript.apply(seen(text("p2", "m2", "two more")))
    assert changed(before) == ["m4", "m2", "m1"]
    transcript.apply(MessageRemoved(SESSION, "m2"))
    transcript.apply(MessageUpdated(SESSION, info("m05", "user", 0.5)))
    assert changed(before) == ["m4", "m1", "m05"]
    assert changed(transcript.version) == []
