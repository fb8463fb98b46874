"""Draw a screen as PNG: glyphs from the bundled font, lines and blocks as shapes that meet.

One row of cells is drawn and compressed at a time. So a picture takes little memory whatever its size, and the
interpreter's lock is released after every row. Symbols that models often use and the font lacks are replaced by similar
ones in their usual colour.
"""

import functools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from rookery.sessions.drawing import glyphs
from rookery.sessions.drawing.glyphs import Box, Shapes, Stroke, line_thickness
from rookery.sessions.drawing.picture import (
    CELL_HEIGHT,
    CELL_WIDTH,
    FONT_SIZE,
    SOFTWARE_NAME,
    PlacedCell,
    ResolvedStyle,
    blend_colours,
    place_cells,
)
from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, Screen

_GREEN = "#3fb950"
_RED = "#f85149"
_YELLOW = "#e3b341"
_BLUE = "#58a6ff"
_ORANGE = "#f0883e"
_DARK = "#6e7681"
_LIGHT = "#f0f6fc"

# A higher level takes much more time and saves little: screens are large plain areas.
_COMPRESSION_LEVEL = 5
# Strokes that are neither vertical nor horizontal are drawn larger by this factor, and then reduced.
_OVERSAMPLING = 4
_BLANK = ("", " ")
# A character for which no font has a glyph.
_MISSING_CHAR = "\ufffe"


class Lookalike(NamedTuple):
    """A character to draw in place of another. Without a colour it has that of its cell."""

    char: str
    colour: str | None = None


LOOKALIKES = {
    "✅": Lookalike("✔", _GREEN),
    "❌": Lookalike("✘", _RED),
    "❎": Lookalike("✘", _GREEN),
    "❗": Lookalike("!", _RED),
    "❓": Lookalike("?", _RED),
    "⛔": Lookalike("⊖", _RED),
    "🚫": Lookalike("⊘", _RED),
    "⭐": Lookalike("★", _YELLOW),
    "🌟": Lookalike("★", _YELLOW),
    "✨": Lookalike("✦", _YELLOW),
    "➕": Lookalike("+"),
    "➖": Lookalike("-"),
    "➗": Lookalike("÷"),
    "🔴": Lookalike("●", _RED),
    "🟠": Lookalike("●", _ORANGE),
    "🟡": Lookalike("●", _YELLOW),
    "🟢": Lookalike("●", _GREEN),
    "🔵": Lookalike("●", _BLUE),
    "⚫": Lookalike("●", _DARK),
    "⚪": Lookalike("●", _LIGHT),
    "🟥": Lookalike("■", _RED),
    "🟧": Lookalike("■", _ORANGE),
    "🟨": Lookalike("■", _YELLOW),
    "🟩": Lookalike("■", _GREEN),
    "🟦": Lookalike("■", _BLUE),
    "⬛": Lookalike("■", _DARK),
    "⬜": Lookalike("■", _LIGHT),
    "🔶": Lookalike("◆", _ORANGE),
    "🔷": Lookalike("◆", _BLUE),
    "⏺": Lookalike("●"),
    "⏹": Lookalike("■"),
    "⏵": Lookalike("▶"),
    "⏴": Lookalike("◀"),
    "⁃": Lookalike("-"),
    "⎿": Lookalike("└"),
    "⎯": Lookalike("─"),
    "⟳": Lookalike("↻"),
    "⟲": Lookalike("↺"),
    "ℹ": Lookalike("i"),
}


# The tiles of one picture. Styles are looked up by identity, which is much faster than by value.
TileCache = dict[tuple[str, int, int], Image.Image]


