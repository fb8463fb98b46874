"""The screen of a terminal as cells, independent of any terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

# The colours of cells without their own: light on dark, which OpenCode's interface expects of a terminal.
DEFAULT_FOREGROUND = "#d8dee9"
DEFAULT_BACKGROUND = "#0a0a0a"


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a cell. Colours are `#rrggbb`, None for the default; those of inverse text are already swapped."""

    foreground: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False


PLAIN_STYLE = Style()


@dataclass(frozen=True, slots=True)
class Cell:
    """A character with its combining characters. One of width 2 also takes the next column, which then has no cell."""

    text: str = " "
    style: Style = PLAIN_STYLE
    width: int = 1


@dataclass(frozen=True, slots=True)
class Cursor:
    row: int
    column: int
    visible: bool = True


@dataclass(frozen=True)
class Screen:
    """A screen. Rows and columns count from 0, from the top and the left.

    The widths of a row's cells add up to `columns`.
    """

    columns: int
    rows: int
    cells: Sequence[Sequence[Cell]]
    cursor: Cursor
    title: str = ""

    @property
    def lines(self) -> list[str]:
        """The text of each row, without trailing blanks."""
        return ["".join(cell.text for cell in row).rstrip() for row in self.cells]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
