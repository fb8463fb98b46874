"""Untrusted text for a model."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from rookery.system.text import remove_invisible


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("a\tb\nc", "a\tb\nc"),
        ("naïve 漢字 🙂", "naïve 漢字 🙂"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Btext\x1bMmore\x1b", "textmore"),
        ("nul\x00 bell\x07 del\x7f", "nul bell del"),
        ("zero\u200bwidth \u202eturned\u202c", "zerowidth turned"),
        ("tags\U000e0041\U000e0042\U000e007f", "tags"),
        ("\ufeffbom half\ud800", "bom half"),
    ],
)
def test_what_steers_or_hides_goes_and_lines_stay(text: str, cleaned: str) -> None:
    assert remove_invisible(text) == cleaned


@given(st.text())
def test_no_control_or_format_character_is_left(text: str) -> None:
    left = remove_invisible(text)
    assert not [char for char in left if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"]
    assert remove_invisible(left) == left
