"""Untrusted text cannot manipulate a terminal."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from rookery.system.text import escape_invisible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, größe, 東京", "plain text, größe, 東京"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[2J\x9b2J\x07\x7f", "\\e[2J\\u{9b}2J\\u{7}\\u{7f}"),
        ("safe\u202egnp.exe\u2066", "safe\\u{202e}gnp.exe\\u{2066}"),
        ("a\u200bb\ufeffc\u00add", "a\\u{200b}b\\u{feff}c\\u{ad}d"),
        ("\U000e0041\U000e0062", "\\u{e0041}\\u{e0062}"),
        ("a\u00a0b\u3000c\u2028", "a\\u{a0}b\\u{3000}c\\u{2028}"),
        ("x\ufe0f\U000e0100\u3164\u2800", "x\\u{fe0f}\\u{e0100}\\u{3164}\\u{2800}"),
        ("\ud800", "\\u{d800}"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown


@given(st.text())
def test_what_is_shown_is_one_line_without_control_or_format_characters(text: str) -> None:
    shown = escape_invisible(text)
    assert shown.encode().decode() == shown
    assert all(char == " " or unicodedata.category(char)[0] not in "CZ" for char in shown)
    assert escape_invisible(shown) == shown
