"""Emulate a terminal without a window (docs/decisions/0016-emulator.md).

A screen has thousands of cells, so only rows that have changed are read again.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, DEFAULT_FOREGROUND, Cell, Cursor, Screen, Style
from rookery.system.errors import RookeryError

# A cell in which nothing was drawn.
BLANK_CELL = Cell()
_WIDE = 1
_TAIL = 2
_CLUSTER = 1
_PALETTE_BACKGROUND = 2
_RGB_BACKGROUND = 3
_PALETTE = 1
_RGB = 2

# Erases the screen, and keeps the cursor and the colours.
_ERASE = b"\x1b7\x1b[0m\x1b[2J\x1b8"
# Modes that the program may set: bracketed paste, and synchronized output, which marks complete frames.
_PASTE_MODE = 2004
_FRAME_MODE = 2026
_CELL_PIXELS = 8, 16


@dataclass(frozen=True)
class GhosttyLibrary:
    """The modules of the Ghostty library, which has no types."""

    ffi: Any
    lib: Any
    core: Any

    def check(self, result: int) -> None:
        """Raise an error if the library returned one."""
        if result:
            raise RookeryError(
                "internal-error", f"the terminal emulator returned the error {result}", "see the daemon's log"
            )


class CellReader:
    """Reads the cells of one terminal of the library."""

    def __init__(self, ghostty: GhosttyLibrary, terminal: Any) -> None:
        self._lib = ghostty.lib
        self._ffi = ghostty.ffi
        self._check = ghostty.check
        self._terminal = terminal
        self._state: Any = self._create("GhosttyRenderState", self._lib.ghostty_render_state_new)
        self._rows: Any = self._create("GhosttyRenderStateRowIterator", self._lib.ghostty_render_state_row_iterator_new)
        self._cells: Any = self._create("GhosttyRenderStateRowCells", self._lib.ghostty_render_state_row_cells_new)
        # Buffers for results of the library: creating them takes longer than the calls.
        new = self._ffi.new
        sized = ghostty.core.init_sized
        self._colours = sized("GhosttyRenderStateColors")
        self._style = sized("GhosttyStyle")
        self._dirty_state = new("GhosttyRenderStateDirty*")
        self._dirty = new("bool*")
        self._view = new("GhosttyCellsView*")
        self._wide = new("GhosttyCellWide*")
        self._tag = new("GhosttyCellContentTag*")
        self._point = new("uint32_t*")
        self._index = new("GhosttyColorPaletteIndex*")
        self._rgb = new("GhosttyColorRgb*")
        self._last_rows: list[tuple[Cell, ...]] = []

    def invalidate(self) -> None:
        """Read all rows again the next time."""
        self._last_rows = []

    def close(self) -> None:
        """Free the library's objects. A later read fails instead of reading freed memory."""
        if self._state is None:
            return
        self._lib.ghostty_render_state_row_cells_free(self._cells[0])
        self._lib.ghostty_render_state_row_iterator_free(self._rows[0])
        self._lib.ghostty_render_state_free(self._state[0])
        self._state = self._rows = self._cells = None

    def read(self, count: int) -> list[tuple[Cell, ...]]:
        """Return all rows, from the top."""
        lib = self._lib
        check = self._check
        state = self._state[0]
        check(lib.ghostty_render_state_update(state, self._terminal))
        check(lib.ghostty_render_state_get(state, lib.GHOSTTY_RENDER_STATE_DATA_COLORS, self._colours))
        check(lib.ghostty_render_state_get(state, lib.GHOSTTY_RENDER_STATE_DATA_DIRTY, self._dirty_state))
        check(lib.ghostty_render_state_get(state, lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR, self._rows))
        read_all = len(self._last_rows) != count or self._dirty_state[0] == lib.GHOSTTY_RENDER_STATE_DIRTY_FULL
        rows: list[tuple[Cell, ...]] = []
        while len(rows) < count and lib.ghostty_render_state_row_iterator_next(self._rows[0]):
            check(lib.ghostty_render_state_row_get(self._rows[0], lib.GHOSTTY_RENDER_STATE_ROW_DATA_DIRTY, self._dirty))
            rows.append(self._row() if read_all or self._dirty[0] else self._last_rows[len(rows)])
        check(lib.ghostty_render_state_clean(state))
        self._last_rows = rows
        return list(rows)

    def _row(self) -> tuple[Cell, ...]:
        """Read the current row."""
        lib = self._lib
        row = self._rows[0]
        self._check(lib.ghostty_render_state_row_get(row, lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW, self._view))
        self._check(lib.ghostty_render_state_row_get(row, lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS, self._cells))
        # Within a row, equal raw values are equal cells, except for those with combining characters.
        cache: dict[int, Cell | None] = {0: BLANK_CELL}
        cells: list[Cell] = []
        for column, raw in enumerate(self._ffi.unpack(self._view.ptr, self._view.len)):
            if raw in cache:
                cell = cache[raw]
            else:
                cell = self._cell(raw, column)
                if self._tag[0] != _CLUSTER:
                    cache[raw] = cell
            if cell is not None:
                cells.append(cell)
        return tuple(cells)

    def _cell(self, raw: int, column: int) -> Cell | None:
        """Return a cell, or None for the second column of a wide character."""
        lib = self._lib
        get = self._lib.ghostty_cell_get
        get(raw, lib.GHOSTTY_CELL_DATA_CONTENT_TAG, self._tag)
        get(raw, lib.GHOSTTY_CELL_DATA_WIDE, self._wide)
        if self._wide[0] == _TAIL:
            return None
        tag = self._tag[0]
        if tag in (_PALETTE_BACKGROUND, _RGB_BACKGROUND):
            return Cell(" ", Style(background=self._read_background(raw, tag)))
        self._check(lib.ghostty_render_state_row_cells_select(self._cells[0], column))
        kind = lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_STYLE
        self._check(lib.ghostty_render_state_row_cells_get(self._cells[0], kind, self._style))
        get(raw, lib.GHOSTTY_CELL_DATA_CODEPOINT, self._point)
        text = self._cluster() if tag == _CLUSTER else chr(self._point[0] or 0x20)
        width = 2 if self._wide[0] == _WIDE else 1
        # Invisible text still takes its columns.
        return Cell(" " * width if self._style.invisible else text, self._read_style(), width)

    def _read_style(self) -> Style:
        """Return the style of the current cell, with the colours of inverse text swapped."""
        style = self._style
        foreground = self._colour(style.fg_color)
        background = self._colour(style.bg_color)
        if style.inverse:
            foreground, background = background or DEFAULT_BACKGROUND, foreground or DEFAULT_FOREGROUND
        marks = style.bold, style.faint, style.italic, style.underline != 0, style.strikethrough
        return Style(foreground, background, *marks)

    def _colour(self, colour: Any) -> str | None:
        if colour.tag == _PALETTE:
            return _hex(self._colours.palette[colour.value.palette])
        return _hex(colour.value.rgb) if colour.tag == _RGB else None

    def _read_background(self, raw: int, tag: int) -> str:
        """Return the background of a cell that was erased with a colour and has no style."""
        if tag == _PALETTE_BACKGROUND:
            self._lib.ghostty_cell_get(raw, self._lib.GHOSTTY_CELL_DATA_COLOR_PALETTE, self._index)
            return _hex(self._colours.palette[self._index[0]])
        self._lib.ghostty_cell_get(raw, self._lib.GHOSTTY_CELL_DATA_COLOR_RGB, self._rgb)
        return _hex(self._rgb[0])

    def _cluster(self) -> str:
        """Return a character with its combining characters."""
        lib = self._lib
        get = self._lib.ghostty_render_state_row_cells_get
        self._check(get(self._cells[0], lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_LEN, self._point))
        points = self._ffi.new("uint32_t[]", max(self._point[0], 1))
        self._check(get(self._cells[0], lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_BUF, points))
        return "".join(map(chr, points[0 : self._point[0]])) or " "

    def _create(self, kind: str, make: Any) -> Any:
        """Create an object of the library and return the pointer to it."""
        pointer = self._ffi.new(f"{kind}*")
        self._check(make(self._ffi.NULL, pointer))
        return pointer


