"""`rookery client`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rookery.cli.groups import SuggestingGroup
from rookery.cli.options import json_option, no_start_option, project_option
from rookery.cli.ws.common import complete_workspace
from rookery.daemon_client.start import exec_daemon_command

F = TypeVar("F", bound=Callable[..., Any])

# A test compares this with `rookery.clients.registry`, which the command line does not import.
CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini", "zed", "windsurf", "opencode")

_PRINT = """\b
Examples:
  rookery client print cursor
  rookery client print claude-code --workspace fix-login
  rookery client print gemini --transport bridge
  rookery client print codex --mode search         two tools that find and call all others
"""
_INSTALL = """\b
Examples:
  rookery client install claude-desktop
  rookery client install codex --print             only show the file and the text
  rookery client install vscode --scope project    into .vscode/mcp.json of this checkout
"""


def _client_options(command: F) -> F:
    for option in (
        no_start_option,
        json_option,
        click.option(
            "--scope", type=click.Choice(["user", "project"]), default="user", help="Your own file, or the project's."
        ),
        click.option("--name", default="rookery", show_default=True, help="The name of this server in the client."),
        click.option(
            "--transport",
            type=click.Choice(["http", "bridge"]),
            help="The transport; default: the best that the client supports.",
        ),
        click.option(
            "--mode",
            type=click.Choice(["list", "search"]),
            help="List all tools, or two that search for and call them.",
        ),
        project_option,
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
@click.option("--print", "only_print", is_flag=True, help="Change nothing; show the file and the new text.")
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
