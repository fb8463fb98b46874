"""What people see: answers on stdout, narration on stderr, colour on terminals only."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def coloured(stream: TextIO) -> bool:
    """The one place where that is decided."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") != "0" or os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty()


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if coloured(stream or sys.stdout) else text


def answer(text: str) -> None:
    line = text if text.endswith("\n") else text + "\n"
    try:
        sys.stdout.write(line)
    except UnicodeEncodeError:
        sys.stdout.write(line.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding))
    sys.stdout.flush()


def answer_json(data: bytes) -> None:
    """The daemon's own bytes; indented where a person reads them."""
    if sys.stdout.isatty():
        import json

        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
        # What would not be seen, or would be seen where it is not, is left in JSON's own escapes.
        seen = foreign(text) == text
        answer(text if seen else json.dumps(json.loads(data), indent=2))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def narrate(text: str) -> None:
    sys.stderr.write(text + "\n")


def foreign(text: str, stream: TextIO | None = None) -> str:
    """Text of strangers, line by line: on a terminal what it could do there is made visible, elsewhere it is data."""
    from rookery.cli.visible import visible

    if not (stream or sys.stdout).isatty():
        return text
    return "\n".join(visible(line.expandtabs()) for line in text.replace("\r\n", "\n").split("\n"))


def table(
    rows: Sequence[Sequence[str]], heads: Sequence[str], styles: Sequence[str | None] = (), *, fit: bool = False
) -> str:
    """Columns as wide as their widest cell, the last one ragged; nothing at all without rows. A style is for a row.

    With `fit` lines are cut where the terminal ends.
    """
    if not rows:
        return ""
    widths = [max(wide(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    filled = [
        [cell + " " * (width - wide(cell)) for cell, width in zip(row, widths, strict=True)] for row in [heads, *rows]
    ]
    width = columns(sys.stdout) if fit else None
    text = [cut("  ".join(cells).rstrip(), width) for cells in filled]
    chosen = ["dim", *(styles or [None] * len(rows))]
    return "\n".join(paint(line, style) if style else line for line, style in zip(text, chosen, strict=True))


def wide(text: str) -> int:
    """The columns that it takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in text)


def cut(text: str, width: int | None) -> str:
    """As much of the beginning as fits."""
    if width is None or wide(text) <= width:
        return text
    short = text[:width]
    while wide(short) > width:
        short = short[:-1]
    return short


def columns(stream: TextIO) -> int | None:
    """How long a line may be; as long as it likes where no terminal shows it."""
    if not stream.isatty():
        return None
    wanted = os.environ.get("COLUMNS", "")
    return int(wanted) if wanted.isdecimal() else os.get_terminal_size(stream.fileno()).columns or None
