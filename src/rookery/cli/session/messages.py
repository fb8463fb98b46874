"""`rookery session messages`."""

import json
from collections.abc import Iterator

import click

from rookery.cli import output
from rookery.cli.output import visible
from rookery.cli.session.common import (
    SESSION_ARGUMENT,
    JsonObject,
    SessionClient,
    format_query_time,
    format_time,
    session_options,
    since_option,
)
from rookery.cli.session.tool import describe_tool_run

_EPILOG = """\b
Examples:
  rookery session messages fix-login
  rookery session messages fix-login --since 10m
  rookery session messages fix-login --before msg_1a2b
  rookery session messages fix-login --json | jq -r '.messages[-1].content'
"""
_LIMIT = 50


@click.command(epilog=_EPILOG)
@SESSION_ARGUMENT
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    default=_LIMIT,
    show_default=True,
    help="Maximum number of messages; the newest are shown.",
)
@since_option
@click.option("--before", metavar="ID", help="Show messages before the one with this id.")
@session_options
def messages(session: str, limit: int, since: float | None, before: str | None, as_json: bool, no_start: bool) -> None:
    """Show the messages of a session.

    Shows the newest messages in chronological order, with the tools that each one ran. If older messages are omitted,
    the command that shows them is printed to stderr.
    """
    sessions = SessionClient(no_start)
    id_ = sessions.resolve_id(session)
    data = sessions.request_session(id_, "/messages", limit=str(limit), since=format_query_time(since), before=before)
    if as_json:
        output.write_json(data)
        return
    page: JsonObject = json.loads(data)
    if page["messages"]:
        output.write("\n\n".join(map(_format_message, page["messages"])))
    else:
        output.write_note("no messages")
    if page["before"]:
        more = ["-n", str(limit)] if limit != _LIMIT else []
        words = ["rookery", "session", "messages", id_, "--before", page["before"], *more]
        output.write_note(f"older messages are omitted; show them: {' '.join(words)}")


def _format_message(message: JsonObject) -> str:
    head = output.paint(f"{message['role']}  {format_time(message['time'])}", "bold")
    error = [output.paint(visible(f"failed: {message['error']}"), "red")] if message["error"] else []
    return "\n".join([head, *_list_parts(message), *error])


def _list_parts(message: JsonObject) -> Iterator[str]:
    """Yield the text of a message in pieces, with each tool run after the text that preceded it."""
    content = message["content"]
    position = 0
    for run in [*message["parts"], None]:
        until = max(position, run["offset"] or 0) if run is not None else len(content)
        if text := content[position:until].removeprefix("\n" if position else ""):
            yield output.visible_lines(text)
        position = until
        if run is not None:
            yield output.paint(describe_tool_run(run), "dim")