def _hex(rgb: Any) -> str:
    return f"#{rgb.r:02x}{rgb.g:02x}{rgb.b:02x}"


@functools.cache
def load_ghostty() -> GhosttyLibrary:
    """Import the library. Raise an error if it is not available for this machine."""
    try:
        bindings = importlib.import_module("pyghostty._ffi")
        core = importlib.import_module("pyghostty.core")
    except (ImportError, OSError) as error:
        raise RookeryError(
            "agent-unavailable", f"there is no terminal emulator for this machine: {error}", "pip install pyghostty"
        ) from None
    return GhosttyLibrary(bindings.ffi, bindings.lib, core)


@functools.cache
def warm_up_emulator() -> None:
    """Use the whole library once. To be called in a thread: its first use loads it, which takes a while."""
    emulator = Emulator(10, 2, lambda _: None)
    emulator.feed("\x1b]0;x\x07\x1b[31;44me\u0301\x1b[0m\x1b[41m\x1b[K\x1b[c".encode())
    emulator.resize(12, 3)
    assert not (emulator.is_drawing or emulator.accepts_paste or emulator.is_painted)
    emulator.feed(b"x")
    assert "x" in emulator.text and emulator.screen().columns == 12
    emulator.close()


class Emulator:
    """A terminal emulator. `on_reply` is called with the terminal's replies to the program, such as its colours."""

    def __init__(self, columns: int, rows: int, on_reply: Callable[[bytes], object]) -> None:
        ghostty = load_ghostty()
        self._ffi = ghostty.ffi
        self._terminal = ghostty.core.Terminal(
            columns, rows, scrollback=0, fg=_parse_rgb(DEFAULT_FOREGROUND), bg=_parse_rgb(DEFAULT_BACKGROUND)
        )
        # Images are disabled, and above all reading an image from a file by its name.
        ghostty.check(
            ghostty.lib.ghostty_terminal_set(
                self._terminal._t[0],
                ghostty.lib.GHOSTTY_TERMINAL_OPT_KITTY_IMAGE_STORAGE_LIMIT,
                self._ffi.new("uint64_t*", 0),
            )
        )

        def reply(data: bytes) -> None:
            on_reply(data)

        self._terminal.on_reply(reply)
        self._cells = CellReader(ghostty, self._terminal._t[0])

    def feed(self, data: bytes) -> None:
        self._terminal.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size and erase the screen, so that `is_painted` shows when the program has redrawn it."""
        self._terminal.resize(columns, rows, *_CELL_PIXELS)
        self._cells.invalidate()
        if self._terminal.get("vt_ground", "bool"):
            self._terminal.feed(_ERASE)

    @property
    def is_painted(self) -> bool:
        """Whether something, even blanks, was drawn in every corner."""
        cells = self._cells.read(self.size[1])
        return all(cell is not BLANK_CELL for row in (cells[0], cells[-1]) for cell in (row[0], row[-1]))

    @property
    def size(self) -> tuple[int, int]:
        """The size in columns and rows."""
        return self._terminal.size

    @property
    def is_drawing(self) -> bool:
        """Whether a frame was started that is not complete yet."""
        return self._terminal.mode(_FRAME_MODE)

    @property
    def accepts_paste(self) -> bool:
        """Whether the program supports bracketed paste."""
        return self._terminal.mode(_PASTE_MODE)

    @property
    def text(self) -> str:
        """The text of all rows. Much faster than reading the cells."""
        return self._terminal.text()

    @property
    def title(self) -> str:
        title = self._terminal.get("title", "GhosttyString")
        return self._ffi.buffer(title.ptr, title.len)[:].decode("utf-8", "replace") if title.len else ""

    def screen(self) -> Screen:
        columns, rows = self.size
        column, row = self._terminal.cursor
        cursor = Cursor(row, column, bool(self._terminal.get("cursor_visible", "bool")))
        return Screen(columns, rows, self._cells.read(rows), cursor, self.title)

    def close(self) -> None:
        """Free the memory. The emulator must not be used again."""
        self._cells.close()
        self._terminal.close()


def _parse_rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