def encode_png(screen: Screen, scale: int) -> bytes:
    """Encode a screen as PNG."""
    width = screen.columns * CELL_WIDTH * scale
    height = screen.rows * CELL_HEIGHT * scale
    compressor = zlib.compressobj(_COMPRESSION_LEVEL)
    tiles: TileCache = {}
    chunks = [compressor.compress(_draw_row(row, width, scale, tiles)) for row in place_cells(screen)]
    chunks.append(compressor.flush())
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
            _chunk(b"tEXt", f"Software\0{SOFTWARE_NAME}".encode()),
            _chunk(b"IDAT", b"".join(chunks)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def _draw_row(row: Sequence[PlacedCell], width: int, scale: int, tiles: TileCache) -> bytes:
    """Return the pixel rows of one row of cells. Each starts with a filter byte; no filter is used."""
    step = CELL_WIDTH * scale
    background = row[0].style.background if row else DEFAULT_BACKGROUND
    image = Image.new("RGB", (width, CELL_HEIGHT * scale), background)
    for column, cell, look in row:
        blank = cell.text in _BLANK
        if blank and look.background == background and not (look.underline or look.strike):
            continue
        key = cell.text, id(look), cell.width
        tile = tiles.get(key)
        if tile is None:
            tile = tiles[key] = _draw_tile(" " if blank else cell.text, look, cell.width, scale)
        image.paste(tile, (column * step, 0))
    data = image.tobytes()
    line = width * 3
    return b"\0" + b"\0".join([data[offset : offset + line] for offset in range(0, len(data), line)])


@functools.lru_cache(maxsize=2048)
def _draw_tile(text: str, style: ResolvedStyle, cells: int, scale: int) -> Image.Image:
    """Draw one cell."""
    width = CELL_WIDTH * scale * cells
    height = CELL_HEIGHT * scale
    image = Image.new("RGB", (width, height), style.background)
    if text == " " and not (style.underline or style.strike):
        return image
    draw = ImageDraw.Draw(image)
    shapes = glyphs.make_shapes(text, width, height)
    font = _find_font(text[0], style, scale)
    if shapes is None and font is None:
        if (lookalike := LOOKALIKES.get(text[0])) is not None:
            return _draw_tile(
                lookalike.char, replace(style, foreground=lookalike.colour or style.foreground), cells, scale
            )
        shapes = glyphs.make_missing_box(width, height)
    if shapes is not None:
        _draw_shapes(image, shapes, style)
    elif font is not None:
        _draw_text(draw, text, font, style, width, scale)
    line = line_thickness(height)
    baseline = _load_font(False, False, scale).getmetrics()[0]
    for is_drawn, top in ((style.underline, baseline + line), (style.strike, round(height * 0.52))):
        if is_drawn:
            draw.rectangle((0, top, width - 1, top + line - 1), style.foreground)
    return image


def _draw_text(
    draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont, style: ResolvedStyle, width: int, scale: int
) -> None:
    """Draw a character with those combining characters that the font has. A narrow one is centred in a wide cell."""
    chars = [text[0], *(char for char in text[1:] if _has_glyph(font, char))]
    left = (width - font.getlength(text[0])) // 2 if width > CELL_WIDTH * scale else 0
    baseline = _load_font(False, False, scale).getmetrics()[0]
    for shift in (0, scale) if style.bold and style.italic else (0,):
        for char in chars:
            # In a monospaced font, combining characters have a full width too, and are drawn over their character.
            draw.text((left + shift, baseline), char, style.foreground, font, anchor="ls")


def _draw_shapes(image: Image.Image, shapes: Shapes, style: ResolvedStyle) -> None:
    """Draw the shapes of a character."""
    draw = ImageDraw.Draw(image)
    for shape in shapes:
        if isinstance(shape, Box):
            colour = (
                style.foreground
                if shape.opacity == 1
                else blend_colours(style.foreground, style.background, shape.opacity)
            )
            if shape.right > shape.left and shape.bottom > shape.top:
                draw.rectangle((shape.left, shape.top, shape.right - 1, shape.bottom - 1), colour)
        else:
            image.paste(style.foreground, (0, 0), _draw_stroke(shape, image.width, image.height))


def _draw_stroke(stroke: Stroke, width: int, height: int) -> Image.Image:
    """Return a stroke as a mask."""
    mask = Image.new("L", (width * _OVERSAMPLING, height * _OVERSAMPLING))
    points = [(x * _OVERSAMPLING, y * _OVERSAMPLING) for x, y in stroke.points]
    ImageDraw.Draw(mask).line(points, 255, stroke.width * _OVERSAMPLING, joint="curve")
    return mask.reduce(_OVERSAMPLING)


@functools.cache
def _load_font(bold: bool, italic: bool, scale: int) -> ImageFont.FreeTypeFont:
    """Load a font. Bold italic text is drawn with the italic font, twice."""
    name = "DejaVuSansMono" + ("-Oblique" if italic else "-Bold" if bold else "") + ".ttf"
    with resources.as_file(resources.files("rookery.sessions") / "fonts" / name) as path:
        return ImageFont.truetype(path, FONT_SIZE * scale, layout_engine=ImageFont.Layout.BASIC)


def _find_font(char: str, style: ResolvedStyle, scale: int) -> ImageFont.FreeTypeFont | None:
    """Return the font of this style if it has the character, else the regular one, which has the most, else None."""
    fonts = (_load_font(style.bold, style.italic, scale), _load_font(False, False, scale))
    return next((font for font in fonts if _has_glyph(font, char)), None)


@functools.lru_cache(maxsize=4096)
def _has_glyph(font: ImageFont.FreeTypeFont, char: str) -> bool:
    """Return whether a font has a glyph for a character."""
    if not char.isprintable():
        return False
    return _draw_glyph(font, char) != _draw_glyph(font, _MISSING_CHAR)


def _draw_glyph(font: ImageFont.FreeTypeFont, char: str) -> bytes:
    image = Image.new("L", (4 * int(font.size), 2 * int(font.size)))
    ImageDraw.Draw(image).text((font.size, font.size), char, 255, font, anchor="ls")
    return image.tobytes()
