"""`rookery agent attach`."""

import json
import os
import signal
import sys
from typing import Any

import click

from rookery.cli import output
from rookery.cli.agent_telling import PATIENT, telling
from rookery.cli.failure import Failure
from rookery.cli.ws_names import NAME, Known

_EPILOG = """\
Leave it with Ctrl-C or /exit; the agent goes on.

\b
Examples:
  rookery agent attach fix-login
  rookery agent attach fix-login --new
  rookery agent attach --session ses_1a2b3c
"""

# From the folder that it is started in, OpenCode's interface loads themes, keys and plugins, which are code that nobody
# has approved; and it rewrites an `opencode.json` there that has settings of older versions in it. So it is started far
# from the workspace. The agent knows its folder by itself.
_FOLDER = "/"
_OURS = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


@click.command(epilog=_EPILOG)
@NAME
@click.option("--session", metavar="ID", help="Open this session.")
@click.option("--new", is_flag=True, help="Open no session: begin with an empty one.")
@click.option("--project", metavar="PROJECT", help="Of this project, by id or name.")
@click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon.")
def attach(name: str | None, session: str | None, new: bool, project: str | None, no_start: bool) -> None:
    """Open the agent of a workspace in this terminal.

    This is OpenCode's own interface, connected to the agent that Rookery runs, at the session of the first prompt, or
    else the one that was used last. An agent that sleeps or is stopped is started.
    """
    if session and new:
        raise click.UsageError("--new opens no session: leave --session out")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this is for a terminal; for programs there is the HTTP interface")
    known = Known(no_start, project, PATIENT)
    one = known.one(name)
    with telling(known, one):
        told: dict[str, Any] = json.loads(known.ask_of(one, "agent", "attach", session=session))
    # It takes seconds until it draws something, and it does not say how to leave.
    output.narrate("OpenCode's interface starts ... leave it with Ctrl-C, and the agent goes on")
    words = ["--session", told["session"]] if told["session"] and not new else []
    _become([told["opencode"], "attach", told["url"], *words], _environment(told["password"]))


def _environment(password: str) -> dict[str, str]:
    """The user's own, with the password: what stands on a command line, everybody can read."""
    given = {"OPENCODE_SERVER_USERNAME": "opencode", "OPENCODE_SERVER_PASSWORD": password}
    return {**os.environ, **_OURS, **given}


def _become(command: list[str], environment: dict[str, str]) -> None:
    """This process is the interface from here on, so that signals and terminal are its own."""
    sys.stdout.flush()
    # Python ignores it, and what is ignored stays so in the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.chdir(_FOLDER)
        os.execve(command[0], command, environment)  # noqa: S606 - the OpenCode that the agent runs
    except OSError as error:
        told = f"{command[0]} cannot be run: {error.strerror}"
        raise Failure("spawn-failed", told, "bring it anew: rookery agent install --force") from None
