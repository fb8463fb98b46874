"""A session's messages are as OpenCode has them, whatever is heard of them and when."""

import json
from typing import Any

import msgspec

from rookery.agents.message_events import MessageGone, MessageSeen, PartGone, PartGrew, PartSeen
from rookery.agents.records import Message, MessageInfo
from rookery.sessions.book import Book

SESSION = "ses_1"


def info(id_: str, role: str = "assistant", created: float = 0, **more: Any) -> MessageInfo:
    return msgspec.convert(
        {"id": id_, "role": role, "sessionID": SESSION, "time": {"created": created}, **more}, MessageInfo
    )


def text(id_: str, message: str, said: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "messageID": message, "type": "text", "text": said, **more}


def seen(part: dict[str, Any]) -> PartSeen:
    return PartSeen(SESSION, msgspec.Raw(json.dumps(part).encode()))


def a_book(*messages: dict[str, Any], limit: int = 10_000_000) -> Book:
    book = Book(SESSION, limit)
    book.fill(msgspec.convert(list(messages), list[Message]))
    return book


def message(id_: str, said: str, created: float, role: str = "user") -> dict[str, Any]:
    head = {"id": id_, "role": role, "time": {"created": created}}
    return {"info": head, "parts": [text(f"prt_{id_}", id_, said)]}


def contents(book: Book, **more: Any) -> list[str]:
    return [one.content for one in book.messages(running=True, **more)]


def test_the_newest_are_told_in_the_order_in_which_they_were_made() -> None:
    book = a_book(message("m1", "one", 1), message("m2", "two", 2), message("m3", "three", 3))
    assert contents(book) == ["one", "two", "three"]
    assert contents(book, limit=2) == ["two", "three"]
    assert contents(book, since=1) == ["two", "three"]
    assert contents(book, since=1, limit=1) == ["three"]
    book.hear(MessageSeen(SESSION, info("m15", "user", 1.5)))
    book.hear(seen(text("p", "m15", "between")))
    assert contents(book) == ["one", "between", "two", "three"]
    book.hear(MessageGone(SESSION, "m2"))
    assert contents(book) == ["one", "between", "three"]


def test_what_is_being_written_grows_until_it_is_told_whole() -> None:
    book = a_book()
    book.hear(MessageSeen(SESSION, info("m1")))
    book.hear(seen(text("p1", "m1", "", time={"start": 1})))
    for word in ("all ", "is ", "well"):
        book.hear(PartGrew(SESSION, "m1", "p1", "text", word))
    assert contents(book) == ["all is well"]
    before = book.version
    book.hear(seen(text("p1", "m1", "all is well.", time={"start": 1, "end": 2})))
    # What was said before the whole was read, and is heard after it, is in it already.
    book.hear(PartGrew(SESSION, "m1", "p1", "text", "well"))
    assert contents(book) == ["all is well."]
    assert [one.content for one in book.changed(before, running=True)] == ["all is well."]
    assert list(book.changed(book.version, running=True)) == []
    book.hear(seen(text("p2", "m1", "More.", time={"start": 1, "end": 2})))
    assert contents(book) == ["all is well.\nMore."]
    book.hear(PartGone(SESSION, "m1", "p1"))
    assert contents(book) == ["More."]
    # Of messages that are not there nothing is kept.
    book.hear(seen(text("p9", "m9", "lost")))
    book.hear(PartGrew(SESSION, "m9", "p9", "text", "lost"))
    book.hear(PartGone(SESSION, "m9", "p9"))
    book.hear(MessageGone(SESSION, "m9"))
    assert contents(book) == ["More."]


def test_a_tool_of_a_turn_that_is_over_does_not_run_any_more() -> None:
    book = a_book()
    book.hear(MessageSeen(SESSION, info("m1")))
    tool = {"id": "p1", "messageID": "m1", "type": "tool", "tool": "bash", "callID": "c"}
    book.hear(
        seen(tool | {"state": {"status": "running", "input": {"command": "x"}, "metadata": {"output": "so far"}}})
    )
    ((run,),) = [one.parts for one in book.messages(running=True)]
    assert (run.status, run.output, run.session_id) == ("running", "so far", SESSION)
    ((run,),) = [one.parts for one in book.messages(running=False)]
    assert (run.status, run.error) == ("aborted", "its turn was cut off before it ended")
    book.hear(MessageSeen(SESSION, info("m1", error={"name": "MessageAbortedError", "data": {"message": "Aborted"}})))
    (shown,) = book.messages(running=True)
    assert (shown.parts[0].status, shown.error) == ("aborted", "Aborted")


def test_a_book_keeps_to_its_limit_and_says_what_it_has_left_out() -> None:
    book = a_book(*(message(f"m{number}", "x" * 1000, number) for number in range(10)), limit=8000)
    assert book.size <= 8000
    assert 0 < len(book) < 10 and book.left_out == 10 - len(book)
    assert contents(book, limit=1) == ["x" * 1000]
    assert book.note(1, 1) is None
    assert "left out" in (book.note(len(book), None) or "")
    kept = len(book)
    book.hear(MessageSeen(SESSION, info("n", created=99)))
    book.hear(seen(text("p", "n", "", time={"start": 1})))
    for _ in range(200):
        book.hear(PartGrew(SESSION, "n", "p", "text", "y" * 100))
    assert len(book) < kept
    assert contents(book)[-1] == "y" * 20_000
    # The one that is being written is never cut.
    assert len(book) == 1


def test_a_text_beyond_all_measure_is_cut_and_says_so() -> None:
    (said,) = contents(a_book(message("m1", "x" * 1_000_010, 1)))
    assert said.endswith("[10 more characters are not kept]")
    assert len(said) < 1_000_100


def test_only_what_has_changed_is_looked_at_again_the_newest_first() -> None:
    book = a_book(message("m1", "one", 1), message("m2", "two", 2), message("m3", "three", 3))

    def changed(version: int) -> list[str]:
        return [one.id for one in book.changed(version, running=True)]

    assert changed(-1) == ["m3", "m2", "m1"]
    before = book.version
    assert changed(before) == []
    book.hear(MessageSeen(SESSION, info("m4", "user", 4)))
    book.hear(seen(text("p1", "m1", "one more")))
    book.hear(seen(text("p2", "m2", "two more")))
    assert changed(before) == ["m4", "m2", "m1"]
    book.hear(MessageGone(SESSION, "m2"))
    book.hear(MessageSeen(SESSION, info("m05", "user", 0.5)))
    assert changed(before) == ["m4", "m1", "m05"]
    assert changed(book.version) == []
