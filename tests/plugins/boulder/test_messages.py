"""Phrases that count as the end of work if no check decides, and boulder's own messages."""

import pytest
from hypothesis import given, strategies as st

from rookery.plugins.boulder import messages
from tests.support.requirements import requirement


@requirement("boulder.complete.checks")
@pytest.mark.parametrize(
    "last",
    [
        "All tasks are complete.",
        "I fixed the login, added a test and read the docs again. Finished!",
        "Everything is DONE",
        "Nothing remains to be done.",
        "There is nothing left to do: all is done.",
        "I wondered what to do next." + " So I thought about it." * 500 + " It is completed.",
    ],
)
def test_a_word_of_completion_without_a_word_of_work_ends_it(last: str) -> None:
    found = messages.check_keywords(last)
    assert found.left is False and found.why


@requirement("boulder.complete.checks")
@pytest.mark.parametrize(
    "last",
    [
        None,
        "",
        "  \n",
        "Good morning.",
        "The first step is done. Next I will look at the tests.",
        "Done, but two tests are still red.",
        "This is not done.",
        "It isn’t finished.",
        "That is incomplete.",
        "The undone changes are abandoned.",
        "I'll complete that now.",
    ],
)
def test_everything_else_means_that_work_is_left(last: str | None) -> None:
    found = messages.check_keywords(last)
    assert found.left is True and found.why


@given(st.sampled_from(messages.COMPLETION_PHRASES), st.sampled_from(messages.WORK_PHRASES), st.booleans())
def test_a_word_of_work_always_outweighs_one_of_completion(done: str, work: str, first: bool) -> None:
    said = f"{work}. {done}." if first else f"{done}. {work}."
    assert messages.check_keywords(said).left is True


@requirement("boulder.enforce.words")
@given(st.integers(1, 1000), st.text(max_size=5000))
def test_toast_and_message_have_the_mark_and_the_reason_and_are_never_long(number: int, why: str) -> None:
    toast, message = messages.toast_text(number, 1000, why), messages.message_text(number, 1000, why)
    assert messages.MARK in toast and messages.MARK in message
    assert len(toast) < 400 and len(message) < 3000
    assert why[:100] in toast and why[:100] in message
    assert messages.is_boulder_message(message) and not messages.is_boulder_message(f"What is {messages.MARK}?")
