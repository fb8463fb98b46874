"""Pictures of screens, checked pixel by pixel and element by element."""

import asyncio
import dataclasses
import io
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings, strategies
from PIL import Image

from rookery.sessions.drawing.picture import draw_in_thread, draw_picture, is_rookery_picture
from rookery.sessions.drawing.png import LOOKALIKES
from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, DEFAULT_FOREGROUND, Cell, Cursor, Screen, Style
from rookery.sessions.terminal.rendering import make_cells, make_screen
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement

SVG = "{http://www.w3.org/2000/svg}"
RED, BLUE = "#ff0000", "#0000ff"


def screen(*rows: list[Cell], columns: int = 20) -> Screen:
    return make_screen(rows, columns, len(rows))


def image(of: Screen, scale: int = 1) -> Image.Image:
    picture = draw_picture(of, "png", scale)
    made = Image.open(io.BytesIO(picture.data))
    made.load()
    assert made.size == (picture.width, picture.height) == (of.columns * 9 * scale, of.rows * 18 * scale)
    return made


def colours(made: Image.Image, column: int, row: int = 0, cells: int = 1) -> dict[str, int]:
    """How often each colour is there in a cell."""
    part = made.crop((column * 9, row * 18, (column + cells) * 9, (row + 1) * 18)).convert("RGB")
    data = part.tobytes()
    found = [f"#{data[at : at + 3].hex()}" for at in range(0, len(data), 3)]
    return {one: found.count(one) for one in set(found)}


def elements(of: Screen) -> ElementTree.Element:
    return ElementTree.fromstring(draw_picture(of, "svg").data)


@requirement("term.shot.input")
def test_cells_have_their_own_colours_and_else_those_of_the_terminal() -> None:
    made = image(
        screen([*make_cells("A"), *make_cells("█", Style(RED, BLUE)), *make_cells(" ", Style(background=RED)), Cell()])
    )
    assert colours(made, 0)[DEFAULT_BACKGROUND] > 50
    assert DEFAULT_FOREGROUND in colours(made, 0)
    assert colours(made, 1) == {RED: 162}
    assert colours(made, 2) == {RED: 162}
    assert colours(made, 3) == {DEFAULT_BACKGROUND: 162}


def test_bold_is_heavier_dim_is_fainter_and_lines_are_under_and_through() -> None:
    styles = [Style(), Style(bold=True), Style(italic=True), Style(bold=True, italic=True), Style(dim=True)]
    made = image(screen([cell for style in styles for cell in make_cells("m", style)]))
    plain, bold, italic, both, dim = (colours(made, column) for column in range(5))
    assert bold[DEFAULT_BACKGROUND] < plain[DEFAULT_BACKGROUND]
    assert both[DEFAULT_BACKGROUND] < italic[DEFAULT_BACKGROUND]
    assert len({frozenset(one.items()) for one in (plain, bold, italic, both, dim)}) == 5
    assert DEFAULT_FOREGROUND in plain
    assert DEFAULT_FOREGROUND not in dim
    lines = image(screen([*make_cells(" ", Style(RED, underline=True)), *make_cells(" ", Style(RED, strike=True))]))
    rows = [{y for y in range(18) if lines.getpixel((x, y)) == (255, 0, 0)} for x in (0, 8, 9, 17)]
    assert [len(one) for one in rows] == [1, 1, 1, 1]
    assert max(rows[0]) > max(rows[2])


def test_the_cursor_is_turned_round_where_it_is_to_be_seen() -> None:
    plain = screen(make_cells("  "))
    shown, hidden = (
        image(dataclasses.replace(plain, cursor=Cursor(0, 1, visible=visible))) for visible in (True, False)
    )
    assert colours(shown, 1) == {DEFAULT_FOREGROUND: 162}
    assert colours(hidden, 1) == {DEFAULT_BACKGROUND: 162}
    wide = screen([Cell("日", Style(RED, BLUE), 2)])
    under = image(dataclasses.replace(wide, cursor=Cursor(0, 1)))
    assert colours(under, 0, cells=2)[RED] > colours(under, 0, cells=2)[BLUE]


def test_a_missing_glyph_is_a_box_as_wide_as_its_character() -> None:
    made = image(screen([Cell("日", width=2), Cell("\U0001f600", width=2), *make_cells("a")]))
    assert colours(made, 0, cells=2) == colours(made, 2, cells=2)
    assert colours(made, 0, cells=2)[DEFAULT_FOREGROUND] > 20
    assert colours(made, 0) != colours(made, 4)


def test_signs_that_the_font_lacks_are_drawn_as_others_that_look_alike() -> None:
    made = image(
        screen([Cell("✅", width=2), Cell("❌\ufe0f", width=2), Cell("😀", width=2), Cell("⏺"), *make_cells("●")])
    )
    assert "#3fb950" in colours(made, 0, cells=2)
    assert "#f85149" in colours(made, 2, cells=2)
    assert colours(made, 6) == colours(made, 7)
    box = colours(made, 4, cells=2)
    for char in LOOKALIKES:
        assert colours(image(screen([Cell(char, width=2)])), 0, cells=2) != box, char


