"""A screen as SVG: text stays text, in a font that is named and not brought along; nothing in it refers elsewhere."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from rookery.sessions import glyphs
from rookery.sessions.drawing import CELL_HEIGHT, CELL_WIDTH, FONT_SIZE, SOFTWARE, Look, Placed, rows_of
from rookery.sessions.screen import BACKGROUND, FOREGROUND, Screen
from rookery.sessions.strokes import Box, Shapes, Stroke

# Whoever has none of these sees the text all the same: every run of it is made to fit its cells.
_FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_BASELINE = 14


def svg(screen: Screen, scale: int) -> bytes:
    width, height = screen.columns * CELL_WIDTH, screen.rows * CELL_HEIGHT
    size = f'width="{width * scale}" height="{height * scale}" viewBox="0 0 {width} {height}"'
    font = f'font-family="{_FONTS}" font-size="{FONT_SIZE}" fill="{FOREGROUND}" xml:space="preserve"'
    # Boxes next to each other show no seam at any size.
    edges = 'shape-rendering="crispEdges"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} {edges}>',
        f"<!-- {SOFTWARE} -->",
        f"<title>{_text(screen.title)}</title>",
        f'<rect width="{width}" height="{height}" fill="{BACKGROUND}"/>',
    ]
    for number, row in enumerate(rows_of(screen)):
        parts += _grounds(row, number * CELL_HEIGHT)
        parts += _figures(row, number * CELL_HEIGHT)
    return "\n".join([*parts, "</svg>", ""]).encode()


def _grounds(row: Sequence[Placed], top: int) -> Iterator[str]:
    """Backgrounds, each as wide as it goes on."""
    start = 0
    for at in range(1, len(row) + 1):
        if at < len(row) and row[at].look.background == row[start].look.background:
            continue
        first, last = row[start], row[at - 1]
        if first.look.background != BACKGROUND:
            cells = last.column + last.cell.width - first.column
            yield (
                f'<rect x="{first.column * CELL_WIDTH}" y="{top}" width="{cells * CELL_WIDTH}" '
                f'height="{CELL_HEIGHT}" fill="{first.look.background}"/>'
            )
        start = at


def _figures(row: Sequence[Placed], top: int) -> Iterator[str]:
    """Characters that are drawn, and all others as text, in runs of one look."""
    run: list[Placed] = []
    for one in row:
        shapes = glyphs.shapes(one.cell.text, CELL_WIDTH * one.cell.width, CELL_HEIGHT)
        if shapes is not None or not _continues(run, one):
            yield from _run(run, top)
            run = []
        if shapes is not None:
            yield from _shapes(shapes, one, top)
        elif not (_is_blank(one) and not run):
            run.append(one)
    yield from _run(run, top)


def _continues(run: Sequence[Placed], one: Placed) -> bool:
    """Whether a cell can stand in one text with those before it: only plain characters are all equally wide."""
    return not run or (run[-1].look == one.look and _is_plain(run[-1]) and _is_plain(one))


def _is_plain(one: Placed) -> bool:
    return one.cell.width == 1 and one.cell.text.isascii()


def _is_blank(one: Placed) -> bool:
    return one.cell.text in ("", " ") and not (one.look.underline or one.look.strike)


def _run(run: list[Placed], top: int) -> Iterator[str]:
    while run and _is_blank(run[-1]):
        run.pop()
    if not run:
        return
    first, cells = run[0], sum(one.cell.width for one in run)
    text = "".join(one.cell.text or " " for one in run)
    place = f'x="{first.column * CELL_WIDTH}" y="{top + _BASELINE}" textLength="{cells * CELL_WIDTH}"'
    yield f'<text {place} lengthAdjust="spacingAndGlyphs"{_attributes(first.look)}>{_text(text)}</text>'


def _attributes(look: Look) -> str:
    lines = " ".join(name for name, on in (("underline", look.underline), ("line-through", look.strike)) if on)
    given = {
        "fill": look.foreground if look.foreground != FOREGROUND else "",
        "font-weight": "bold" if look.bold else "",
        "font-style": "italic" if look.italic else "",
        "text-decoration": lines,
    }
    return "".join(f" {name}={quoteattr(value)}" for name, value in given.items() if value)


def _shapes(shapes: Shapes, one: Placed, top: int) -> Iterator[str]:
    left = one.column * CELL_WIDTH
    for shape in shapes:
        if isinstance(shape, Box):
            opacity = f' fill-opacity="{shape.cover:g}"' if shape.cover < 1 else ""
            yield (
                f'<rect x="{left + shape.left}" y="{top + shape.top}" width="{shape.right - shape.left}" '
                f'height="{shape.bottom - shape.top}" fill="{one.look.foreground}"{opacity}/>'
            )
        else:
            yield _stroke(shape, one.look, left, top)


def _stroke(stroke: Stroke, look: Look, left: int, top: int) -> str:
    points = " ".join(f"{left + x:.2f},{top + y:.2f}" for x, y in stroke.points)
    line = f'stroke="{look.foreground}" stroke-width="{stroke.width}" shape-rendering="geometricPrecision"'
    return f'<polyline points="{points}" fill="none" {line}/>'


def _text(text: str) -> str:
    """Without what XML cannot hold at all: control characters, halves of a pair, and what is no character."""
    return escape("".join(char if _fits(ord(char)) else "\ufffd" for char in text))


def _fits(number: int) -> bool:
    if number < 0x20 or 0x7F <= number < 0xA0:
        return number == 0x09
    return not (0xD800 <= number < 0xE000 or number & 0xFFFE == 0xFFFE)
