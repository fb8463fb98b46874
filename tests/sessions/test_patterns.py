"""Patterns from clients match correctly, and none delays the others."""

import asyncio

import pytest

from rookery.sessions.patterns import MAX_PATTERN_CHARS, PatternCompiler
from rookery.system.errors import RookeryError
from tests.support.clock import SetClock
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


async def test_the_text_that_fits_is_told() -> None:
    patterns = PatternCompiler()
    assert await patterns.compile(r"needle \d+").search("a needle 42 in hay") == "needle 42"
    assert await patterns.compile("(?i)ENFORCEMENT|done").search("boulder enforcement") == "enforcement"
    assert await patterns.compile("^two$").search("one\ntwo") is None
    assert await patterns.compile("(?m)^two$").search("one\ntwo") == "two"
    assert await patterns.compile("日本").search("in 日本") == "日本"
    assert await patterns.compile("x").search("no\udcff") is None
    assert await patterns.compile("a*").search("") == ""


@requirement("session.wait.pattern")
@pytest.mark.parametrize(
    "pattern",
    ["", "(", "[a", "*", "(?=ahead)", r"(a)\1", "\ud800", "x" * (MAX_PATTERN_CHARS + 1), "((a{1000}){1000}){1000}"],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(RookeryError) as caught:
        PatternCompiler().compile(pattern)
    assert caught.value.code == "invalid-input"


@requirement("session.wait.pattern")
async def test_a_pattern_that_backtracks_elsewhere_takes_no_time_here() -> None:
    for pattern in (r"(a|aa)+$", r"(x+x+)+y", r"(\w+\s?)*$"):
        found = await PatternCompiler().compile(pattern).search("a" * 100_000 + "!")
        assert found in (None, "")


@requirement("session.wait.pattern")
async def test_too_long_searches_are_refused_and_slow_ones_do_not_block_others() -> None:
    patterns = PatternCompiler()
    heavy = patterns.compile("(a{1,100}){1,10}b")
    with pytest.raises(RookeryError) as caught:
        await heavy.search("a" * 1_000_000)
    assert (caught.value.code, "too long" in caught.value.message) == ("invalid-input", True)
    slow = asyncio.ensure_future(heavy.search("a" * 20_000))
    await asyncio.sleep(0)
    # The loop goes on, and short searches are not behind it.
    assert await patterns.compile("quick").search("quick") == "quick"
    assert not slow.done()
    assert await slow is None


async def test_a_wait_that_has_spent_its_time_on_searches_is_ended() -> None:
    clock = SetClock()
    pattern = PatternCompiler(clock).compile("(a{1,100}){1,10}b")

    class Slow:
        def search(self, text: bytes) -> None:
            clock.now += 4

    pattern._compiled = Slow()
    long = "a" * 20_000
    assert await pattern.search(long) is None
    assert await pattern.search(long) is None
    with pytest.raises(RookeryError) as caught:
        await pattern.search(long)
    assert caught.value.code == "invalid-input"
