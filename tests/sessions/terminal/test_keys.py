"""Keys, text and pastes as bytes."""

import pytest
from hypothesis import given, strategies as st

from rookery.sessions.terminal.keys import KEY_NAMES, MAX_TEXT_CHARS, encode_keys, encode_paste, encode_text
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement


@pytest.mark.parametrize(
    ("keys", "bytes_"),
    [
        ("enter", b"\r"),
        ("Return", b"\r"),
        ("esc", b"\x1b[27u"),
        ("tab", b"\t"),
        ("shift+tab", b"\x1b[Z"),
        ("shift+enter", b"\x1b[13;2u"),
        ("ctrl+c", b"\x03"),
        ("Ctrl+P", b"\x10"),
        ("ctrl+shift+p", b"\x1b[112;6u"),
        ("ctrl+[", b"\x1b"),
        ("ctrl+1", b"\x1b[49;5u"),
        ("alt+x", b"\x1bx"),
        ("shift+x", b"X"),
        ("up", b"\x1b[A"),
        ("ctrl+right", b"\x1b[1;5C"),
        ("f1", b"\x1bOP"),
        ("f12", b"\x1b[24~"),
        ("pgdn", b"\x1b[6~"),
        ("shift+delete", b"\x1b[3;2~"),
        ("backspace", b"\x7f"),
        ("space", b" "),
        ("x", b"x"),
        ("+", b"+"),
        ("alt++", b"\x1b+"),
        ("ß", "ß".encode()),
        ("ctrl+shift+İ", b"\x1b[105;6u"),
    ],
)
@requirement("term.real.tui")
def test_a_key_is_pressed_by_its_name(keys: str, bytes_: bytes) -> None:
    assert encode_keys([keys]) == bytes_


def test_keys_are_pressed_one_after_another() -> None:
    assert encode_keys(["ctrl+x", "n", "enter"]) == b"\x18n\r"
    assert all(encode_keys([name]) for name in KEY_NAMES)


@pytest.mark.parametrize("key", ["", "entre", "hyper+x", "ctrl+", "ctrl+up+x", "\x1b", "ab", "f13"])
def test_a_key_that_does_not_exist_is_refused_with_those_that_do(key: str) -> None:
    with pytest.raises(RookeryError) as caught:
        encode_keys([key])
    assert caught.value.code == "invalid-input" and "pageup" in caught.value.remedy


def test_a_paste_cannot_end_itself_and_go_on_as_keys() -> None:
    assert encode_paste("one\n\ttwo", marked=True) == b"\x1b[200~one\n\ttwo\x1b[201~"
    assert encode_paste("one\ntwo", marked=False) == b"one\rtwo"
    for text in ("\x1b[201~\r", "a\x00", "\x9b201~", "a\r", "\x7f"):
        with pytest.raises(RookeryError):
            encode_paste(text, marked=True)


@pytest.mark.parametrize("text", ["a\n", "\x1b[A", "\t", "\ud800", "x" * (MAX_TEXT_CHARS + 1)])
def test_only_what_can_be_typed_is_typed(text: str) -> None:
    with pytest.raises(RookeryError) as caught:
        encode_text(text)
    assert caught.value.code == "invalid-input" and caught.value.remedy
    assert encode_text("Grüße, 漢字 👋") == "Grüße, 漢字 👋".encode()


@given(st.text())
def test_whatever_is_asked_for_is_pressed_or_refused(text: str) -> None:
    for make in (lambda: encode_keys([text]), lambda: encode_text(text), lambda: encode_paste(text, marked=True)):
        try:
            assert isinstance(make(), bytes)
        except RookeryError as error:
            assert error.code == "invalid-input"
