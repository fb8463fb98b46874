"""`rookery session screenshot`."""

import base64
import json
import os
import sys
from pathlib import Path

import click

from rookery.cli import output
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.cli.session.common import OPTIONAL_SESSION_ARGUMENT, JsonObject, SessionClient, session_options
from rookery.cli.session.screen import parse_size
from rookery.daemon_client.failure import Failure

_EPILOG = """\b
Examples:
  rookery session screenshot
  rookery session screenshot fix-login -o login.svg
  rookery session screenshot fix-login --size 160x50 --scale 2 -o - > screen.png
"""


@click.command(epilog=_EPILOG)
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
