"""The memory for all transcripts is bounded, except for transcripts in use."""

import msgspec

from rookery.agents.opencode.records import Message
from rookery.sessions.transcript import Transcript
from rookery.sessions.transcript_store import TranscriptCache


def a_book(session: str, size: int = 10_000) -> Transcript:
    book = Transcript(session, 1_000_000)
    part = {"id": "p", "type": "text", "text": "x" * size}
    book.fill(msgspec.convert([{"info": {"id": "m", "role": "user"}, "parts": [part]}], list[Message]))
    return book


def test_the_book_that_was_not_used_for_longest_goes_first() -> None:
    shelf = TranscriptCache(40_000)
    for name in ("a", "b", "c"):
        shelf.put(a_book(name))
    assert shelf.get("a") is not None
    shelf.put(a_book("d"))
    assert [name for name in "abcd" if shelf.peek(name) is not None] == ["a", "c", "d"]
    assert shelf.size <= 40_000
    shelf.drop("a")
    assert shelf.get("a") is None


def test_a_book_that_is_held_stays_and_so_does_the_one_that_has_grown() -> None:
    shelf = TranscriptCache(25_000)
    held, large = a_book("held"), a_book("large", 50_000)
    held.pins += 1
    for book in (held, a_book("free"), large):
        shelf.put(book)
    assert [name for name in ("held", "free", "large") if shelf.peek(name) is not None] == ["held", "large"]
    held.pins -= 1
    shelf.account_growth(large, large.size)
    assert shelf.peek("held") is None and shelf.peek("large") is large
    assert shelf.size == large.size
    shelf.put(large)
    assert shelf.size == large.size
    shelf.drop("large")
    assert shelf.size == 0
