"""`rookery agent logs`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.ws_names import NAME, Known, common

_EPILOG = """\b
Examples:
  rookery agent logs fix-login
  rookery agent logs -f -n 20 fix-login
"""


@click.command(epilog=_EPILOG)
@NAME
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), default=200, show_default=True, help="How many at most.")
@common
def logs(name: str | None, follow: bool, lines: int, project: str | None, as_json: bool, no_start: bool) -> None:
    """Show what the agent of a workspace printed.

    Of its present life and of earlier ones, also if it does not run now.
    """
    if follow and as_json:
        raise click.UsageError("--follow goes on for ever, and --json is one answer: leave one of them out")
    known = Known(no_start, project)
    data = known.ask_of(known.one(name), "agent", "logs", tail=str(lines))
    if as_json:
        output.answer_json(data)
        return
    told: dict[str, Any] = json.loads(data)
    if follow:
        _follow(told["path"], lines)
    elif told["lines"]:
        output.answer("\n".join(output.foreign(line) for line in told["lines"]))
    else:
        output.narrate("it has printed nothing yet")


def _follow(path: str, last: int) -> None:
    from pathlib import Path

    from rookery.system.following import follow

    follow(Path(path), last, lambda line: output.answer(output.foreign(line)))
