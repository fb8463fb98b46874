"""`rookery session asks` and `answer`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.session_names import ANY_SESSION, Record, Sessions, common
from rookery.cli.visible import visible
from rookery.cli.ws_names import quoted

_ANSWER = """\b
Examples:
  rookery session answer per_1a2b once
  rookery session answer per_1a2b reject --message "Use the test database instead."
  rookery session answer que_3c4d "Yes, both"
"""
_HEADS = ["ASK", "WORKSPACE", "SESSION", "KIND", "WHAT", "ANSWERS"]
_REPLIES = ("once", "always", "reject")


@click.command(epilog="\b\nExamples:\n  rookery session asks\n  rookery session asks fix-login --json\n")
@ANY_SESSION
@common
def asks(session: str | None, as_json: bool, no_start: bool) -> None:
    """List what sessions wait for you to answer.

    Permissions and questions, of one session or of all. Nothing is ever answered by itself.
    """
    sessions = Sessions(no_start)
    id_ = sessions.id_or_none(session)
    data = sessions.ask_of(id_ or "asks", "/asks" if id_ else "")
    found: list[Record] = json.loads(data)
    if as_json:
        output.answer_json(data)
    elif found:
        output.answer(output.table([_row(one) for one in found], _HEADS))
    else:
        output.answer("nothing is asked")


@click.command(epilog=_ANSWER)
@click.argument("ask")
@click.argument("words", nargs=-1, metavar="REPLY...")
@click.option("--message", metavar="TEXT", help="With reject: what the model is told, so that it goes on.")
@click.option("--answers", metavar="JSON", help="To questions: for each one the list of labels, as JSON.")
@common
def answer(
    ask: str, words: tuple[str, ...], message: str | None, answers: str | None, as_json: bool, no_start: bool
) -> None:
    """Answer what a session asks.

    A permission is answered with once, always or reject. Questions are answered with a label for each of them, or
    declined with reject. Refused to agents, and to whatever else Rookery has started.
    """
    body: dict[str, Any] = {"message": message} if message is not None else {}
    if answers is not None:
        body["answers"] = _listed(answers)
    elif len(words) == 1 and words[0] in _REPLIES:
        body["reply"] = words[0]
    elif words:
        body["answers"] = [[word] for word in words]
    else:
        raise click.UsageError("say what to answer: once, always or reject, or a label for each question")
    data = Sessions(no_start).ask("POST", f"/asks/{quoted(ask)}", body)
    if as_json:
        output.answer_json(data)
    else:
        output.answer(f"answered: {visible(json.loads(data)['text'])}")


def _listed(text: str) -> list[list[str]]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--answers is no JSON: {error}") from None
    return found


def _row(one: Record) -> list[str]:
    choices = "; ".join(", ".join(each) for each in one["options"])
    told = [one["id"], one["workspace"], one["sessionId"], one["kind"], one["text"], choices]
    return [visible(cell) for cell in told]
