"""The root command. Groups are imported when they are used, so that `--help` costs little more than `import click`."""

import os
import sys

import click

from rookery import __version__
from rookery.cli.lazy import LazyGroup

# Name -> module and the line that `--help` shows; a test compares it with the command's own.
COMMANDS = {
    "up": ("rookery.cli.up", "Start the daemon and register a repository."),
    "down": ("rookery.cli.up", "Stop the daemon, and everything it started."),
    "status": ("rookery.cli.status", "Show the daemon, workspaces, agents and servers."),
    "doctor": ("rookery.cli.handover", "Check this machine, one row a check, changing nothing."),
    "logs": ("rookery.cli.logs", "Show the daemon's log."),
    "demo": ("rookery.cli.demo", "See it work: two agents on a throw-away project."),
    "project": ("rookery.cli.project", "The repositories that Rookery knows."),
    "ws": ("rookery.cli.ws", "Workspaces: a worktree for every task."),
    "agent": ("rookery.cli.agent", "Agents: an OpenCode in every workspace."),
    "session": ("rookery.cli.session", "Sessions: conversations of agents, driven from outside."),
    "boulder": ("rookery.cli.boulder", "Boulder: tells sessions that have stopped with work left to go on."),
    "plugin": ("rookery.cli.plugin", "Plugins: what they do, what they tell, and what they can be told."),
    "mcp": ("rookery.cli.mcp", "The MCP servers behind Rookery, of this checkout or of everywhere."),
    "guard": ("rookery.cli.guard", "What the user has approved of what repositories bring along."),
    "client": ("rookery.cli.client", "Configs for the programs that connect to Rookery."),
    "bridge": ("rookery.cli.bridge", "MCP over stdin and stdout, for clients that speak only that."),
    "model": ("rookery.cli.model", "The scripted model: plays a script, so that agents run offline."),
    "config": ("rookery.cli.handover", "Show and change settings."),
    "completion": ("rookery.cli.completion", "Print a completion script for a shell."),
}

EPILOG = """\b
Examples:
  rookery demo           see it work, on a throw-away project
  rookery up -d          start the daemon in the background, on this repository
  rookery status         what is running
  rookery doctor         what is missing on this machine
  rookery ws create x    a workspace of its own for a task
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rookery")
def cli() -> None:
    """Rookery runs many coding agents side by side, behind one MCP control plane."""


def _stands_somewhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib costs as much as click
    except FileNotFoundError:
        return False
    return True


def main() -> None:
    """The `rookery` command: errors as one line with a remedy, exit codes as documented."""
    from rookery.cli.failure import Failure, report

    stdout = sys.stdout
    try:
        code = cli.main(prog_name="rookery", standalone_mode=False)
    except Failure as failure:
        sys.exit(report(failure))
    except click.ClickException as error:
        if "--json" in sys.argv:
            sys.exit(report(Failure("usage", error.format_message(), "see --help", error.exit_code)))
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except FileNotFoundError:
        # A shell may stand in a workspace that was deleted since.
        if _stands_somewhere():
            raise
        told = "the current folder does not exist any more"
        sys.exit(report(Failure("repository-not-found", told, "go to another one")))
    except SystemExit:
        # Where whoever read our output has gone, click changes the stream and ends with 1.
        if sys.stdout is stdout:
            raise
        # Flushing at exit would only fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)
