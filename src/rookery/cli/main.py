"""The root command. Groups are imported when they are used, so that `--help` costs little more than `import click`."""

import os
import sys

import click

from rookery import __version__
from rookery.cli.groups import LazyGroup

# Name -> module, and the line that `--help` shows. A test compares the line with the command's own help.
COMMANDS = {
    "up": ("rookery.cli.commands.up", "Start the daemon and register a repository."),
    "down": ("rookery.cli.commands.up", "Stop the daemon, and everything it started."),
    "status": ("rookery.cli.commands.status", "Show the daemon, workspaces, agents and servers."),
    "doctor": ("rookery.cli.commands.doctor", "Check this machine, without changing anything."),
    "logs": ("rookery.cli.commands.logs", "Show the daemon's log."),
    "demo": ("rookery.cli.commands.demo", "Run a demo: two agents on a temporary project."),
    "project": ("rookery.cli.commands.project", "Projects: the repositories that are registered with Rookery."),
    "ws": ("rookery.cli.ws.group", "Workspaces: a worktree for every task."),
    "agent": ("rookery.cli.agent.group", "Agents: an OpenCode in every workspace."),
    "session": ("rookery.cli.session.group", "Sessions: read and control the conversations of agents."),
    "boulder": ("rookery.cli.commands.boulder", "Boulder: keeps sessions going that stopped with work left."),
    "plugin": ("rookery.cli.commands.plugin", "Plugins: list them, show their state, run their actions."),
    "mcp": ("rookery.cli.mcp.group", "MCP servers: those of this checkout, or of all projects."),
    "guard": ("rookery.cli.guard.group", "Approvals, pins and scans of definitions, and the audit."),
    "client": ("rookery.cli.commands.client", "Configs for the programs that connect to Rookery."),
    "bridge": ("rookery.cli.commands.bridge", "Serve MCP over stdio, for clients that support only stdio."),
    "model": ("rookery.cli.commands.model", "The scripted model: replays a script, so that agents run offline."),
    "config": ("rookery.cli.commands.config", "Show and change settings."),
    "completion": ("rookery.cli.commands.completion", "Print a completion script for a shell."),
}

EPILOG = """\b
Examples:
  rookery demo           run a demo on a temporary project
  rookery up -d          start the daemon in the background, on this repository
  rookery status         show what is running
  rookery doctor         check this machine
  rookery ws create x    create a workspace for a task
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rookery")
def cli() -> None:
    """Rookery runs many coding agents side by side, behind one MCP control plane."""


def _has_current_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib costs as much as click
    except FileNotFoundError:
        return False
    return True


def main() -> None:
    """Run the `rookery` command. Report errors as one line with a remedy, and exit with the documented code."""
    from rookery.daemon_client.failure import Failure, make_os_failure, report_failure

    stdout = sys.stdout
    try:
        code = cli.main(prog_name="rookery", standalone_mode=False)
    except Failure as failure:
        sys.exit(report_failure(failure))
    except click.ClickException as error:
        if "--json" in sys.argv:
            sys.exit(report_failure(Failure("usage", error.format_message(), "see --help", error.exit_code)))
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except OSError as error:
        # The current folder may be a workspace that has been deleted.
        if isinstance(error, FileNotFoundError) and not _has_current_folder():
            message = "the current folder does not exist any more"
            sys.exit(report_failure(Failure("repository-not-found", message, "change to another folder")))
        failure = make_os_failure(error)
        if failure is None:
            raise
        sys.exit(report_failure(failure))
    except SystemExit:
        # If the reader of stdout is gone, click replaces the stream and exits with 1.
        if sys.stdout is stdout:
            raise
        # Flushing the closed pipe at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)
