"""Output for people and programs: results on stdout, notes on stderr, colour on terminals only.

Tables fit the width of a terminal; elsewhere nothing is shortened, since programs may read it. Control characters in
foreign text are made visible, by a function that is imported on first use: of Rookery's other packages, modules of
the command line import only `daemon_client` at their top.
"""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# The importance of a column. Minor ones are left out before others are shortened; vital ones are never left out.
MINOR = 1
USUAL = 2
VITAL = 3
_GAP = "  "
_ELLIPSIS = "…"
# The least number of columns for text beside a label.
_MIN_TEXT_WIDTH = 20
# Ids are shown with at least this many characters, so that they stay unique when more are created.
_MIN_ID_LENGTH = 12


def uses_colour(stream: TextIO) -> bool:
    """Return whether to write colours to the stream. No other code decides this."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") != "0" or os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty()


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return the text in a style, if the stream shows colours. The default is stdout."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if uses_colour(stream or sys.stdout) else text


def write(text: str) -> None:
    """Write text to stdout, and a line break if it does not end with one."""
    write_part(text if text.endswith("\n") else text + "\n")


def write_part(line: str) -> None:
    """Write a piece of text to stdout as it is, and flush."""
    try:
        sys.stdout.write(line)
    except UnicodeEncodeError:
        sys.stdout.write(line.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding))
    sys.stdout.flush()


def write_json(data: bytes) -> None:
    """Write JSON to stdout: the daemon's own bytes, or indented on a terminal."""
    if sys.stdout.isatty():
        import json

        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
        # Invisible characters and those that move the cursor stay in JSON's own escapes.
        printable = visible_lines(text) == text
        write(text if printable else json.dumps(json.loads(data), indent=2))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def write_note(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(text + "\n")


def visible_lines(text: str, stream: TextIO | None = None) -> str:
    """Return foreign text, with control characters in its lines made visible on a terminal, unchanged elsewhere."""

    if not (stream or sys.stdout).isatty():
        return text
    return "\n".join(visible(line.expandtabs()) for line in text.replace("\r\n", "\n").split("\n"))


class Column(NamedTuple):
    """A column of a table. If the terminal is too narrow, the least important columns are shortened first.

    Cells are not shortened below `min_width` columns; None keeps them whole, for ids, which are useless if shortened.
    With `wraps`, cells continue on the next line instead of losing their end.
    """

    head: str
    importance: int = USUAL
    min_width: int | None = 8
    wraps: bool = False


def format_table(
    rows: Sequence[Sequence[str]],
    heads: Sequence[str | Column],
    styles: Sequence[str | None] = (),
    *,
    stream: TextIO | None = None,
    indent: int = 0,
) -> str:
    """Return rows as a table with a head, or an empty text without rows. `styles` has a style for each row.

    On a terminal no line is longer than the terminal's width less `indent`. Elsewhere nothing is shortened, since
    programs may read it. Control characters in cells are made visible.
    """

    if not rows:
        return ""
    columns = [head if isinstance(head, Column) else Column(head) for head in heads]
    cells = [[visible(cell) for cell in row] for row in [[column.head for column in columns], *rows]]
    natural = [max(measure_width(row[column]) for row in cells) for column in range(len(columns))]
    max_width = get_line_width(stream or sys.stdout)
    max_width = None if max_width is None else max(max_width - indent, 1)
    widths = _choose_widths(
        columns, natural, [any(row[i] for row in cells[1:]) for i in range(len(columns))], max_width
    )
    text: list[str] = []
    for row, style in zip(cells, ["dim", *(styles or [None] * len(rows))], strict=True):
        for line in _format_lines(row, columns, widths):
            fitted = cut(line, max_width)
            text.append(paint(fitted, style, stream) if style else fitted)
    return "\n".join(text)


def _format_lines(row: Sequence[str], columns: Sequence[Column], widths: Mapping[int, int]) -> Iterator[str]:
    """Yield the lines of one row: more than one if a cell wraps."""
    parts = [
        wrap(row[column], width) if columns[column].wraps else [shorten(row[column], width)]
        for column, width in widths.items()
    ]
    for number in range(max(map(len, parts))):
        line = [part[number] if number < len(part) else "" for part in parts]
        filled = [cell + " " * (width - measure_width(cell)) for cell, width in zip(line, widths.values(), strict=True)]
        yield _GAP.join(filled).rstrip()


def _choose_widths(
    columns: Sequence[Column], natural: Sequence[int], filled: Sequence[bool], max_width: int | None
) -> dict[int, int]:
    """Return the width of each column by its index, without the columns that are left out."""
    kept = list(range(len(columns)))
    floors = {
        i: width if (least := columns[i].min_width) is None else min(width, max(least, measure_width(columns[i].head)))
        for i, width in enumerate(natural)
    }
    while True:
        widths = {i: natural[i] for i in kept}
        if max_width is None or (excess := _measure_excess(widths, max_width)) <= 0:
            return widths
        minor, usual, vital = ([i for i in kept if columns[i].importance == level] for level in (MINOR, USUAL, VITAL))
        # Columns that wrap lose no text when they are narrow.
        wrapping = [i for i in vital if columns[i].wraps]
        for chosen in (minor,) if minor else (usual, wrapping, vital):
            excess = _shrink(widths, chosen, floors, excess)
        if excess <= 0:
            return widths
        spare = [i for i in kept if columns[i].importance < VITAL]
        if not spare or len(kept) == 1:
            _shrink(widths, kept, dict.fromkeys(kept, 1), excess)
            return widths
        kept.remove(min(spare, key=lambda i: (filled[i], columns[i].importance, -i)))


def _measure_excess(widths: Mapping[int, int], max_width: int) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1) - max_width


