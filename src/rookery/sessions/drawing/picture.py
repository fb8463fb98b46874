"""Draw a screen as a PNG or SVG picture, in a thread of its own.

Resolves the style of every cell and limits the size. The encoders are imported when the first picture is drawn: Pillow
alone takes some 10 MB.
"""

import asyncio
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, DEFAULT_FOREGROUND, Cell, Screen, Style
from rookery.system.errors import RookeryError

PictureFormat = Literal["png", "svg"]
MEDIA_TYPES: dict[PictureFormat, str] = {"png": "image/png", "svg": "image/svg+xml"}
# The size of a cell at scale 1, in pixels, and the font size that fits into it.
CELL_WIDTH = 9
CELL_HEIGHT = 18
FONT_SIZE = 15
MAX_SCALE = 3
# The size limit of a picture: a screen of 400 columns and 100 rows fits at every scale.
_MAX_PIXELS = 64_000_000
# The name of the program that drew a picture, which is recorded in it.
SOFTWARE_NAME = "Rookery"


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded picture; `width` and `height` are in pixels."""

    data: bytes
    format: PictureFormat
    width: int
    height: int

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[self.format]


@dataclass(frozen=True, slots=True)
class ResolvedStyle:
    """A style with both colours set, as it is drawn."""

    foreground: str
    background: str
    bold: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False


class PlacedCell(NamedTuple):
    """A cell with its resolved style and its first column."""

    column: int
    cell: Cell
    style: ResolvedStyle


async def draw_in_thread(screen: Screen, format: PictureFormat = "png", scale: int = 1) -> Picture:
    """Draw a picture in a thread, one at a time, so that many requests do not delay anything else."""
    check_picture_size(screen.columns, screen.rows, scale)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_drawing_thread(), draw_picture, screen, format, scale)


def draw_picture(screen: Screen, format: PictureFormat = "png", scale: int = 1) -> Picture:
    """Draw a screen. Raise an error if the picture would be too large."""
    check_picture_size(screen.columns, screen.rows, scale)
    if format == "svg":
        from rookery.sessions.drawing.svg import encode_svg

        data = encode_svg(screen, scale)
    else:
        # Pillow takes some 10 MB, so it is imported with the first picture.
        from rookery.sessions.drawing.png import encode_png

        data = encode_png(screen, scale)
    return Picture(data, format, screen.columns * CELL_WIDTH * scale, screen.rows * CELL_HEIGHT * scale)


def check_picture_size(columns: int, rows: int, scale: int) -> None:
    """Raise an error for an invalid scale, or a picture that would be too large."""
    if not 1 <= scale <= MAX_SCALE:
        raise RookeryError("invalid-input", f"a scale of {scale} is not supported", f"give 1 to {MAX_SCALE}")
    if columns * rows * CELL_WIDTH * CELL_HEIGHT * scale * scale > _MAX_PIXELS:
        message = f"{columns}x{rows} at scale {scale} is too large for a picture"
        raise RookeryError("invalid-input", message, "request fewer columns or rows, or scale 1")


def place_cells(screen: Screen) -> Iterator[list[PlacedCell]]:
    """Yield all rows with the resolved style of each cell. The colours of the cell under the cursor are swapped."""
    cursor = screen.cursor
    # Cells share their style objects, and a lookup by identity is faster than by value.
    styles: dict[int, ResolvedStyle] = {}
    for number, row in enumerate(screen.cells):
        placed: list[PlacedCell] = []
        column = 0
        for cell in row:
            style = styles.get(id(cell.style))
            if style is None:
                style = styles[id(cell.style)] = resolve_style(cell.style)
            placed.append(PlacedCell(column, cell, style))
            column += cell.width
        if cursor.visible and cursor.row == number:
            for index, placed_cell in enumerate(placed):
                if 0 <= cursor.column - placed_cell.column < placed_cell.cell.width:
                    # Kept here like the others, so that no other style gets the same identity.
                    styles[0] = resolve_style(placed_cell.cell.style, True)
                    placed[index] = placed_cell._replace(style=styles[0])
        yield placed


@functools.lru_cache(maxsize=2048)
def resolve_style(style: Style, under_cursor: bool = False) -> ResolvedStyle:
    """Return a style with default colours filled in, dimmed and swapped as necessary."""
    foreground = style.foreground or DEFAULT_FOREGROUND
    background = style.background or DEFAULT_BACKGROUND
    if style.dim:
        foreground = blend_colours(foreground, background, 0.5)
    if under_cursor:
        foreground, background = background, foreground
    return ResolvedStyle(foreground, background, style.bold, style.italic, style.underline, style.strike)


def blend_colours(over: str, under: str, cover: float) -> str:
    """Mix two colours; `cover` is the share of `over`, from 0 to 1."""
    pairs = zip(split_channels(over), split_channels(under), strict=True)
    return "#" + "".join(f"{round(upper * cover + lower * (1 - cover)):02x}" for upper, lower in pairs)


@functools.lru_cache(maxsize=2048)
def split_channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def is_rookery_picture(data: bytes) -> bool:
    """Return whether these are the first bytes of a picture that Rookery has drawn."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return f"Software\0{SOFTWARE_NAME}".encode() in data
    return data.startswith(b"<svg ") and f"<!-- {SOFTWARE_NAME} -->".encode() in data


@functools.cache
def _drawing_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "drawing")
