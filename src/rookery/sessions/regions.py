"""The parts of OpenCode's screen, told by how it draws them. Where it draws otherwise, there are none."""

from collections.abc import Iterator
from dataclasses import dataclass

from rookery.sessions.screen import Screen
from rookery.sessions.screen_records import Region, Regions

_SIDE, _FOOT, _EDGE = "┃", "╹", "▀"
# A box is at least so high; a sidebar, or a dialog in the middle, so wide.
_HIGH, _WIDE = 3, 20
_CLOSES = "esc"


def regions(screen: Screen) -> Regions:
    """Colours of a theme are not looked at, only where they change."""
    grid = _Grid.of(screen)
    sidebar = _sidebar(grid)
    width = sidebar.column if sidebar is not None else grid.columns
    prompt, status = _prompt(grid, width)
    return Regions(
        prompt=prompt,
        dialog=_modal(grid) or _ask(grid, width),
        toast=_toast(grid, width),
        sidebar=sidebar,
        status=status,
    )


@dataclass(frozen=True)
class _Grid:
    """Characters and backgrounds by row and column; a wide character has nothing in its second place."""

    columns: int
    texts: list[list[str]]
    backs: list[list[str | None]]

    @staticmethod
    def of(screen: Screen) -> "_Grid":
        texts = [[part for cell in row for part in (cell.text, *[""] * (cell.width - 1))] for row in screen.cells]
        backs = [[back for cell in row for back in [cell.style.background] * cell.width] for row in screen.cells]
        return _Grid(screen.columns, texts, backs)

    def read(self, top: int, left: int, bottom: int, right: int) -> str:
        """The text from `top` and `left` up to, and without, `bottom` and `right`; nothing blank around it."""
        lines = ["".join(row[left:right]).rstrip() for row in self.texts[top:bottom]]
        indents = [len(line) - len(line.lstrip()) for line in lines if line]
        return "\n".join(line[min(indents, default=0) :] for line in lines).strip("\n")

    def region(self, top: int, left: int, bottom: int, right: int, text: str | None = None) -> Region:
        said = self.read(top, left, bottom, right) if text is None else text
        return Region(row=top, column=left, rows=bottom - top, columns=right - left, text=said)

    def top(self, column: int, end: int) -> int:
        """Where the side in this column begins that ends before the row `end`."""
        while end > 0 and self.texts[end - 1][column] == _SIDE:
            end -= 1
        return end


def _prompt(grid: _Grid, width: int) -> tuple[Region | None, Region | None]:
    for foot in range(len(grid.texts) - 1, 0, -1):
        row = grid.texts[foot][:width]
        if _FOOT not in row:
            continue
        left = row.index(_FOOT)
        right = next((at for at in range(left + 1, width) if row[at] != _EDGE), width)
        top = grid.top(left, foot)
        if right - left < _HIGH or foot - top < _HIGH:
            continue
        # A blank line around what is typed, and below it who answers.
        prompt = grid.region(top, left, foot + 1, right, grid.read(top + 1, left + 1, foot - 2, right))
        below = foot + 1 < len(grid.texts)
        return prompt, grid.region(foot + 1, left, foot + 2, right) if below else None
    return None, None


def _ask(grid: _Grid, width: int) -> Region | None:
    """What stands in the place of the prompt and wants an answer: a box whose side belongs to it."""
    for end in range(len(grid.texts), 0, -1):
        row, backs = grid.texts[end - 1][:width], grid.backs[end - 1]
        if not "".join(row).strip():
            continue
        if row.count(_SIDE) != 1:
            return None
        left = row.index(_SIDE)
        top = grid.top(left, end)
        if backs[left] == backs[0] or end - top < _HIGH:
            return None
        right = next((at for at in range(left + 1, width) if backs[at] == backs[0]), width)
        return grid.region(top, left, end, right, grid.read(top, left + 1, end, right))
    return None


def _modal(grid: _Grid) -> Region | None:
    """A box in the middle of the screen, without sides, that says how it is closed."""
    for top, backs in enumerate(grid.backs):
        for left, right in _spans(backs):
            middle = abs(left + right - grid.columns) <= 1
            if not middle or left == 0 or right - left < _WIDE or _SIDE in grid.texts[top][left - 1 : right]:
                continue
            bottom = top + 1
            while bottom < len(grid.backs) and _stands_out(grid.backs[bottom], left, right, backs[left]):
                bottom += 1
            if bottom - top >= _HIGH and _CLOSES in grid.read(top, left, top + _HIGH, right).split():
                return grid.region(top, left, bottom, right)
    return None


def _stands_out(backs: list[str | None], left: int, right: int, colour: str | None) -> bool:
    return backs[left] == backs[right - 1] == colour and colour not in (backs[left - 1], backs[right])


def _toast(grid: _Grid, width: int) -> Region | None:
    """A box with a side on either hand."""
    top, box = 0, None
    for row in range(len(grid.texts) + 1):
        now = _box(grid, row, width) if row < len(grid.texts) else None
        if now != box:
            if box is not None and row - top >= _HIGH:
                left, right = box
                return grid.region(top, left, row, right + 1, grid.read(top, left + 1, row, right))
            top, box = row, now
    return None


def _box(grid: _Grid, row: int, width: int) -> tuple[int, int] | None:
    sides = [at for at, text in enumerate(grid.texts[row][:width]) if text == _SIDE]
    if len(sides) < 2:
        return None
    left, right = sides[-2:]
    backs = grid.backs[row]
    alike = set(backs[left : right + 1]) == {backs[left]} and backs[left] != backs[0]
    return (left, right) if alike else None


def _sidebar(grid: _Grid) -> Region | None:
    """What has a background of its own at the right, from top to bottom."""
    left, right = list(_spans(grid.backs[0]))[-1]
    colour = grid.backs[0][left]
    whole = all(backs[right - 1] == colour for backs in grid.backs)
    if left == 0 or right - left < _WIDE or not whole or grid.backs[0][0] == colour:
        return None
    return grid.region(0, left, len(grid.texts), right)


def _spans(backs: list[str | None]) -> Iterator[tuple[int, int]]:
    """From where to where a row has one background."""
    left = 0
    for at in range(1, len(backs) + 1):
        if at == len(backs) or backs[at] != backs[left]:
            yield left, at
            left = at