def test_what_the_italic_font_lacks_is_drawn_in_the_plain_one() -> None:
    made = image(screen([*make_cells("★"), *make_cells("★", Style(italic=True)), Cell("\U0001f600")]))
    assert colours(made, 0) == colours(made, 1) != colours(made, 2)


def test_what_combines_is_drawn_with_its_character() -> None:
    made = image(screen([*make_cells("e"), Cell("e\u0301"), Cell("e\ufe0f")]))
    assert colours(made, 1)[DEFAULT_BACKGROUND] < colours(made, 0)[DEFAULT_BACKGROUND]
    assert colours(made, 2) == colours(made, 0)


def test_a_larger_scale_has_more_pixels_of_the_same() -> None:
    small, large = (image(screen(make_cells("▀ ▄ ║═╬")), scale) for scale in (1, 3))
    half = large.crop((0, 0, 27, 54)).convert("RGB")
    assert [half.getpixel((13, y)) for y in (0, 26)] == [small.getpixel((4, 0))] * 2
    assert [half.getpixel((13, y)) for y in (27, 53)] == [small.getpixel((4, 17))] * 2


@pytest.mark.parametrize(("columns", "scale"), [(20, 0), (20, 4), (100_000, 1)])
def test_what_is_too_large_is_refused_and_says_what_to_do(columns: int, scale: int) -> None:
    with pytest.raises(RookeryError) as caught:
        draw_picture(Screen(columns, 40, [], Cursor(0, 0)), "png", scale)
    assert caught.value.code == "invalid-input"
    assert caught.value.remedy


@requirement("term.shot.input")
def test_svg_has_text_as_text_in_its_colours_and_refers_to_nothing_outside() -> None:
    row = [
        *make_cells("Hello <you> & 'me' ]]>", Style(RED, bold=True)),
        *make_cells("  "),
        *make_cells("┃", Style(BLUE)),
    ]
    root = elements(screen(row, columns=40))
    (text,) = root.iter(f"{SVG}text")
    assert text.text == "Hello <you> & 'me' ]]>"
    assert (text.get("fill"), text.get("font-weight")) == (RED, "bold")
    assert text.get("textLength") == str(22 * 9)
    assert [one.get("fill") for one in root.iter(f"{SVG}rect")][1:] == [BLUE, BLUE]
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {"svg", "title", "rect", "text", "polyline"}
    assert not {name for one in root.iter() for name in one.attrib if "href" in name or name.startswith("on")}


CELLS = strategies.builds(
    Cell,
    strategies.text(min_size=0, max_size=3) | strategies.sampled_from(["\ud800", "\x00", "]]>", "<script>", "\ufffe"]),
    strategies.builds(
        Style,
        strategies.sampled_from([None, RED]),
        strategies.sampled_from([None, BLUE]),
        *[strategies.booleans()] * 5,
    ),
    strategies.sampled_from([1, 2]),
)


@given(strategies.lists(CELLS, min_size=1, max_size=8), strategies.text(max_size=5))
@settings(max_examples=150, deadline=None)
def test_whatever_a_program_draws_both_pictures_are_well_formed(cells: list[Cell], title: str) -> None:
    columns = sum(cell.width for cell in cells)
    odd = Screen(columns, 1, [cells], Cursor(0, 0), title)
    assert image(odd).size == (columns * 9, 18)
    root = elements(odd)
    assert not [
        one for one in root.iter() if one.tag.removeprefix(SVG) not in ("svg", "title", "rect", "text", "polyline")
    ]
    assert is_rookery_picture(draw_picture(odd, "png").data[:1024])
    assert is_rookery_picture(draw_picture(odd, "svg").data[:1024])


def test_other_pictures_are_not_ours() -> None:
    other = io.BytesIO()
    Image.new("RGB", (2, 2)).save(other, "PNG")
    assert not is_rookery_picture(other.getvalue())
    assert not is_rookery_picture(b'<svg xmlns="http://www.w3.org/2000/svg"/>')
    assert not is_rookery_picture(b"")


async def _drawn_beside() -> int:
    """How often the loop came round while pictures were drawn."""
    busy = make_screen(
        [make_cells("The quick brown fox. " * 6, Style(f"#{row:02x}ff00")) for row in range(40)], 120, 40
    )
    task = asyncio.gather(*(draw_in_thread(busy) for _ in range(5)))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert len({one.data for one in task.result()}) == 1
    return turns


def test_the_loop_goes_on_while_pictures_are_drawn() -> None:
    assert asyncio.run(_drawn_beside()) > 20


def test_pillow_is_not_there_before_the_first_picture() -> None:
    import subprocess

    code = "import rookery.daemon.composition, sys; print('PIL' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "False"
