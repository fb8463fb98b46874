"""Lines, blocks and dots fill their cells exactly, so that they connect."""

import itertools
import unicodedata

import pytest

from rookery.sessions.drawing.glyphs import Box, Stroke, make_missing_box, make_shapes

SIZES = [(9, 18), (18, 36), (27, 54)]
Pixels = set[tuple[int, int]]


def pixels(char: str, width: int, height: int) -> Pixels:
    drawn = make_shapes(char, width, height)
    assert drawn is not None
    boxes = [one for one in drawn if isinstance(one, Box)]
    return {(x, y) for one in boxes for x in range(one.left, one.right) for y in range(one.top, one.bottom)}


def right_edge(char: str, width: int, height: int) -> set[int]:
    return {y for x, y in pixels(char, width, height) if x == width - 1}


def left_edge(char: str, width: int, height: int) -> set[int]:
    return {y for x, y in pixels(char, width, height) if x == 0}


def lower_edge(char: str, width: int, height: int) -> set[int]:
    return {x for x, y in pixels(char, width, height) if y == height - 1}


def upper_edge(char: str, width: int, height: int) -> set[int]:
    return {x for x, y in pixels(char, width, height) if y == 0}


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("three", ["┌─┐", "├─┤", "╔═╗", "╠═╣", "┏━┓", "╟─╢", "╞═╡", "└┴┘", "╙╨╜"])
def test_lines_meet_those_beside_them(three: str, width: int, height: int) -> None:
    for one, next_ in itertools.pairwise(three):
        assert right_edge(one, width, height) == left_edge(next_, width, height) != set()


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("three", ["┌│└", "┬│┴", "╔║╚", "╦║╩", "┏┃┗", "╒│╘", "╓║╙"])
def test_lines_meet_those_below_them(three: str, width: int, height: int) -> None:
    for one, below in itertools.pairwise(three):
        assert lower_edge(one, width, height) == upper_edge(below, width, height) != set()


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("char", "┌┐└┘├┤┬┴┼╔╗╚╝╠╣╦╩╬┏┓┗┛┣┫┳┻╋╒╓╕╖╘╙╛╜╞╟╡╢╤╥╧╨╪╫┍┮╀╇")
def test_all_parts_of_a_crossing_hang_together(char: str, width: int, height: int) -> None:
    left = pixels(char, width, height)
    parts: list[Pixels] = []
    while left:
        part, edge = set[tuple[int, int]](), {next(iter(left))}
        while edge:
            part |= edge
            beside = {(x + dx, y + dy) for x, y in edge for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))}
            edge = (beside & left) - part
        parts.append(part)
        left -= part
    # Two parallel lines are joined only where something crosses them.
    allowed = {"╬": 4, "╠": 3, "╣": 3, "╦": 3, "╩": 3}
    assert len(parts) <= allowed.get(char, 2 if "DOUBLE" in unicodedata.name(char) else 1)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_halves_and_quadrants_leave_no_seam_and_do_not_overlap(width: int, height: int) -> None:
    whole = pixels("█", width, height)
    assert len(whole) == width * height
    for one, other in ["▀▄", "▌▐", "▛▗", "▜▖", "▚▞", "▙▝", "▟▘"]:
        here, there = pixels(one, width, height), pixels(other, width, height)
        assert here | there == whole
        assert not here & there
    eighths = [len(pixels(chr(number), width, height)) for number in range(0x2581, 0x2589)]
    assert eighths == sorted(set(eighths))


def test_every_drawn_character_stays_in_its_cell_and_has_something_in_it() -> None:
    for number in (*range(0x2500, 0x25A0), *range(0x2801, 0x2900)):
        drawn = make_shapes(chr(number), 9, 18)
        assert drawn, hex(number)
        for one in drawn:
            if isinstance(one, Box):
                assert 0 <= one.left < one.right <= 9, hex(number)
                assert 0 <= one.top < one.bottom <= 18, hex(number)
            else:
                assert isinstance(one, Stroke)
                assert all(0 <= x <= 9 and 0 <= y <= 18 for x, y in one.points)


def test_rounded_corners_end_where_straight_lines_begin() -> None:
    drawn = make_shapes("╭", 9, 18)
    assert drawn is not None
    stroke = drawn[0]
    assert isinstance(stroke, Stroke)
    assert stroke.points[0] == (4.5, 18)
    assert stroke.points[-1] == (9, 8.5)


def test_letters_are_left_to_the_font_and_what_it_lacks_is_a_hollow_box() -> None:
    assert make_shapes("a", 9, 18) is None
    assert make_shapes("e\u0301", 9, 18) is None
    assert make_shapes("\u2800", 9, 18) == ()
    box = make_missing_box(18, 18)
    assert len(box) == 4