def _shrink(widths: dict[int, int], chosen: Sequence[int], min_widths: Mapping[int, int], excess: int) -> int:
    """Shrink the widest of the chosen columns until the table fits, and return the excess that remains."""
    while excess > 0:
        above = sorted((i for i in chosen if widths[i] > min_widths[i]), key=lambda i: -widths[i])
        if not above:
            break
        widest = above[0]
        level = widths[above[1]] if len(above) > 1 else 0
        target = max(min_widths[widest], widths[widest] - excess, min(level, widths[widest] - 1))
        excess -= widths[widest] - target
        widths[widest] = target
    return excess


def measure_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_measure_char, text))


def _measure_char(char: str) -> int:
    import unicodedata

    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 1 + (unicodedata.east_asian_width(char) in "WF")


def cut(text: str, width: int | None) -> str:
    """Return as much of the text's beginning as fits into `width` columns, or all of it without a width."""
    if width is None or measure_width(text) <= width:
        return text
    used = 0
    for index, char in enumerate(text):
        used += _measure_char(char)
        if used > width:
            return text[:index]
    return text


def shorten(text: str, width: int) -> str:
    """Return the text, or as much of its beginning as fits with an ellipsis after it."""
    return text if measure_width(text) <= width else cut(text, max(width - 1, 0)) + _ELLIPSIS


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines that fit, broken between words where possible."""
    lines: list[str] = []
    # A line has at least one character, however narrow it is.
    while measure_width(text) > width and len(text) > 1:
        part = cut(text, width) or text[0]
        space = part.rfind(" ") if text[len(part)] != " " else len(part)
        length = space if space > 0 else len(part)
        lines.append(text[:length].rstrip())
        text = text[length:].lstrip()
    return [*lines, text]


def format_labelled(
    label: str, text: str, *, style: str | None = None, label_style: str | None = None, stream: TextIO | None = None
) -> str:
    """Return a label and a text. On a terminal the text wraps, and its lines are indented by the label's width.

    `style` applies to everything, `label_style` to the label alone.
    """
    max_width = get_line_width(stream or sys.stdout)
    indent = measure_width(label)
    if max_width is not None and indent + _MIN_TEXT_WIDTH > max_width:
        # There is not enough space beside the label.
        lines = wrap(label + text, max_width)
    else:
        first, *more = [text] if max_width is None else wrap(text, max_width - indent)
        lines = [label + first, *(" " * indent + line for line in more)]
    if label_style and lines[0].startswith(label):
        lines[0] = paint(label, label_style, stream) + lines[0][len(label) :]
    return "\n".join(paint(line, style, stream) if style else line for line in lines)


def shorten_ids(ids: Iterable[str], others: Iterable[str] = (), *, stream: TextIO | None = None) -> dict[str, str]:
    """Return how each id is shown: on a terminal as a short prefix that is unique among them and `others`.

    Elsewhere ids are shown whole.
    """
    chosen = [*ids]
    if not (stream or sys.stdout).isatty():
        return {id_: id_ for id_ in chosen}
    all_ids = sorted({*chosen, *others})
    needed = dict.fromkeys(all_ids, _MIN_ID_LENGTH)
    for id_, next_id in itertools.pairwise(all_ids):
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(id_, next_id, strict=False))
        common = sum(1 for _ in same) + 1
        needed[id_] = max(needed[id_], common)
        needed[next_id] = max(needed[next_id], common)
    return {id_: id_[: needed[id_]] for id_ in chosen}


def get_line_width(stream: TextIO) -> int | None:
    """Return the maximum length of a line on a terminal, or None if the stream is no terminal."""
    if not stream.isatty():
        return None
    value = os.environ.get("COLUMNS", "")
    columns = int(value) if value.isdecimal() else 0
    return columns or os.get_terminal_size(stream.fileno()).columns or None


def visible(text: str) -> str:
    """Return the text with control characters made visible."""
    from rookery.system.text import escape_invisible as shown

    return shown(text)
