"""The memory for all transcripts is bounded, except for transcripts in use."""

import msgspec

from rookery.agents.opencode.records import Message
from rookery.sessions.transcript import Transcript
from rookery.sessions.transcript_store import TranscriptCache


def make_transcript(session: str, size: int = 10_000) -> Transcript:
    transcript = Transcript(session, 1_000_000)
    part = {"id": "p", "type": "text", "text": "x" * size}
    transcript.fill(msgspec.convert([{"info": {"id": "m", "role": "user"}, "parts": [part]}], list[Message]))
    return transcript


def test_the_transcript_that_was_not_used_for_longest_goes_first() -> None:
    cache = TranscriptCache(40_000)
    for name in ("a", "b", "c"):
        cache.put(make_transcript(name))
    assert cache.get("a") is not None
    cache.put(make_transcript("d"))
    assert [name for name in "abcd" if cache.peek(name) is not None] == ["a", "c", "d"]
    assert cache.size <= 40_000
    cache.drop("a")
    assert cache.get("a") is None


def test_a_transcript_in_use_stays_and_so_does_the_one_that_has_grown() -> None:
    cache = TranscriptCache(25_000)
    held, large = make_transcript("held"), make_transcript("large", 50_000)
    held.pins += 1
    for transcript in (held, make_transcript("free"), large):
        cache.put(transcript)
    assert [name for name in ("held", "free", "large") if cache.peek(name) is not None] == ["held", "large"]
    held.pins -= 1
    cache.account_growth(large, large.size)
    assert cache.peek("held") is None and cache.peek("large") is large
    assert cache.size == large.size
    cache.put(large)
    assert cache.size == large.size
    cache.drop("large")
    assert cache.size == 0
