"""`rookery boulder status` and `log`."""

import json

import click

from rookery.cli import output
from rookery.cli.boulder_names import Boulder, told
from rookery.cli.session_names import ANY_SESSION, Record, common
from rookery.cli.session_times import clock
from rookery.cli.visible import visible

_HEADS = ["SESSION", "WORKSPACE", "STATUS", "SPENT", "LAST", "HELD BACK BY"]
_LOG_HEADS = ["WHEN", "WHAT", "SESSION", "NUMBER", "WHO", "WHY"]
_STYLES = {"ENFORCING": "green", "EXHAUSTED": "yellow", "STOPPED": "dim", "OFF": "dim", "PAUSED": "dim"}


@click.command(epilog="\b\nExamples:\n  rookery boulder status\n  rookery boulder status fix-login --json\n")
@ANY_SESSION
@common
def status(session: str | None, as_json: bool, no_start: bool) -> None:
    """Show how boulder stands to a session.

    Or to all that it looks after, if SESSION is left out.
    """
    asked = Boulder(no_start)
    id_ = asked.sessions.id_or_none(session)
    data = asked.act("status", sessionId=id_) if id_ is not None else asked.state()
    if as_json:
        output.answer_json(data)
        return
    found: Record = json.loads(data)
    if session is not None:
        output.answer(told(found))
    elif rows := list(found["sessions"].values()):
        styles = [_STYLES.get(one["status"]) for one in rows]
        output.answer(output.table([_row(one) for one in rows], _HEADS, styles, fit=True))
    else:
        output.narrate("boulder looks after no session: rookery boulder on")


@click.command(epilog="\b\nExamples:\n  rookery boulder log\n  rookery boulder log fix-login --limit 100 --json\n")
@ANY_SESSION
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many.")
@common
def log(session: str | None, limit: int, as_json: bool, no_start: bool) -> None:
    """Show what boulder did, and what was asked of it.

    Who did it, when, and why.
    """
    asked = Boulder(no_start)
    data = asked.act("log", sessionId=asked.sessions.id_or_none(session), limit=limit)
    rows: list[Record] = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif rows:
        output.answer(output.table([_line(one) for one in rows], _LOG_HEADS, fit=True))
    else:
        output.narrate("nothing yet")


def _row(one: Record) -> list[str]:
    gates = "; ".join(gate["reason"] for gate in one["gates"])
    spent = f"{one['iteration']} of {one['budget']}"
    cells = [one["sessionId"], one["workspace"], one["status"], spent, clock(one["lastEnforcement"]), gates]
    return [visible(cell) for cell in cells]


def _line(one: Record) -> list[str]:
    cells = [clock(one["at"]), one["what"], one["sessionId"], str(one["iteration"]), one["who"], one["why"]]
    return [visible(cell) for cell in cells]
