"""What stands on the screen of a terminal, as cells: whoever draws or compares it needs no terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

# The colours of cells that have none of their own: light on dark, as OpenCode's interface takes a terminal to be.
FOREGROUND, BACKGROUND = "#d8dee9", "#0a0a0a"


@dataclass(frozen=True, slots=True)
class Style:
    """Colours are `#rrggbb`, None where the cell has none of its own; swapped ones stand here as they are seen."""

    foreground: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False


PLAIN = Style()


@dataclass(frozen=True, slots=True)
class Cell:
    """A character with all that combines with it. One of width 2 takes the next place too, which is then no cell."""

    text: str = " "
    style: Style = PLAIN
    width: int = 1


@dataclass(frozen=True, slots=True)
class Cursor:
    row: int
    column: int
    visible: bool = True


@dataclass(frozen=True)
class Screen:
    """Rows and columns count from 0, from the top and the left. The widths of a row's cells add up to `columns`."""

    columns: int
    rows: int
    cells: Sequence[Sequence[Cell]]
    cursor: Cursor
    title: str = ""

    @property
    def lines(self) -> list[str]:
        """The text of each row, without what is blank at its end."""
        return ["".join(cell.text for cell in row).rstrip() for row in self.cells]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
