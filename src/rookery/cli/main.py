"""The root command. Groups are imported when they are used, so that `--help` costs little more than `import click`."""

import importlib
import os
import sys
from typing import Any

import click

from rookery import __version__

# Name -> module and the line that `--help` shows; a test compares it with the command's own.
COMMANDS = {
    "up": ("rookery.cli.up", "Start the daemon and register a repository."),
    "down": ("rookery.cli.up", "Stop the daemon, and everything it started."),
    "status": ("rookery.cli.status", "Show the daemon, workspaces, agents and servers."),
    "doctor": ("rookery.cli.handover", "Check this machine, one row a check, changing nothing."),
    "logs": ("rookery.cli.logs", "Show the daemon's log."),
    "project": ("rookery.cli.project", "The repositories that Rookery knows."),
    "mcp": ("rookery.cli.mcp", "The MCP servers behind Rookery, of this checkout or of everywhere."),
    "guard": ("rookery.cli.guard", "What the user has approved of what repositories bring along."),
    "config": ("rookery.cli.handover", "Show and change settings."),
    "completion": ("rookery.cli.completion", "Print a completion script for a shell."),
}

EPILOG = """\b
Examples:
  rookery up -d          start the daemon in the background, on this repository
  rookery status         what is running
  rookery doctor         what is missing on this machine
"""


class LazyGroup(click.Group):
    """A group that knows the names and summaries of its commands before it imports them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `rookery {near[0]}`?" if near else "see `rookery --help`"
            raise click.UsageError(f"There is no command {args[0]!r}; {hint}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rookery")
def cli() -> None:
    """Rookery runs many coding agents side by side, behind one MCP control plane."""


def main() -> None:
    """The `rookery` command: errors as one line with a remedy, exit codes as documented."""
    from rookery.cli.failure import Failure, report

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
    except BrokenPipeError:
        # Whoever read our output has gone; flushing at exit would only say so again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)
