"""`rookery session screenshot`."""

import base64
import json
import os
import sys
from pathlib import Path

import click

from rookery.cli import output
from rookery.cli.failure import Failure
from rookery.cli.session_names import ANY_SESSION, Record, Sessions, common
from rookery.cli.session_screen import size_of
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

_EPILOG = """\b
Examples:
  rookery session screenshot
  rookery session screenshot fix-login -o login.svg
  rookery session screenshot fix-login --size 160x50 --scale 2 -o - > screen.png
"""


@click.command(epilog=_EPILOG)
@ANY_SESSION
@click.option("-o", "--output", "file", metavar="FILE", help="Where to; default: SESSION.png here; - is stdout.")
@click.option("--format", "format_", type=click.Choice(["png", "svg"]), help="Default: what FILE ends in, else png.")
@click.option("--size", metavar="CxR", help="Columns and rows of the terminal, such as 160x50.")
@click.option("--scale", type=click.IntRange(1, 3), default=1, show_default=True, help="How much larger.")
@common
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

    Of the session that was active last, if SESSION is left out. It is drawn as OpenCode's own terminal shows it, in its
    real colours; where there is no terminal, as a rendering of the conversation, which says so. Prints the file's name.
    """
    columns, rows = size_of(size)
    format_ = format_ or ("svg" if file is not None and file.lower().endswith(".svg") else "png")
    if file and not Path(file).parent.is_dir():
        # Said before the picture is made, which may take long.
        raise _unwritable(Path(file), "there is no such folder")
    sessions = Sessions(no_start)
    id_ = sessions.id_or_none(session)
    with waiting("its screen is drawn", silent=as_json):
        data = sessions.ask_of(
            id_ or "screenshot",
            "/screenshot" if id_ else "",
            format=format_,
            columns=columns,
            rows=rows,
            scale=str(scale),
            json="true",
        )
    told: Record = json.loads(data)
    picture = base64.b64decode(told.pop("data"))
    if told["note"] and not as_json:
        output.narrate(visible(told["note"]))
    if file == "-":
        sys.stdout.buffer.write(picture)
        sys.stdout.buffer.flush()
        return
    told["savedTo"] = _write(Path(file or f"{told['sessionId']}.{format_}"), picture)
    if as_json:
        output.answer_json(json.dumps(told).encode())
    else:
        output.answer(visible(told["savedTo"]))


def _write(path: Path, data: bytes) -> str:
    from rookery.system.files import write_atomic

    try:
        write_atomic(path, data)
    except OSError as error:
        raise _unwritable(path, error.strerror) from None
    return os.fspath(path)


def _unwritable(path: Path, why: str | None) -> Failure:
    return Failure("file-unwritable", f"{path} cannot be written: {why}", "choose another -o")
