"""`rookery session asks` and `answer`."""

import json
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.output import Column, visible
from rookery.cli.session.common import OPTIONAL_SESSION_ARGUMENT, JsonObject, SessionClient, session_options
from rookery.cli.ws.common import quote_segment

_ANSWER = """\b
Examples:
  rookery session answer per_1a2b once
  rookery session answer per_1a2b reject --message "Use the test database instead."
  rookery session answer que_3c4d "Yes, both"
"""
_HEADS = [
    Column("ASK", output.VITAL, None),
    Column("WORKSPACE", min_width=12),
    Column("SESSION", output.MINOR, None),
    Column("KIND", output.MINOR),
    Column("WHAT", output.VITAL, 20, wraps=True),
    Column("ANSWERS", output.VITAL, 12, wraps=True),
]
_REPLIES = ("once", "always", "reject")


@click.command(epilog="\b\nExamples:\n  rookery session asks\n  rookery session asks fix-login --json\n")
@OPTIONAL_SESSION_ARGUMENT
@session_options
def asks(session: str | None, as_json: bool, no_start: bool) -> None:
    """List the questions that wait for your answer.

    Lists the permission requests and questions of one session or of all. Rookery never answers them itself.
    """
    sessions = SessionClient(no_start)
    id_ = sessions.resolve_optional_id(session)
    data = sessions.request_session(id_ or "asks", "/asks" if id_ else "")
    open_asks: list[JsonObject] = json.loads(data)
    if as_json:
        output.write_json(data)
    elif open_asks:
        short = _short_ids(sessions, open_asks)
        output.write(output.format_table([_row(ask, short) for ask in open_asks], _HEADS))
    else:
        output.write("no question is waiting")


def _short_ids(sessions: SessionClient, open_asks: list[JsonObject]) -> dict[str, str]:
    """Return how the ids of asks and of their sessions are shown: shortened on a terminal, unique among open ones."""
    all_asks: list[JsonObject] = json.loads(sessions.request_session("asks")) if sys.stdout.isatty() else []
    asks = output.shorten_ids((ask["id"] for ask in open_asks), (ask["id"] for ask in all_asks))
    return asks | sessions.short_ids(ask["sessionId"] for ask in open_asks)


@click.command(epilog=_ANSWER)
@click.argument("ask")
@click.argument("words", nargs=-1, metavar="REPLY...")
@click.option("--message", metavar="TEXT", help="With reject: a message to the model, so that it continues.")
@click.option("--answers", metavar="JSON", help="For questions: a list of labels for each question, as JSON.")
@session_options
def answer(
    ask: str, words: tuple[str, ...], message: str | None, answers: str | None, as_json: bool, no_start: bool
) -> None:
    """Answer a question of a session.

    Answer a permission request with once, always or reject. Answer questions with one label each, or decline them
    with reject. Agents and other processes that Rookery started cannot use this command.
    """
    body: dict[str, Any] = {"message": message} if message is not None else {}
    if answers is not None:
        body["answers"] = _parse_answers(answers)
    elif len(words) == 1 and words[0] in _REPLIES:
        body["reply"] = words[0]
    elif words:
        body["answers"] = [[word] for word in words]
    else:
        raise click.UsageError("give an answer: once, always or reject, or a label for each question")
    data = SessionClient(no_start).request("POST", f"/asks/{quote_segment(ask)}", body)
    if as_json:
        output.write_json(data)
    else:
        output.write(f"answered: {visible(json.loads(data)['text'])}")


def _parse_answers(text: str) -> list[list[str]]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--answers is not JSON: {error}") from None
    return parsed


def _row(ask: JsonObject, short: dict[str, str]) -> list[str]:
    choices = "; ".join(", ".join(labels) for labels in ask["options"])
    return [short[ask["id"]], ask["workspace"], short[ask["sessionId"]], ask["kind"], ask["text"], choices]
