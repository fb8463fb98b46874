"""`rookery client`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rookery.cli.groups import SuggestingGroup
from rookery.cli.launch import exec_daemon_command
from rookery.cli.ws.common import complete_workspace

F = TypeVar("F", bound=Callable[..., Any])

# A test compares this with `rookery.clients.registry`, which the command line does not import.
CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini", "zed", "windsurf", "opencode")

_PRINT = """\b
Examples:
  rookery client print cursor
  rookery client print claude-code --workspace fix-login
  rookery client print gemini --transport bridge
  rookery client print codex --mode search         two tools to find and call all others
"""
_INSTALL = """\b
Examples:
  rookery client install claude-desktop
  rookery client install codex --print             only look at file and text
  rookery client install vscode --scope project    into .vscode/mcp.json of this checkout
"""


def _client_options(command: F) -> F:
    for option in (
        click.option("--no-start", is_flag=True, help="Exit with 5 instead of starting the daemon."),
        click.option("--json", "as_json", is_flag=True, help="Answer in JSON."),
        click.option(
            "--scope", type=click.Choice(["user", "project"]), default="user", help="Whose file: yours, or a project's."
        ),
        click.option("--name", default="rookery", show_default=True, help="What the client calls this server."),
        click.option(
            "--transport", type=click.Choice(["http", "bridge"]), help="By default what the client is best at."
        ),
        click.option(
            "--mode",
            type=click.Choice(["list", "search"]),
            help="List all tools, or two that search for and call them.",
        ),
        click.option("--project", metavar="PROJECT", help="Of this project, by id or name."),
        click.option(
            "--workspace",
            metavar="NAME",
            shell_complete=complete_workspace,
            help="Connect the client to this workspace.",
        ),
        click.argument("client", type=click.Choice(CLIENTS), metavar="CLIENT"),
    ):
        command = option(command)
    return command


@click.group(
    cls=SuggestingGroup, epilog="\b\nExamples:\n  rookery client print claude-code\n  rookery client install cursor\n"
)
def client() -> None:
    """Configs for the programs that connect to Rookery."""


@client.command("print", epilog=_PRINT)
@_client_options
def print_(**options: Any) -> None:
    """Print the config that CLIENT needs to connect to Rookery.

    The config contains no secret: it names the variable of the token, or uses the bridge, which needs no token.
    """
    _run_client_command([], options)


@client.command(epilog=_INSTALL)
@_client_options
@click.option("--print", "only_print", is_flag=True, help="Change nothing; show the file and what would go into it.")
def install(only_print: bool, **options: Any) -> None:
    """Add Rookery to the config file of CLIENT.

    Comments and other entries in the file are kept. Before the first change, a copy of the file is saved next to it.
    """
    _run_client_command(["--show-file"] if only_print else ["--write"], options)


def _run_client_command(words: list[str], options: dict[str, Any]) -> None:
    flags = {"--workspace": "workspace", "--of": "project", "--transport": "transport", "--mode": "mode"}
    words += [f"--name={options['name']}", f"--scope={options['scope']}"]
    words += [f"{flag}={options[key]}" for flag, key in flags.items() if options[key] is not None]
    words += ["--json"] if options["as_json"] else []
    words += ["--no-start"] if options["no_start"] else []
    exec_daemon_command("client", f"--client={options['client']}", *words)
