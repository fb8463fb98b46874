"""A terminal without a window: what a program draws, as cells (docs/decisions/0016-emulator.md)."""

import functools
import importlib
from collections.abc import Callable

from rookery.sessions.emulator_cells import BLANK, Cells, Ghostty
from rookery.sessions.screen import BACKGROUND, FOREGROUND, Cursor, Screen
from rookery.system.errors import RookeryError

# Erases all, and leaves cursor and colours as they are.
_ERASE = b"\x1b7\x1b[0m\x1b[2J\x1b8"
# What the program may set: that it is told what is pasted, and that frames are shown once they are whole.
_PASTES, _FRAMES = 2004, 2026
_PIXELS = 8, 16


@functools.cache
def load() -> Ghostty:
    try:
        raw, core = importlib.import_module("pyghostty._ffi"), importlib.import_module("pyghostty.core")
    except (ImportError, OSError) as error:
        raise RookeryError(
            "agent-unavailable", f"there is no terminal emulator for this machine: {error}", "pip install pyghostty"
        ) from None
    return Ghostty(raw.ffi, raw.lib, core)


@functools.cache
def warm_up() -> None:
    """Use all of it once, to be called in a thread: the library is taken in with its first use, which takes a while."""
    made = Emulator(10, 2, lambda _: None)
    made.feed("\x1b]0;x\x07\x1b[31;44me\u0301\x1b[0m\x1b[41m\x1b[K\x1b[c".encode())
    made.resize(12, 3)
    assert not (made.drawing or made.pastes or made.painted)
    made.feed(b"x")
    assert "x" in made.text and made.screen().columns == 12
    made.close()


class Emulator:
    """`answer` is given what the terminal itself says to the program, such as its colours when it is asked for them."""

    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], object]) -> None:
        ghostty = load()
        self._ffi = ghostty.ffi
        self._terminal = ghostty.core.Terminal(columns, rows, scrollback=0, fg=_rgb(FOREGROUND), bg=_rgb(BACKGROUND))
        # Pictures are not for this terminal, and none may be read from a file by its name.
        ghostty.check(
            ghostty.lib.ghostty_terminal_set(
                self._terminal._t[0],
                ghostty.lib.GHOSTTY_TERMINAL_OPT_KITTY_IMAGE_STORAGE_LIMIT,
                self._ffi.new("uint64_t*", 0),
            )
        )

        def said(data: bytes) -> None:
            answer(data)

        self._terminal.on_reply(said)
        self._cells = Cells(ghostty, self._terminal._t[0])

    def feed(self, data: bytes) -> None:
        self._terminal.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        """What stands there is erased, so that it is seen when the program has drawn it anew."""
        self._terminal.resize(columns, rows, *_PIXELS)
        self._cells.forget()
        if self._terminal.get("vt_ground", "bool"):
            self._terminal.feed(_ERASE)

    @property
    def painted(self) -> bool:
        """Whether something was drawn in every corner, be it blanks."""
        cells = self._cells.read(self.size[1])
        return all(cell is not BLANK for row in (cells[0], cells[-1]) for cell in (row[0], row[-1]))

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._terminal.size

    @property
    def drawing(self) -> bool:
        """Whether a frame has begun that is not whole yet."""
        return self._terminal.mode(_FRAMES)

    @property
    def pastes(self) -> bool:
        """Whether the program wants to be told what is pasted."""
        return self._terminal.mode(_PASTES)

    @property
    def text(self) -> str:
        """What can be read, row by row: much quicker than the cells."""
        return self._terminal.text()

    @property
    def title(self) -> str:
        found = self._terminal.get("title", "GhosttyString")
        return self._ffi.buffer(found.ptr, found.len)[:].decode("utf-8", "replace") if found.len else ""

    def screen(self) -> Screen:
        columns, rows = self.size
        column, row = self._terminal.cursor
        cursor = Cursor(row, column, bool(self._terminal.get("cursor_visible", "bool")))
        return Screen(columns, rows, self._cells.read(rows), cursor, self.title)

    def close(self) -> None:
        """Free what it takes; it must not be used again."""
        self._cells.close()
        self._terminal.close()


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
