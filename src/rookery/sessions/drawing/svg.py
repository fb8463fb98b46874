"""Write a screen as SVG: text stays text, and nothing in the file refers to another file.

The font is named and not embedded.
"""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from rookery.sessions.drawing import glyphs
from rookery.sessions.drawing.glyphs import Box, Shapes, Stroke
from rookery.sessions.drawing.picture import (
    CELL_HEIGHT,
    CELL_WIDTH,
    FONT_SIZE,
    SOFTWARE_NAME,
    PlacedCell,
    ResolvedStyle,
    place_cells,
)
from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, DEFAULT_FOREGROUND, Screen

# Without any of these fonts the text still fits its cells, because every run has an explicit length.
_FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_BASELINE = 14


def encode_svg(screen: Screen, scale: int) -> bytes:
    """Encode a screen as SVG."""
    width = screen.columns * CELL_WIDTH
    height = screen.rows * CELL_HEIGHT
    size = f'width="{width * scale}" height="{height * scale}" viewBox="0 0 {width} {height}"'
    font = f'font-family="{_FONTS}" font-size="{FONT_SIZE}" fill="{DEFAULT_FOREGROUND}" xml:space="preserve"'
    # Adjacent boxes show no seam at any size.
    edges = 'shape-rendering="crispEdges"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} {edges}>',
        f"<!-- {SOFTWARE_NAME} -->",
        f"<title>{_escape_text(screen.title)}</title>",
        f'<rect width="{width}" height="{height}" fill="{DEFAULT_BACKGROUND}"/>',
    ]
    for number, row in enumerate(place_cells(screen)):
        parts += _draw_backgrounds(row, number * CELL_HEIGHT)
        parts += _draw_characters(row, number * CELL_HEIGHT)
    return "\n".join([*parts, "</svg>", ""]).encode()


def _draw_backgrounds(row: Sequence[PlacedCell], top: int) -> Iterator[str]:
    """Draw the backgrounds of a row, each as wide as it continues."""
    start = 0
    for index in range(1, len(row) + 1):
        if index < len(row) and row[index].style.background == row[start].style.background:
            continue
        first = row[start]
        last = row[index - 1]
        if first.style.background != DEFAULT_BACKGROUND:
            cells = last.column + last.cell.width - first.column
            yield (
                f'<rect x="{first.column * CELL_WIDTH}" y="{top}" width="{cells * CELL_WIDTH}" '
                f'height="{CELL_HEIGHT}" fill="{first.style.background}"/>'
            )
        start = index


def _draw_characters(row: Sequence[PlacedCell], top: int) -> Iterator[str]:
    """Draw the characters of a row: shapes, and all others as text, in runs of the same style."""
    run: list[PlacedCell] = []
    for placed in row:
        shapes = glyphs.make_shapes(placed.cell.text, CELL_WIDTH * placed.cell.width, CELL_HEIGHT)
        if shapes is not None or not _can_continue(run, placed):
            yield from _draw_text(run, top)
            run = []
        if shapes is not None:
            yield from _draw_shapes(shapes, placed, top)
        elif not (_is_blank(placed) and not run):
            run.append(placed)
    yield from _draw_text(run, top)


def _can_continue(run: Sequence[PlacedCell], placed: PlacedCell) -> bool:
    """Return whether a cell can be added to a run of text. Only plain characters all have the same width."""
    return not run or (run[-1].style == placed.style and _is_plain(run[-1]) and _is_plain(placed))


def _is_plain(placed: PlacedCell) -> bool:
    return placed.cell.width == 1 and placed.cell.text.isascii()


def _is_blank(placed: PlacedCell) -> bool:
    return placed.cell.text in ("", " ") and not (placed.style.underline or placed.style.strike)


def _draw_text(run: list[PlacedCell], top: int) -> Iterator[str]:
    """Draw a run of cells as one text element, without trailing blanks."""
    while run and _is_blank(run[-1]):
        run.pop()
    if not run:
        return
    first = run[0]
    cells = sum(placed.cell.width for placed in run)
    text = "".join(placed.cell.text or " " for placed in run)
    position = f'x="{first.column * CELL_WIDTH}" y="{top + _BASELINE}" textLength="{cells * CELL_WIDTH}"'
    yield f'<text {position} lengthAdjust="spacingAndGlyphs"{_attributes(first.style)}>{_escape_text(text)}</text>'


def _attributes(style: ResolvedStyle) -> str:
    """Return the attributes of a text element for a style."""
    lines = " ".join(name for name, on in (("underline", style.underline), ("line-through", style.strike)) if on)
    attributes = {
        "fill": style.foreground if style.foreground != DEFAULT_FOREGROUND else "",
        "font-weight": "bold" if style.bold else "",
        "font-style": "italic" if style.italic else "",
        "text-decoration": lines,
    }
    return "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items() if value)


def _draw_shapes(shapes: Shapes, placed: PlacedCell, top: int) -> Iterator[str]:
    left = placed.column * CELL_WIDTH
    for shape in shapes:
        if isinstance(shape, Box):
            opacity = f' fill-opacity="{shape.opacity:g}"' if shape.opacity < 1 else ""
            yield (
                f'<rect x="{left + shape.left}" y="{top + shape.top}" width="{shape.right - shape.left}" '
                f'height="{shape.bottom - shape.top}" fill="{placed.style.foreground}"{opacity}/>'
            )
        else:
            yield _draw_stroke(shape, placed.style, left, top)


def _draw_stroke(stroke: Stroke, style: ResolvedStyle, left: int, top: int) -> str:
    points = " ".join(f"{left + x:.2f},{top + y:.2f}" for x, y in stroke.points)
    line = f'stroke="{style.foreground}" stroke-width="{stroke.width}" shape-rendering="geometricPrecision"'
    return f'<polyline points="{points}" fill="none" {line}/>'


def _escape_text(text: str) -> str:
    """Escape text for XML. Replace what XML cannot contain: control characters, surrogates and noncharacters."""
    return escape("".join(char if _is_xml_char(ord(char)) else "\ufffd" for char in text))


def _is_xml_char(number: int) -> bool:
    if number < 0x20 or 0x7F <= number < 0xA0:
        return number == 0x09
    return not (0xD800 <= number < 0xE000 or number & 0xFFFE == 0xFFFE)
