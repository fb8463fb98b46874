"""Find the regions of OpenCode's screen by how OpenCode draws them. No I/O.

If a version of OpenCode draws them differently, none are found.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rookery.sessions.records import ScreenRegion, ScreenRegions
from rookery.sessions.terminal.cells import Cell, Screen

_SIDE = "┃"
_BOTTOM = "╹"
_EDGE = "▀"
# The minimum height of a box, and the minimum width of a sidebar or of a dialog in the middle.
_MIN_ROWS = 3
_MIN_COLUMNS = 20
_CLOSE_KEY = "esc"


# The distance of a toast from the top, and from the right edge or the sidebar.
_TOAST_TOP = 2
_TOAST_RIGHT = 2


@dataclass(frozen=True)
class ScreenToast:
    """A toast read from a screen, with its wrapped lines joined."""

    title: str | None
    message: str


def may_have_toast(text: str) -> bool:
    """Return whether the text of a screen may contain a toast. This is much cheaper than finding the toast."""
    lines = text.split("\n", _TOAST_TOP + _MIN_ROWS)
    return (
        all(line.count(_SIDE) >= 2 for line in lines[_TOAST_TOP : _TOAST_TOP + _MIN_ROWS]) and len(lines) > _TOAST_TOP
    )


def read_toast(screen: Screen) -> ScreenToast | None:
    """Return the toast at the place where OpenCode draws toasts, and ignore similar boxes elsewhere on the screen."""
    grid = _Grid.of(screen)
    sidebar = _find_sidebar(grid)
    width = sidebar.column if sidebar is not None else grid.columns
    region = _find_toast(grid, width)
    if region is None or (region.row, region.column + region.columns) != (_TOAST_TOP, width - _TOAST_RIGHT):
        return None
    heading, gap, rest = region.text.partition("\n\n")
    first = next((cell for cell in _cells_in(screen, region) if cell.text.strip()), None)
    titled = bool(gap) and first is not None and first.style.bold
    title, message = (_unwrap(heading), rest) if titled else (None, region.text)
    return ScreenToast(title, _unwrap(message)) if message.strip() else None


def _cells_in(screen: Screen, region: ScreenRegion) -> Iterator[Cell]:
    """Yield the cells between the sides of a box."""
    for row in screen.cells[region.row : region.row + region.rows]:
        column = 0
        for cell in row:
            if region.column < column < region.column + region.columns - 1:
                yield cell
            column += cell.width


def _unwrap(text: str) -> str:
    """Join a wrapped text into one line."""
    return " ".join(text.split())


def find_regions(screen: Screen) -> ScreenRegions:
    """Find all regions of a screen. Colours depend on the theme, so only their changes are considered."""
    grid = _Grid.of(screen)
    sidebar = _find_sidebar(grid)
    width = sidebar.column if sidebar is not None else grid.columns
    prompt, status = _find_prompt(grid, width)
    return ScreenRegions(
        prompt=prompt,
        dialog=_find_modal(grid) or _find_ask(grid, width),
        toast=_find_toast(grid, width),
        sidebar=sidebar,
        status=status,
    )


@dataclass(frozen=True)
class _Grid:
    """Characters and backgrounds by row and column. The second column of a wide character is empty."""

    columns: int
    texts: list[list[str]]
    backgrounds: list[list[str | None]]

    @staticmethod
    def of(screen: Screen) -> "_Grid":
        texts = [[part for cell in row for part in (cell.text, *[""] * (cell.width - 1))] for row in screen.cells]
        backs = [[back for cell in row for back in [cell.style.background] * cell.width] for row in screen.cells]
        return _Grid(screen.columns, texts, backs)

    def read(self, top: int, left: int, bottom: int, right: int) -> str:
        """Return the text from `top` and `left` up to but excluding `bottom` and `right`, without blanks around it."""
        lines = ["".join(row[left:right]).rstrip() for row in self.texts[top:bottom]]
        indents = [len(line) - len(line.lstrip()) for line in lines if line]
        return "\n".join(line[min(indents, default=0) :] for line in lines).strip("\n")

    def region(self, top: int, left: int, bottom: int, right: int, text: str | None = None) -> ScreenRegion:
        content = self.read(top, left, bottom, right) if text is None else text
        return ScreenRegion(row=top, column=left, rows=bottom - top, columns=right - left, text=content)

    def top(self, column: int, end: int) -> int:
        """Return the first row of the side in this column that ends before the row `end`."""
        while end > 0 and self.texts[end - 1][column] == _SIDE:
            end -= 1
        return end


def _find_prompt(grid: _Grid, width: int) -> tuple[ScreenRegion | None, ScreenRegion | None]:
    """Return the input field and the status line below it."""
    for bottom in range(len(grid.texts) - 1, 0, -1):
        row = grid.texts[bottom][:width]
        if _BOTTOM not in row:
            continue
        left = row.index(_BOTTOM)
        right = next((column for column in range(left + 1, width) if row[column] != _EDGE), width)
        top = grid.top(left, bottom)
        if right - left < _MIN_ROWS or bottom - top < _MIN_ROWS:
            continue
        # The typed text has a blank line above and below, and the line under it names the agent that answers.
        prompt = grid.region(top, left, bottom + 1, right, grid.read(top + 1, left + 1, bottom - 2, right))
        has_status = bottom + 1 < len(grid.texts)
        return prompt, grid.region(bottom + 1, left, bottom + 2, right) if has_status else None
    return None, None


def _find_ask(grid: _Grid, width: int) -> ScreenRegion | None:
    """Find a question in place of the prompt: a box whose side has the background of the box."""
    for end in range(len(grid.texts), 0, -1):
        row = grid.texts[end - 1][:width]
        backs = grid.backgrounds[end - 1]
        if not "".join(row).strip():
            continue
        if row.count(_SIDE) != 1:
            return None
        left = row.index(_SIDE)
        top = grid.top(left, end)
        if backs[left] == backs[0] or end - top < _MIN_ROWS:
            return None
        right = next((column for column in range(left + 1, width) if backs[column] == backs[0]), width)
        return grid.region(top, left, end, right, grid.read(top, left + 1, end, right))
    return None


def _find_modal(grid: _Grid) -> ScreenRegion | None:
    """Find a box in the middle of the screen, without sides, that names the key to close it."""
    for top, backs in enumerate(grid.backgrounds):
        for left, right in _spans(backs):
            centred = abs(left + right - grid.columns) <= 1
            if not centred or left == 0 or right - left < _MIN_COLUMNS or _SIDE in grid.texts[top][left - 1 : right]:
                continue
            bottom = top + 1
            while bottom < len(grid.backgrounds) and _is_distinct(grid.backgrounds[bottom], left, right, backs[left]):
                bottom += 1
            if bottom - top >= _MIN_ROWS and _CLOSE_KEY in grid.read(top, left, top + _MIN_ROWS, right).split():
                return grid.region(top, left, bottom, right)
    return None


def _is_distinct(backgrounds: list[str | None], left: int, right: int, colour: str | None) -> bool:
    return backgrounds[left] == backgrounds[right - 1] == colour and colour not in (
        backgrounds[left - 1],
        backgrounds[right],
    )


def _find_toast(grid: _Grid, width: int) -> ScreenRegion | None:
    """Find a box with a side on the left and on the right."""
    top = 0
    box = None
    for row in range(len(grid.texts) + 1):
        current = _find_box(grid, row, width) if row < len(grid.texts) else None
        if current != box:
            if box is not None and row - top >= _MIN_ROWS:
                left, right = box
                return grid.region(top, left, row, right + 1, grid.read(top, left + 1, row, right))
            top = row
            box = current
    return None


def _find_box(grid: _Grid, row: int, width: int) -> tuple[int, int] | None:
    """Return the columns of the rightmost two sides in a row, if all between them has one background of its own."""
    sides = [column for column, text in enumerate(grid.texts[row][:width]) if text == _SIDE]
    if len(sides) < 2:
        return None
    left, right = sides[-2:]
    backs = grid.backgrounds[row]
    is_box = set(backs[left : right + 1]) == {backs[left]} and backs[left] != backs[0]
    return (left, right) if is_box else None


def _find_sidebar(grid: _Grid) -> ScreenRegion | None:
    """Find an area at the right with a background of its own, from top to bottom."""
    left, right = list(_spans(grid.backgrounds[0]))[-1]
    colour = grid.backgrounds[0][left]
    full_height = all(backs[right - 1] == colour for backs in grid.backgrounds)
    if left == 0 or right - left < _MIN_COLUMNS or not full_height or grid.backgrounds[0][0] == colour:
        return None
    return grid.region(0, left, len(grid.texts), right)


def _spans(backgrounds: list[str | None]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of columns with the same background."""
    left = 0
    for column in range(1, len(backgrounds) + 1):
        if column == len(backgrounds) or backgrounds[column] != backgrounds[left]:
            yield left, column
            left = column
