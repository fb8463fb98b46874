"""Parsing of format and size."""

from importlib import resources

import pytest

from rookery.sessions.drawing.screenshot import choose_format, choose_size
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement


@requirement("term.shot.input")
@pytest.mark.parametrize(
    ("format", "path", "meant"),
    [
        (None, None, "png"),
        (None, "a.png", "png"),
        (None, "a/b.SVG", "svg"),
        (None, "picture", "png"),
        ("svg", None, "svg"),
        ("svg", "a.svg", "svg"),
        ("png", "picture", "png"),
    ],
)
def test_the_format_is_what_is_said_or_what_the_file_ends_in(format: str | None, path: str | None, meant: str) -> None:
    assert choose_format(format, path) == meant


@pytest.mark.parametrize(("format", "path"), [("gif", None), ("svg", "a.png"), ("png", "a.svg"), ("svg", "notes.md")])
def test_a_format_that_does_not_fit_is_refused(format: str, path: str | None) -> None:
    with pytest.raises(RookeryError) as caught:
        choose_format(format, path)
    assert caught.value.code == "invalid-input"
    assert caught.value.remedy


def test_a_size_that_is_half_given_is_filled_up() -> None:
    assert choose_size(None, None) is None
    assert choose_size(100, None) == (100, 40)
    assert choose_size(None, 20.0) == (120, 20)


def test_the_fonts_come_with_their_licence() -> None:
    folder = resources.files("rookery.sessions") / "fonts"
    names = sorted(one.name for one in folder.iterdir())
    assert [name for name in names if name.endswith(".ttf")] == [
        "DejaVuSansMono-Bold.ttf",
        "DejaVuSansMono-Oblique.ttf",
        "DejaVuSansMono.ttf",
    ]
    assert "Bitstream Vera" in (folder / "LICENSE.txt").read_text()
