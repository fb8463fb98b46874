"""Pictures of screens, as PNG and SVG: how cells look, how large a picture may be, and where the work is done."""

import asyncio
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rookery.sessions.screen import BACKGROUND, FOREGROUND, Cell, Screen, Style
from rookery.system.errors import RookeryError

Format = Literal["png", "svg"]
MEDIA_TYPES: dict[Format, str] = {"png": "image/png", "svg": "image/svg+xml"}
# A cell at scale 1, in pixels; the font is as large as fits into it.
CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 9, 18, 15
LARGEST_SCALE = 3
# What a picture may take: a screen of 400 columns and 100 rows fits at every scale.
_PIXELS = 64_000_000
# What a program that made a picture is called in it.
SOFTWARE = "Rookery"


@dataclass(frozen=True, slots=True)
class Picture:
    data: bytes
    format: Format
    width: int
    height: int

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[self.format]


@dataclass(frozen=True, slots=True)
class Look:
    """A style as it is seen: both colours are known."""

    foreground: str
    background: str
    bold: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False


class Placed(NamedTuple):
    """A cell with its look, and the column where it begins."""

    column: int
    cell: Cell
    look: Look


async def drawn(screen: Screen, format: Format = "png", scale: int = 1) -> Picture:
    """Drawn in a thread, one picture at a time: a crowd that wants some holds up nothing else."""
    check_size(screen.columns, screen.rows, scale)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_thread(), draw, screen, format, scale)


def draw(screen: Screen, format: Format = "png", scale: int = 1) -> Picture:
    check_size(screen.columns, screen.rows, scale)
    if format == "svg":
        from rookery.sessions.drawing_svg import svg

        data = svg(screen, scale)
    else:
        # Pillow, and with it some 10 MB, is not there before the first picture.
        from rookery.sessions.drawing_png import png

        data = png(screen, scale)
    return Picture(data, format, screen.columns * CELL_WIDTH * scale, screen.rows * CELL_HEIGHT * scale)


def check_size(columns: int, rows: int, scale: int) -> None:
    if not 1 <= scale <= LARGEST_SCALE:
        raise RookeryError("invalid-input", f"a scale of {scale} is not drawn", f"give 1 to {LARGEST_SCALE}")
    if columns * rows * CELL_WIDTH * CELL_HEIGHT * scale * scale > _PIXELS:
        message = f"{columns}x{rows} at scale {scale} makes too large a picture"
        raise RookeryError("invalid-input", message, "ask for fewer columns or rows, or for scale 1")


def rows_of(screen: Screen) -> Iterator[list[Placed]]:
    """All rows with the look of each cell, that of the cursor turned round."""
    cursor = screen.cursor
    # Cells share their styles, and a style is quicker to find by where it is than by what is in it.
    looks: dict[int, Look] = {}
    for number, row in enumerate(screen.cells):
        placed: list[Placed] = []
        column = 0
        for cell in row:
            seen = looks.get(id(cell.style))
            if seen is None:
                seen = looks[id(cell.style)] = look(cell.style)
            placed.append(Placed(column, cell, seen))
            column += cell.width
        if cursor.visible and cursor.row == number:
            for at, one in enumerate(placed):
                if 0 <= cursor.column - one.column < one.cell.width:
                    # Held here like the others, so that no other look comes to be in its place.
                    looks[0] = look(one.cell.style, True)
                    placed[at] = one._replace(look=looks[0])
        yield placed


@functools.lru_cache(maxsize=2048)
def look(style: Style, under_cursor: bool = False) -> Look:
    foreground, background = style.foreground or FOREGROUND, style.background or BACKGROUND
    if style.dim:
        foreground = blend(foreground, background, 0.5)
    if under_cursor:
        foreground, background = background, foreground
    return Look(foreground, background, style.bold, style.italic, style.underline, style.strike)


def blend(over: str, under: str, cover: float) -> str:
    pairs = zip(channels(over), channels(under), strict=True)
    return "#" + "".join(f"{round(one * cover + other * (1 - cover)):02x}" for one, other in pairs)


@functools.lru_cache(maxsize=2048)
def channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def is_ours(data: bytes) -> bool:
    """Whether these are the first bytes of a picture that was drawn here."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return f"Software\0{SOFTWARE}".encode() in data
    return data.startswith(b"<svg ") and f"<!-- {SOFTWARE} -->".encode() in data


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "drawing")
