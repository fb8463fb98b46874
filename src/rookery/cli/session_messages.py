"""`rookery session messages`."""

import json

import click

from rookery.cli import output
from rookery.cli.session_names import SESSION, Record, Sessions, common
from rookery.cli.session_times import as_query, clock, since as since_option
from rookery.cli.session_tool import run_line
from rookery.cli.visible import visible

_EPILOG = """\b
Examples:
  rookery session messages fix-login
  rookery session messages fix-login --since 10m
  rookery session messages fix-login --json | jq -r '.messages[-1].content'
"""


@click.command(epilog=_EPILOG)
@SESSION
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many, the newest.")
@since_option
@common
def messages(session: str, limit: int, since: float | None, as_json: bool, no_start: bool) -> None:
    """Show what was said in a session.

    The newest messages, in the order they were made, with the tools that each one ran.
    """
    sessions = Sessions(no_start)
    data = sessions.ask_of(sessions.id_of(session), "/messages", limit=str(limit), since=as_query(since))
    if as_json:
        output.answer_json(data)
        return
    told: Record = json.loads(data)
    if told["messages"]:
        output.answer("\n\n".join(map(_shown, told["messages"])))
    else:
        output.narrate("there are none")
    if told["note"]:
        output.narrate(visible(told["note"]))


def _shown(message: Record) -> str:
    head = output.paint(f"{message['role']}  {clock(message['time'])}", "bold")
    runs = [output.paint(run_line(run), "dim") for run in message["parts"]]
    error = [output.paint(visible(f"failed: {message['error']}"), "red")] if message["error"] else []
    content = [output.foreign(message["content"])] if message["content"] else []
    return "\n".join([head, *runs, *content, *error])
