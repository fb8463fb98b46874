"""`rookery session screen` and `rookery session screenshot`."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.cli.session.common import (
    OPTIONAL_SESSION_ARGUMENT,
    JsonObject,
    SessionClient,
    session_options,
    timeout_option,
)
from rookery.daemon_client.failure import FAILED, TIMED_OUT, Failure

_SCREEN_EPILOG = """\
KEYS are names such as enter, esc, tab, up, f1, ctrl+p and shift+tab, or single characters, separated by spaces.
--text is typed first, then --paste is pasted, then --keys are pressed.

\b
Examples:
  rookery session screen
  rookery session screen fix-login --size 160x50
  rookery session screen fix-login --keys ctrl+p --wait Commands
  rookery session screen fix-login --text "Run the tests." --keys enter --wait "esc interrupt"
"""

_SCREENSHOT_EPILOG = """\b
Examples:
  rookery session screenshot
  rookery session screenshot fix-login -o login.svg
  rookery session screenshot fix-login --size 160x50 --scale 2 -o - > screen.png
"""


@click.command(epilog=_SCREEN_EPILOG)
@OPTIONAL_SESSION_ARGUMENT
@click.option("--text", default="", help="Type this.")
@click.option("--paste", default="", metavar="TEXT", help="Paste this; it may have several lines.")
@click.option("--keys", default="", help="Press these keys.")
@click.option("--wait", "pattern", metavar="PATTERN", help="Wait until the screen matches this regular expression.")
@click.option("--size", metavar="CxR", help="Columns and rows of the terminal, such as 160x50.")
@click.option("--colours", is_flag=True, help="With --json: include the rows as runs of coloured text.")
@timeout_option(30.0)
@session_options
def screen(
    session: str | None, pattern: str | None, timeout: float, as_json: bool, no_start: bool, **options: Any
) -> None:
    """Show the screen of a session.

    SESSION defaults to the session that was active last. The screen is OpenCode's own terminal, which Rookery runs in
    the background. If there is no terminal, Rookery renders the conversation instead.
    """
    sessions = SessionClient(no_start, timeout if pattern is not None else 0.0)
    columns, rows = parse_size(options["size"])
    typed = {"text": options["text"], "paste": options["paste"], "keys": options["keys"].split()}
    id_ = sessions.resolve_optional_id(session)
    data = b""
    if id_ is None and (any(typed.values()) or pattern is not None):
        raise click.UsageError("name a session: its id, or a dot for the workspace of the current folder")
    with show_progress("drawing the screen" if pattern is None else "waiting", silent=as_json):
        if any(typed.values()):
            size = {name: int(value) for name, value in (("columns", columns), ("rows", rows)) if value is not None}
            data = sessions.request_session(id_ or "", "/keys", method="POST", body={**typed, **size})
        mismatch = None if pattern is None else _wait_for_pattern(sessions, id_ or "", pattern, timeout)
        if mismatch is None and (not data or pattern is not None):
            colours = "true" if options["colours"] else None
            rest = "/screen" if id_ else ""
            data = sessions.request_session(id_ or "screen", rest, columns=columns, rows=rows, colours=colours)
    if mismatch is None:
        _write_screen(data, as_json)
        return
    output.write_note(f"rookery: no match; last seen:\n{output.visible_lines(mismatch['seen'] or '', sys.stderr)}")
    if mismatch["note"]:
        output.write_note(visible(mismatch["note"]))
    sys.exit(FAILED if mismatch["closed"] else TIMED_OUT)


def parse_size(size: str | None) -> tuple[str | None, str | None]:
    """Return columns and rows as text for a query; both None without a size."""
    if size is None:
        return None, None
    columns, cross, rows = size.lower().partition("x")
    if not (cross and columns.isdecimal() and rows.isdecimal()):
        raise click.UsageError(f"{size!r} is not a size; write columns and rows, such as 160x50")
    return columns, rows


def _wait_for_pattern(sessions: SessionClient, id_: str, pattern: str, timeout: float) -> JsonObject | None:
    """Wait for the pattern. Return None if it appears, else the daemon's result with what was seen last."""
    body = {"for": "screen", "pattern": pattern, "timeout": timeout * 1000}
    result: JsonObject = json.loads(sessions.request_session(id_, "/wait", method="POST", body=body))
    return None if result["found"] else result


def _write_screen(data: bytes, as_json: bool) -> None:
    content: JsonObject = json.loads(data)
    if as_json:
        output.write_json(data)
        return
    output.write(output.visible_lines(content["text"]))
    if content["source"] != "terminal":
        output.write_note("this is a rendering of the conversation")
    if content["note"]:
        output.write_note(visible(content["note"]))


@click.command(epilog=_SCREENSHOT_EPILOG)
@OPTIONAL_SESSION_ARGUMENT
@click.option("-o", "--output", "file", metavar="FILE", help="The output file, or - for stdout; default: SESSION.png.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["png", "svg"]),
    help="The format; default: by the suffix of FILE, else png.",
)
@click.option("--size", metavar="CxR", help="Columns and rows of the terminal, such as 160x50.")
@click.option("--scale", type=click.IntRange(1, 3), default=1, show_default=True, help="The scale factor.")
@session_options
def screenshot(
    session: str | None,
    file: str | None,
    format_: str | None,
    size: str | None,
    scale: int,
    as_json: bool,
    no_start: bool,
) -> None:
    """Take a picture of a session's screen.

    SESSION defaults to the session that was active last. The picture shows OpenCode's own terminal in its real colours.
    If there is no terminal, it shows a rendering of the conversation, and says so. Prints the name of the file.
    """
    columns, rows = parse_size(size)
    format_ = format_ or ("svg" if file is not None and file.lower().endswith(".svg") else "png")
    if file and not Path(file).parent.is_dir():
        # Reported before the picture is made, which may take long.
        raise _unwritable_failure(Path(file), "the folder does not exist")
    sessions = SessionClient(no_start, 0.0)
    id_ = sessions.resolve_optional_id(session)
    with show_progress("drawing the screen", silent=as_json):
        data = sessions.request_session(
            id_ or "screenshot",
            "/screenshot" if id_ else "",
            format=format_,
            columns=columns,
            rows=rows,
            scale=str(scale),
            json="true",
        )
    result: JsonObject = json.loads(data)
    picture = base64.b64decode(result.pop("data"))
    if result["note"] and not as_json:
        output.write_note(visible(result["note"]))
    if file == "-":
        sys.stdout.buffer.write(picture)
        sys.stdout.buffer.flush()
        return
    result["savedTo"] = _write_picture(Path(file or f"{result['sessionId']}.{format_}"), picture)
    if as_json:
        output.write_json(json.dumps(result).encode())
    else:
        output.write(visible(result["savedTo"]))


def _write_picture(path: Path, data: bytes) -> str:
    from rookery.system.causes import explain_os_error
    from rookery.system.fs.atomic import write_atomic

    try:
        write_atomic(path, data)
    except OSError as error:
        explanation = explain_os_error(error)
        raise _unwritable_failure(path, explanation.message if explanation is not None else error.strerror) from None
    return os.fspath(path)


def _unwritable_failure(path: Path, reason: str | None) -> Failure:
    return Failure("file-unwritable", f"{path} cannot be written: {reason}", "choose another -o")
