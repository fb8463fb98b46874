"""`rookery session screen`."""

import json
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.failure import FAILED, TIMED_OUT
from rookery.cli.session_names import ANY_SESSION, Record, Sessions, common, timeout as timeout_option
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

_EPILOG = """\
KEYS are names such as enter, esc, tab, up, f1, ctrl+p and shift+tab, or single characters, with blanks between them.
Text is typed first, then what is to be pasted is pasted, then keys are pressed.

\b
Examples:
  rookery session screen
  rookery session screen fix-login --size 160x50
  rookery session screen fix-login --keys ctrl+p --wait Commands
  rookery session screen fix-login --text "Run the tests." --keys enter --wait "esc interrupt"
"""


@click.command(epilog=_EPILOG)
@ANY_SESSION
@click.option("--text", default="", help="Type this.")
@click.option("--paste", default="", metavar="TEXT", help="Paste this; it may have several lines.")
@click.option("--keys", default="", help="Press these keys.")
@click.option("--wait", "pattern", metavar="PATTERN", help="Until what stands there fits this regular expression.")
@click.option("--size", metavar="CxR", help="Columns and rows of the terminal, such as 160x50.")
@click.option("--colours", is_flag=True, help="With --json: the rows with their colours too, as runs.")
@timeout_option(30.0)
@common
def screen(
    session: str | None, pattern: str | None, timeout: float, as_json: bool, no_start: bool, **given: Any
) -> None:
    """Show what stands on a session's screen.

    Of the session that was active last, if SESSION is left out. That is OpenCode's own terminal, in a window of
    Rookery's that nobody else sees; where there is none, the conversation as Rookery draws it.
    """
    sessions = Sessions(no_start, timeout)
    columns, rows = size_of(given["size"])
    typed = {"text": given["text"], "paste": given["paste"], "keys": given["keys"].split()}
    id_ = sessions.id_or_none(session)
    data = b""
    if id_ is None and (any(typed.values()) or pattern is not None):
        raise click.UsageError("say which session: its id, or a dot for that of the current folder's workspace")
    with waiting("its screen is drawn" if pattern is None else "waiting", silent=as_json):
        if any(typed.values()):
            size = {name: int(value) for name, value in (("columns", columns), ("rows", rows)) if value is not None}
            data = sessions.ask_of(id_ or "", "/keys", method="POST", body={**typed, **size})
        missed = None if pattern is None else _missed(sessions, id_ or "", pattern, timeout)
        if missed is None and (not data or pattern is not None):
            colours = "true" if given["colours"] else None
            place = "/screen" if id_ else ""
            data = sessions.ask_of(id_ or "screen", place, columns=columns, rows=rows, colours=colours)
    if missed is None:
        _show(data, as_json)
        return
    output.narrate(f"rookery: it did not come; seen last:\n{output.foreign(missed['seen'] or '', sys.stderr)}")
    if missed["note"]:
        output.narrate(visible(missed["note"]))
    sys.exit(FAILED if missed["closed"] else TIMED_OUT)


def size_of(given: str | None) -> tuple[str | None, str | None]:
    """Columns and rows, as they stand in a query."""
    if given is None:
        return None, None
    columns, cross, rows = given.lower().partition("x")
    if not (cross and columns.isdecimal() and rows.isdecimal()):
        raise click.UsageError(f"{given!r} is no size; write columns and rows, such as 160x50")
    return columns, rows


def _missed(sessions: Sessions, id_: str, pattern: str, timeout: float) -> Record | None:
    """What there was instead, if the pattern does not come."""
    body = {"for": "screen", "pattern": pattern, "timeout": timeout * 1000}
    told: Record = json.loads(sessions.ask_of(id_, "/wait", method="POST", body=body))
    return None if told["found"] else told


def _show(data: bytes, as_json: bool) -> None:
    told: Record = json.loads(data)
    if as_json:
        output.answer_json(data)
        return
    output.answer(output.foreign(told["text"]))
    if told["source"] != "terminal":
        output.narrate("this is a rendering of the conversation")
    if told["note"]:
        output.narrate(visible(told["note"]))
