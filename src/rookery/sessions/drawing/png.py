"""A screen as PNG: glyphs come from the bundled font, lines and blocks are drawn so that they meet.

A row of cells is drawn and packed at a time. So a picture takes little memory whatever its size, and the interpreter's
lock is let go of after every row.
"""

import functools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

from PIL import Image, ImageDraw, ImageFont

from rookery.sessions import glyphs
from rookery.sessions.drawing import (
    CELL_HEIGHT,
    CELL_WIDTH,
    FONT_SIZE,
    SOFTWARE,
    Look,
    Placed,
    blend,
    rows_of,
)
from rookery.sessions.lookalikes import ALIKE
from rookery.sessions.screen import BACKGROUND, Screen
from rookery.sessions.strokes import Box, Shapes, Stroke, thickness

# More than this costs much time and saves little: screens are large plain areas.
_PACKING = 5
# Strokes that are neither upright nor level are drawn this much larger first.
_FINER = 4
_BLANK = ("", " ")
# No font has a glyph for it.
_NOT_THERE = "\ufffe"

# Of one picture, found by where a look is, which is much quicker than by what is in it.
Tiles = dict[tuple[str, int, int], Image.Image]


def png(screen: Screen, scale: int) -> bytes:
    width, height = screen.columns * CELL_WIDTH * scale, screen.rows * CELL_HEIGHT * scale
    packing = zlib.compressobj(_PACKING)
    tiles: Tiles = {}
    packed = [packing.compress(_row(row, width, scale, tiles)) for row in rows_of(screen)]
    packed.append(packing.flush())
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
            _chunk(b"tEXt", f"Software\0{SOFTWARE}".encode()),
            _chunk(b"IDAT", b"".join(packed)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def _row(row: Sequence[Placed], width: int, scale: int, tiles: Tiles) -> bytes:
    """The lines of pixels of one row of cells, each after the byte that says how it is filtered, which it is not."""
    step = CELL_WIDTH * scale
    ground = row[0].look.background if row else BACKGROUND
    image = Image.new("RGB", (width, CELL_HEIGHT * scale), ground)
    for column, cell, look in row:
        blank = cell.text in _BLANK
        if blank and look.background == ground and not (look.underline or look.strike):
            continue
        key = cell.text, id(look), cell.width
        tile = tiles.get(key)
        if tile is None:
            tile = tiles[key] = _tile(" " if blank else cell.text, look, cell.width, scale)
        image.paste(tile, (column * step, 0))
    data, line = image.tobytes(), width * 3
    return b"\0" + b"\0".join([data[at : at + line] for at in range(0, len(data), line)])


@functools.lru_cache(maxsize=2048)
def _tile(text: str, look: Look, cells: int, scale: int) -> Image.Image:
    """One cell as it looks."""
    width, height = CELL_WIDTH * scale * cells, CELL_HEIGHT * scale
    image = Image.new("RGB", (width, height), look.background)
    if text == " " and not (look.underline or look.strike):
        return image
    draw = ImageDraw.Draw(image)
    shapes = glyphs.shapes(text, width, height)
    font = _font_with(text[0], look, scale)
    if shapes is None and font is None:
        if (like := ALIKE.get(text[0])) is not None:
            return _tile(like.char, replace(look, foreground=like.colour or look.foreground), cells, scale)
        shapes = glyphs.missing(width, height)
    if shapes is not None:
        _shapes(image, shapes, look)
    elif font is not None:
        _letters(draw, text, font, look, width, scale)
    line = thickness(height)
    baseline = _font(False, False, scale).getmetrics()[0]
    for there, top in ((look.underline, baseline + line), (look.strike, round(height * 0.52))):
        if there:
            draw.rectangle((0, top, width - 1, top + line - 1), look.foreground)
    return image


def _letters(
    draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont, look: Look, width: int, scale: int
) -> None:
    """A character, and what combines with it as far as the font has that; a narrow one stands in the middle."""
    known = [text[0], *(char for char in text[1:] if _has(font, char))]
    left = (width - font.getlength(text[0])) // 2 if width > CELL_WIDTH * scale else 0
    baseline = _font(False, False, scale).getmetrics()[0]
    for shift in (0, scale) if look.bold and look.italic else (0,):
        for char in known:
            # In a font of one width even what combines is as wide as all, and is put over its character.
            draw.text((left + shift, baseline), char, look.foreground, font, anchor="ls")


def _shapes(image: Image.Image, shapes: Shapes, look: Look) -> None:
    draw = ImageDraw.Draw(image)
    for shape in shapes:
        if isinstance(shape, Box):
            colour = look.foreground if shape.cover == 1 else blend(look.foreground, look.background, shape.cover)
            if shape.right > shape.left and shape.bottom > shape.top:
                draw.rectangle((shape.left, shape.top, shape.right - 1, shape.bottom - 1), colour)
        else:
            image.paste(look.foreground, (0, 0), _stroke(shape, image.width, image.height))


def _stroke(stroke: Stroke, width: int, height: int) -> Image.Image:
    mask = Image.new("L", (width * _FINER, height * _FINER))
    points = [(x * _FINER, y * _FINER) for x, y in stroke.points]
    ImageDraw.Draw(mask).line(points, 255, stroke.width * _FINER, joint="curve")
    return mask.reduce(_FINER)


# ---- the font


@functools.cache
def _font(bold: bool, italic: bool, scale: int) -> ImageFont.FreeTypeFont:
    """What is both is drawn as the italic one, twice."""
    name = "DejaVuSansMono" + ("-Oblique" if italic else "-Bold" if bold else "") + ".ttf"
    with resources.as_file(resources.files("rookery.sessions") / "fonts" / name) as path:
        return ImageFont.truetype(path, FONT_SIZE * scale, layout_engine=ImageFont.Layout.BASIC)


def _font_with(char: str, look: Look, scale: int) -> ImageFont.FreeTypeFont | None:
    """The one of this look that has the character, or else the plain one, which has most."""
    fonts = (_font(look.bold, look.italic, scale), _font(False, False, scale))
    return next((font for font in fonts if _has(font, char)), None)


@functools.lru_cache(maxsize=4096)
def _has(font: ImageFont.FreeTypeFont, char: str) -> bool:
    if not char.isprintable():
        return False
    return _glyph(font, char) != _glyph(font, _NOT_THERE)


def _glyph(font: ImageFont.FreeTypeFont, char: str) -> bytes:
    image = Image.new("L", (4 * int(font.size), 2 * int(font.size)))
    ImageDraw.Draw(image).text((font.size, font.size), char, 255, font, anchor="ls")
    return image.tobytes()
