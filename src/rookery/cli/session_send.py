"""`rookery session send`."""

import json
import sys

import click

from rookery.cli import output
from rookery.cli.failure import FAILED, TIMED_OUT
from rookery.cli.session_names import SESSION, Record, Sessions, common, timeout as timeout_option
from rookery.cli.session_tool import run_line
from rookery.cli.visible import visible
from rookery.cli.waiting import waiting

_EPILOG = """\b
Examples:
  rookery session send fix-login "Run the tests, and fix what fails." --timeout 600
  git diff | rookery session send fix-login -
  rookery session send fix-login "Go on." --no-wait
"""


@click.command(epilog=_EPILOG)
@SESSION
@click.argument("text")
@click.option("--wait/--no-wait", default=True, help="Wait for the end of the turn, or return as soon as it is taken.")
@click.option("--agent", metavar="AGENT", help="The agent for this turn.")
@click.option("--model", metavar="MODEL", help="The model for this turn, as provider/model.")
@timeout_option(30.0)
@common
def send(
    session: str,
    text: str,
    wait: bool,
    agent: str | None,
    model: str | None,
    timeout: float,
    as_json: bool,
    no_start: bool,
) -> None:
    """Send a message, and wait for what comes of it.

    TEXT is the message, or - to read it from stdin. Prints what the assistant said; the tools that it ran stand on
    stderr. Exits with 1 if the turn failed, and with 124 if it goes on after the time limit.
    """
    content = sys.stdin.read() if text == "-" else text
    sessions = Sessions(no_start, timeout)
    asked = {"content": content, "wait": wait, "timeout": timeout * 1000, "agent": agent, "model": model}
    body = {key: value for key, value in asked.items() if value is not None}
    with waiting("its turn runs" if wait else "its agent takes the message", silent=as_json):
        data = sessions.ask_of(sessions.id_of(session), "/messages", method="POST", body=body)
    turn: Record = json.loads(data)
    if as_json:
        output.answer_json(data)
    else:
        _tell(turn)
    if turn["status"] in ("error", "timeout"):
        sys.exit(FAILED if turn["status"] == "error" else TIMED_OUT)


def _tell(turn: Record) -> None:
    for run in turn["parts"]:
        output.narrate(run_line(run))
    if turn["content"]:
        output.answer(output.foreign(turn["content"]))
    if turn["status"] == "taken":
        output.narrate(f"{turn['sessionId']} has it")
    if turn["status"] == "timeout":
        output.narrate("the turn goes on; wait for its end: rookery session wait " + f"{turn['sessionId']} --idle")
    if turn["error"]:
        output.narrate(f"rookery: the turn failed: {visible(turn['error'])}")
    if turn["note"]:
        output.narrate(visible(turn["note"]))
    for ask in turn["asks"]:
        output.narrate(f"it asks: {visible(ask['text'])} (rookery session answer {ask['id']})")
