"""Decide from the screen whether a terminal shows its session completely. No I/O.

OpenCode draws a conversation in steps: first the prompt alone, then every message as an empty frame, then each
paragraph, code block and quotation as soon as it is prepared. So a screen is complete when all of the last message is
on it, or as much of its end as fits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rookery.sessions.records import ScreenRegions, SessionMessage, ToolRun
from rookery.sessions.terminal.cells import Screen
from rookery.sessions.terminal.regions import find_regions

_WORD = re.compile(r"[^\W_]+")
# A longer word, or one of a script without spaces, may be broken at the end of a line.
_MAX_UNBROKEN_CHARS = 12
# This many words distinguish one message of a person from another.
_DISTINCT_WORDS = 8
# Markdown that is not drawn, or not as it is written. Additional text on the screen does no harm.
_NOT_DRAWN = re.compile(
    r"""
      ^[ \t]*(?:```|~~~)[^\n]*$        # the fence of a code block, with its language
    | <!--[\s\S]*?-->                  # a comment
    | </?\w[^<>\n]*>                   # a tag
    | !\[[^\]\n]*\]\([^)\n]*\)         # a picture
    | (?<=\])\([^)\n]*\)               # where a link leads
    | ^[ \t]*\[[^\]\n]+\]:[^\n]*$      # the same, apart from the text
    | ^[ \t>]*(?:[-*+]|\d+[.)])[ ]+(?:\[[ xX]\][ ])?  # the mark of a list's item
    | &\w+;                            # a character by its name
    """,
    re.MULTILINE | re.VERBOSE,
)
# The cells of a table row are drawn side by side, each on lines of its own: only the start of a row is certain.
_TABLE_ROW = re.compile(r"^[ \t]*\|[^\w\n]*(\w*).*$", re.MULTILINE)
# If the conversation is longer than the screen, one of the first rows has text; blank rows separate paragraphs.
_TOP_ROWS = 3
# The start of the line with the agent and the duration of the answer, and the side of boxes that are not an answer.
_SIGNATURE = "▣"
_SIDE = "┃"
# The window title: the session's title, truncated if it is long, or OpenCode's name if the session has no title yet.
_TITLE_PREFIX = "OC | "
_CUT = "…"
_DEFAULT_TITLE = "OpenCode"
_UNTITLED = re.compile(r"(New|Child) session - \d{4}-")


class _ToolInput(msgspec.Struct, frozen=True):
    """The arguments of a tool that OpenCode shows on the screen."""

    command: Any = None
    filePath: Any = None
    pattern: Any = None


@dataclass(frozen=True)
class ConversationEnd:
    """The end of a conversation, as words that must be on the screen in this order.

    `question` are the first words of the person's message that the last message answers. `is_answer` is true if the
    last message is an assistant's text, which is drawn without a side.
    """

    words: tuple[str, ...] = ()
    question: tuple[str, ...] = ()
    is_answer: bool = False


def find_conversation_end(messages: Sequence[SessionMessage], *, running: bool = False) -> ConversationEnd:
    """Return what the screen must show of the last message. Of a message that is being written only the text counts."""
    if not messages:
        return ConversationEnd()
    last = messages[-1]
    if last.role != "assistant":
        return ConversationEnd(_drawn_words(last.content))
    question = next((message.content for message in reversed(messages) if message.role == "user"), "")
    if last.content.strip():
        return ConversationEnd(_drawn_words(last.content), _drawn_words(question)[:_DISTINCT_WORDS], is_answer=True)
    if running:
        return ConversationEnd()
    return ConversationEnd(
        _drawn_words(last.error) if last.error else _tool_words(last.parts[-1]) if last.parts else ()
    )


def has_prompt(regions: ScreenRegions) -> bool:
    """Return whether a message can be typed, or a dialog asks for an answer.

    By then OpenCode's interface has followed events for a while: toasts that arrived half a second earlier are drawn.
    """
    return regions.prompt is not None or regions.dialog is not None


def shows_conversation_end(screen: Screen, expected: ConversationEnd) -> bool:
    """Return whether the end of the conversation is above the prompt, as much of it as fits."""
    parts = find_regions(screen)
    rows, full = _message_rows(_conversation_lines(screen, parts), expected)
    return has_prompt(parts) and _DrawnWords(rows).ends_with(expected.words, full=full)


def has_conversation(screen: Screen) -> bool:
    """Return whether there is any text above the prompt."""
    return any(line.strip() for line in _conversation_lines(screen, find_regions(screen)))


class _DrawnWords:
    """The words of rows, each with its offset in the text that the words make without any separators."""

    def __init__(self, rows: Sequence[str]) -> None:
        self._text = ""
        self._starts = dict[str, list[int]]()
        # The end offset of each row that has words.
        self._ends: list[int] = []
        for row in rows:
            for match in _WORD.finditer(row):
                self._starts.setdefault(match[0], []).append(len(self._text))
                self._text += match[0]
            if len(self._text) > (self._ends[-1] if self._ends else 0):
                self._ends.append(len(self._text))

    def ends_with(self, words: Sequence[str], *, full: bool) -> bool:
        """Return whether the text ends with `words`, checked from the last word upwards.

        In rows that are `full` the first words may be missing, but none in between.
        """
        end = len(self._text)
        for word in reversed(words):
            start = self._find_before(end, word)
            if start < 0:
                # The first row may start with something that is drawn differently from how it is written.
                return full and end < len(self._text) and end <= self._ends[0]
            end = start
        return True

    def _find_before(self, end: int, word: str) -> int:
        """Return the last offset of the word before a position, or -1."""
        if len(word) > _MAX_UNBROKEN_CHARS or not word.isascii():
            return self._text.rfind(word, 0, end)
        return next((start for start in reversed(self._starts.get(word, ())) if start + len(word) <= end), -1)


def _message_rows(lines: Sequence[str], expected: ConversationEnd) -> tuple[Sequence[str], bool]:
    """Return the rows that can contain the last message, and whether more of it may be above them."""
    full = any(line.strip() for line in lines[:_TOP_ROWS])
    if not expected.is_answer:
        return lines, full
    question_row = max(
        (row for row, _ in enumerate(lines) if _is_question_box(lines, row, expected.question)), default=-1
    )
    rows = [line for line in lines[question_row + 1 :] if not line.lstrip().startswith((_SIDE, _SIGNATURE))]
    return rows, full and question_row < 0


def _is_question_box(lines: Sequence[str], at: int, question: Sequence[str]) -> bool:
    """Return whether the box that starts in this row contains the message that was answered."""
    if not question or not _is_side(lines[at]) or (at > 0 and _is_side(lines[at - 1])):
        return False
    box: list[str] = []
    for line in lines[at:]:
        if not _is_side(line):
            break
        box += _WORD.findall(line)
    text = "".join(question)
    return "".join(box)[: len(text)] == text


def _is_side(line: str) -> bool:
    return line.lstrip().startswith(_SIDE)


def _conversation_lines(screen: Screen, regions: ScreenRegions) -> list[str]:
    """Return the rows of the conversation: above the prompt, left of the sidebar, and below a toast that hides some."""
    bottom = min((part.row for part in (regions.prompt, regions.dialog) if part is not None), default=screen.rows)
    top = regions.toast.row + regions.toast.rows if regions.toast is not None else 0
    width = regions.sidebar.column if regions.sidebar is not None else screen.columns
    return [_row_text(screen, row, width) for row in range(min(top, bottom), bottom)]


def _row_text(screen: Screen, row: int, width: int) -> str:
    """Return the text of a row up to a column."""
    texts = list[str]()
    column = 0
    for cell in screen.cells[row]:
        if column >= width:
            break
        texts.append(cell.text)
        column += cell.width
    return "".join(texts)


def _drawn_words(text: str) -> tuple[str, ...]:
    """Return the words of a message that are drawn."""
    return tuple(_WORD.findall(_NOT_DRAWN.sub(" ", _TABLE_ROW.sub(r"\1", text))))


def _tool_words(run: ToolRun) -> tuple[str, ...]:
    """Return the first words that OpenCode draws for a tool run."""
    try:
        arguments = msgspec.convert(run.input, _ToolInput)
    except ValueError:
        return ()
    path = arguments.filePath.rpartition("/")[2] if isinstance(arguments.filePath, str) else None
    text = next((value for value in (arguments.command, path, arguments.pattern) if isinstance(value, str)), "")
    return tuple(_WORD.findall(text))[:_DISTINCT_WORDS]


def shows_other_session(window: str, title: str) -> bool:
    """Return whether the window title shows that keys have led a terminal away from the session with this title."""
    if window == _DEFAULT_TITLE:
        return _UNTITLED.match(title) is None
    window_title = window.removeprefix(_TITLE_PREFIX)
    if window_title == window:
        return False
    return (
        not title.startswith(window_title.removesuffix(_CUT)) if window_title.endswith(_CUT) else window_title != title
    )
