"""`rookery session new`, `abort` and `close`."""

import json
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent_telling import PATIENT, telling
from rookery.cli.session_names import SESSION, Sessions, common
from rookery.cli.visible import visible
from rookery.cli.ws_names import NAME

_NEW = """\b
Examples:
  rookery session new
  rookery session new fix-login --agent plan
  ID=$(rookery session new fix-login)
"""


@click.command(epilog=_NEW)
@NAME
@click.option("--agent", metavar="AGENT", help="An agent of OpenCode, such as build or plan, or an alias of yours.")
@click.option("--model", metavar="MODEL", help="As provider/model; default: the one that OpenCode takes.")
@click.option("--title", metavar="TEXT", help="Its title.")
@common
def new(
    name: str | None, agent: str | None, model: str | None, title: str | None, as_json: bool, no_start: bool
) -> None:
    """Begin a session in a workspace.

    NAME is the current folder's workspace if it is left out. Its agent is started if it does not run. Prints the id.
    """
    sessions = Sessions(no_start, PATIENT)
    one = sessions.known.one(name)
    asked = {"directory": one["path"], "agent": agent, "model": model, "title": title}
    with telling(sessions.known, one, silent=as_json):
        data = sessions.ask("POST", "", {key: value for key, value in asked.items() if value is not None})
    if as_json:
        output.answer_json(data)
        return
    made: dict[str, Any] = json.loads(data)
    for note in made["notes"]:
        output.narrate(visible(note))
    output.answer(made["id"])


@click.command(epilog="\b\nExamples:\n  rookery session abort fix-login\n")
@SESSION
@common
def abort(session: str, as_json: bool, no_start: bool) -> None:
    """End the turn that runs in a session.

    The session stays open, and takes the next message.
    """
    sessions = Sessions(no_start)
    data = sessions.ask_of(sessions.id_of(session), "/abort", method="POST")
    if as_json:
        output.answer_json(data)
    else:
        output.answer(f"{json.loads(data)['id']} is {json.loads(data)['status']}")


@click.command(epilog="\b\nExamples:\n  rookery session close fix-login\n  rookery session close ses_1a2b --delete\n")
@SESSION
@click.option("--delete", is_flag=True, help="Delete its history too.")
@common
def close(session: str, delete: bool, as_json: bool, no_start: bool) -> None:
    """Close a session.

    Its turn ends, and whatever waits for it. OpenCode keeps its history, unless --delete is given.
    """
    sessions = Sessions(no_start)
    data = sessions.ask_of(sessions.id_of(session), method="DELETE", delete="true" if delete else None)
    if as_json:
        output.answer_json(data)
    else:
        told = json.loads(data)
        output.answer(f"{told['id']} is closed" + (", and its history deleted" if told["deleted"] else ""))
