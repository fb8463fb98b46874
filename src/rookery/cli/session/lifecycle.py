"""`rookery session new`, `abort` and `close`."""

import json
import os
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent.progress import START_SECONDS, show_agent_progress
from rookery.cli.output import visible
from rookery.cli.session.common import SESSION_ARGUMENT, SessionClient, session_options
from rookery.cli.ws.common import WORKSPACE_ARGUMENT

_NEW = """\b
Examples:
  rookery session new
  rookery session new fix-login --agent plan
  rookery session new ./docs
  ID=$(rookery session new fix-login)
"""


@click.command(epilog=_NEW)
@WORKSPACE_ARGUMENT
@click.option("--agent", metavar="AGENT", help="The OpenCode agent, such as build or plan, or one of your aliases.")
@click.option("--model", metavar="MODEL", help="The model, as provider/model; default: OpenCode's choice.")
@click.option("--title", metavar="TEXT", help="The title of the session.")
@session_options
def new(
    name: str | None, agent: str | None, model: str | None, title: str | None, as_json: bool, no_start: bool
) -> None:
    """Start a session in a workspace.

    NAME defaults to the workspace of the current folder. A path, such as ./src, is a folder in a workspace. The agent
    is started if it does not run. Prints the session id.
    """
    sessions = SessionClient(no_start, seconds=START_SECONDS)
    folder = os.path.realpath(name) if name is not None and _is_path(name) else None
    workspace = sessions.workspaces.find_by_folder(folder) if folder is not None else sessions.workspaces.find(name)
    options = {"directory": folder or workspace["path"], "agent": agent, "model": model, "title": title}
    with show_agent_progress(sessions.workspaces, workspace, silent=as_json):
        data = sessions.request("POST", "", {key: value for key, value in options.items() if value is not None})
    if as_json:
        output.write_json(data)
        return
    session: dict[str, Any] = json.loads(data)
    for note in session["notes"]:
        output.write_note(visible(note))
    output.write(session["id"])


def _is_path(name: str) -> bool:
    """Return whether the name is written as a path. `project/name` is the name of a workspace."""
    return name.startswith(("/", "./", "../")) or name in (".", "..")


@click.command(epilog="\b\nExamples:\n  rookery session abort fix-login\n")
@SESSION_ARGUMENT
@session_options
def abort(session: str, as_json: bool, no_start: bool) -> None:
    """Stop the running turn of a session.

    The session stays open for the next message.
    """
    sessions = SessionClient(no_start)
    data = sessions.request_session(sessions.resolve_id(session), "/abort", method="POST")
    if as_json:
        output.write_json(data)
    else:
        output.write(f"{json.loads(data)['id']} is {json.loads(data)['status']}")


@click.command(epilog="\b\nExamples:\n  rookery session close fix-login\n  rookery session close ses_1a2b --delete\n")
@SESSION_ARGUMENT
@click.option("--delete", is_flag=True, help="Delete its history too.")
@session_options
def close(session: str, delete: bool, as_json: bool, no_start: bool) -> None:
    """Close a session.

    This ends its running turn and all waits for it. OpenCode keeps its history, unless --delete is given.
    """
    sessions = SessionClient(no_start)
    data = sessions.request_session(sessions.resolve_id(session), method="DELETE", delete="true" if delete else None)
    if as_json:
        output.write_json(data)
    else:
        result = json.loads(data)
        output.write(f"{result['id']} is closed" + (", and its history deleted" if result["deleted"] else ""))
