"""Reads the cells of the emulator. They are thousands, so only rows that have changed are read again."""

from dataclasses import dataclass
from typing import Any

from rookery.sessions.screen import BACKGROUND, FOREGROUND, Cell, Style
from rookery.system.errors import RookeryError

# A place that nothing was drawn at.
BLANK = Cell()
_WIDE, _TAIL = 1, 2
_CLUSTER, _BACK_OF_PALETTE, _BACK_OF_RGB = 1, 2, 3
_PALETTE, _RGB = 1, 2


@dataclass(frozen=True)
class Ghostty:
    """The library's own names; it has no types."""

    ffi: Any
    lib: Any
    core: Any

    def check(self, result: int) -> None:
        if result:
            raise RookeryError("internal-error", f"the terminal emulator refuses with {result}", "see the daemon's log")


class Cells:
    """Of one terminal of the library's."""

    def __init__(self, ghostty: Ghostty, terminal: Any) -> None:
        self._lib, self._ffi, self._check, self._terminal = ghostty.lib, ghostty.ffi, ghostty.check, terminal
        self._state: Any = self._made("GhosttyRenderState", self._lib.ghostty_render_state_new)
        self._rows: Any = self._made("GhosttyRenderStateRowIterator", self._lib.ghostty_render_state_row_iterator_new)
        self._cells: Any = self._made("GhosttyRenderStateRowCells", self._lib.ghostty_render_state_row_cells_new)
        # Where the library puts its answers: making these takes longer than asking.
        new, sized = self._ffi.new, ghostty.core.init_sized
        self._colours, self._style = sized("GhosttyRenderStateColors"), sized("GhosttyStyle")
        self._whole, self._dirty, self._view = new("GhosttyRenderStateDirty*"), new("bool*"), new("GhosttyCellsView*")
        self._wide, self._tag, self._point = new("GhosttyCellWide*"), new("GhosttyCellContentTag*"), new("uint32_t*")
        self._index, self._rgb = new("GhosttyColorPaletteIndex*"), new("GhosttyColorRgb*")
        self._kept: list[tuple[Cell, ...]] = []

    def forget(self) -> None:
        """All rows are to be read again."""
        self._kept = []

    def close(self) -> None:
        """Whoever reads afterwards fails, and does not read what is no longer there."""
        if self._state is None:
            return
        self._lib.ghostty_render_state_row_cells_free(self._cells[0])
        self._lib.ghostty_render_state_row_iterator_free(self._rows[0])
        self._lib.ghostty_render_state_free(self._state[0])
        self._state = self._rows = self._cells = None

    def read(self, count: int) -> list[tuple[Cell, ...]]:
        """All rows, from the top."""
        lib, check, state = self._lib, self._check, self._state[0]
        check(lib.ghostty_render_state_update(state, self._terminal))
        check(lib.ghostty_render_state_get(state, lib.GHOSTTY_RENDER_STATE_DATA_COLORS, self._colours))
        check(lib.ghostty_render_state_get(state, lib.GHOSTTY_RENDER_STATE_DATA_DIRTY, self._whole))
        check(lib.ghostty_render_state_get(state, lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR, self._rows))
        anew = len(self._kept) != count or self._whole[0] == lib.GHOSTTY_RENDER_STATE_DIRTY_FULL
        found: list[tuple[Cell, ...]] = []
        while len(found) < count and lib.ghostty_render_state_row_iterator_next(self._rows[0]):
            check(lib.ghostty_render_state_row_get(self._rows[0], lib.GHOSTTY_RENDER_STATE_ROW_DATA_DIRTY, self._dirty))
            found.append(self._row() if anew or self._dirty[0] else self._kept[len(found)])
        check(lib.ghostty_render_state_clean(state))
        self._kept = found
        return list(found)

    def _row(self) -> tuple[Cell, ...]:
        lib, row = self._lib, self._rows[0]
        self._check(lib.ghostty_render_state_row_get(row, lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW, self._view))
        self._check(lib.ghostty_render_state_row_get(row, lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS, self._cells))
        # Equal values are equal cells in one row, but for those with characters that combine.
        known: dict[int, Cell | None] = {0: BLANK}
        cells: list[Cell] = []
        for column, raw in enumerate(self._ffi.unpack(self._view.ptr, self._view.len)):
            if raw in known:
                cell = known[raw]
            else:
                cell = self._cell(raw, column)
                if self._tag[0] != _CLUSTER:
                    known[raw] = cell
            if cell is not None:
                cells.append(cell)
        return tuple(cells)

    def _cell(self, raw: int, column: int) -> Cell | None:
        """None for the second place of a wide one."""
        lib, get = self._lib, self._lib.ghostty_cell_get
        get(raw, lib.GHOSTTY_CELL_DATA_CONTENT_TAG, self._tag)
        get(raw, lib.GHOSTTY_CELL_DATA_WIDE, self._wide)
        if self._wide[0] == _TAIL:
            return None
        tag = self._tag[0]
        if tag in (_BACK_OF_PALETTE, _BACK_OF_RGB):
            return Cell(" ", Style(background=self._only_background(raw, tag)))
        self._check(lib.ghostty_render_state_row_cells_select(self._cells[0], column))
        kind = lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_STYLE
        self._check(lib.ghostty_render_state_row_cells_get(self._cells[0], kind, self._style))
        get(raw, lib.GHOSTTY_CELL_DATA_CODEPOINT, self._point)
        text = self._cluster() if tag == _CLUSTER else chr(self._point[0] or 0x20)
        width = 2 if self._wide[0] == _WIDE else 1
        # What is not to be seen still takes its place.
        return Cell(" " * width if self._style.invisible else text, self._seen(), width)

    def _seen(self) -> Style:
        found = self._style
        front, back = self._colour(found.fg_color), self._colour(found.bg_color)
        if found.inverse:
            front, back = back or BACKGROUND, front or FOREGROUND
        marks = found.bold, found.faint, found.italic, found.underline != 0, found.strikethrough
        return Style(front, back, *marks)

    def _colour(self, found: Any) -> str | None:
        if found.tag == _PALETTE:
            return _hex(self._colours.palette[found.value.palette])
        return _hex(found.value.rgb) if found.tag == _RGB else None

    def _only_background(self, raw: int, tag: int) -> str:
        """Of a cell that was erased in a colour, and has no style."""
        if tag == _BACK_OF_PALETTE:
            self._lib.ghostty_cell_get(raw, self._lib.GHOSTTY_CELL_DATA_COLOR_PALETTE, self._index)
            return _hex(self._colours.palette[self._index[0]])
        self._lib.ghostty_cell_get(raw, self._lib.GHOSTTY_CELL_DATA_COLOR_RGB, self._rgb)
        return _hex(self._rgb[0])

    def _cluster(self) -> str:
        """A character with all that combines with it."""
        lib, get = self._lib, self._lib.ghostty_render_state_row_cells_get
        self._check(get(self._cells[0], lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_LEN, self._point))
        points = self._ffi.new("uint32_t[]", max(self._point[0], 1))
        self._check(get(self._cells[0], lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_BUF, points))
        return "".join(map(chr, points[0 : self._point[0]])) or " "

    def _made(self, kind: str, make: Any) -> Any:
        place = self._ffi.new(f"{kind}*")
        self._check(make(self._ffi.NULL, place))
        return place


def _hex(rgb: Any) -> str:
    return f"#{rgb.r:02x}{rgb.g:02x}{rgb.b:02x}"
