"""`rookery agent attach` and `rookery agent password`."""

import contextlib
import json
import os
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent.progress import START_SECONDS, show_agent_progress
from rookery.cli.options import no_start_option, project_option
from rookery.cli.session.common import describe_ask
from rookery.cli.ws.common import WORKSPACE_ARGUMENT, WorkspaceClient, quote_segment, workspace_options
from rookery.daemon_client.failure import Failure

_EPILOG = """\
Leave with Ctrl-C or /exit. The agent keeps running.

\b
Examples:
  rookery agent attach fix-login
  rookery agent attach fix-login --new
  rookery agent attach --session ses_1a2b3c
"""

# OpenCode's interface loads themes, keys and plugins from the folder that it is started in, and plugins are code that
# nobody has approved. It also rewrites an `opencode.json` there that has settings of older versions. So it is started
# outside of the workspace. The agent knows its own folder.
_START_FOLDER = "/"
_USERNAME = "opencode"
# How long to wait for the daemon at most after the user has left the interface.
_LOOK_SECONDS = 30.0
_OVERRIDES = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}

_PASSWORD = """\b
Examples:
  rookery agent password fix-login
  curl -u "opencode:$(rookery agent password fix-login)" http://127.0.0.1:14001/session
"""


@click.command(epilog=_EPILOG)
@WORKSPACE_ARGUMENT
@click.option("--session", metavar="ID", help="Open this session.")
@click.option("--new", is_flag=True, help="Start with an empty session.")
@project_option
@no_start_option
def attach(name: str | None, session: str | None, new: bool, project: str | None, no_start: bool) -> None:
    """Open the agent of a workspace in this terminal.

    This runs OpenCode's own interface, connected to the agent that Rookery runs. It opens the session of the first
    prompt, or else the session that was used last. An agent that sleeps or is stopped is started.
    """
    if session and new:
        raise click.UsageError("--new and --session cannot be combined")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this command needs a terminal; programs can use the HTTP interface")
    client = WorkspaceClient(no_start, project, START_SECONDS)
    workspace = client.find(name)
    with show_agent_progress(client, workspace):
        access: dict[str, Any] = json.loads(client.request_workspace(workspace, "agent", "attach", session=session))
    # The interface takes seconds to draw something, and does not say how to leave it.
    output.write_note("starting OpenCode's interface ... leave it with Ctrl-C; the agent keeps running")
    session = access["session"] if not new else None
    words = ["--session", session] if session else []
    _note_asks(client, session)
    command = [access["opencode"], "attach", access["url"], *words]
    code = _run(command, _environment(access["password"], access["folders"]))
    # The request marks turns that finished meanwhile as seen. A daemon that has stopped meanwhile is not started.
    client.starts_daemon = False
    client.seconds = _LOOK_SECONDS
    with contextlib.suppress(Failure):
        client.request_workspace(workspace)
        _note_asks(client, session)
    sys.exit(code)


@click.command(epilog=_PASSWORD)
@WORKSPACE_ARGUMENT
@workspace_options
def password(name: str | None, project: str | None, as_json: bool, no_start: bool) -> None:
    """Print the password of a workspace's agent.

    The agent's OpenCode server accepts only requests with this password and the user name opencode. The password
    changes each time the agent starts. An agent that sleeps or is stopped is started. Processes that Rookery started
    cannot use this command. --json adds the address and the user name.
    """
    client = WorkspaceClient(no_start, project, START_SECONDS)
    workspace = client.find(name)
    with show_agent_progress(client, workspace, silent=as_json):
        access: dict[str, Any] = json.loads(client.request_workspace(workspace, "agent", "attach"))
    if as_json:
        result = {"url": access["url"], "username": _USERNAME, "password": access["password"]}
        output.write_json(json.dumps(result).encode())
    else:
        output.write(access["password"])


def _note_asks(client: WorkspaceClient, session: str | None) -> None:
    """Print what a session asks. OpenCode's interface shows only what is asked while it runs."""
    if session is not None:
        for ask in json.loads(client.request("GET", f"/api/sessions/{quote_segment(session)}/asks")):
            output.write_note(describe_ask(ask))


def _environment(password: str, folders: dict[str, str | None]) -> dict[str, str]:
    """Return the user's environment with the password, which every user could read on a command line.

    `folders` are the agent's: an agent with a home of its own, such as the demo's, leaves nothing in the user's.
    """
    credentials = {"OPENCODE_SERVER_USERNAME": _USERNAME, "OPENCODE_SERVER_PASSWORD": password}
    inherited = {name: value for name, value in os.environ.items() if name not in folders}
    overrides = {name: value for name, value in folders.items() if value is not None}
    return {**inherited, **overrides, **_OVERRIDES, **credentials}


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the interface until it ends, and return its exit code."""
    from rookery.system.errors import RookeryError
    from rookery.system.process.launch import run_in_foreground

    try:
        return run_in_foreground(command, _START_FOLDER, environment)
    except RookeryError as error:
        raise Failure(error.code, error.message, "reinstall it: rookery agent install --force") from None
