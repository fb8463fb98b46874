"""`rookery client`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rookery.cli.handover import hand_over
from rookery.cli.ws_names import complete

F = TypeVar("F", bound=Callable[..., Any])

# A test compares it with what the commands know.
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


def _common(command: F) -> F:
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
            "--mode", type=click.Choice(["list", "search"]), help="All tools, or two to search for them and to call."
        ),
        click.option("--project", metavar="PROJECT", help="Of this project, by id or name."),
        click.option("--workspace", metavar="NAME", shell_complete=complete, help="Aim it at this workspace."),
        click.argument("client", type=click.Choice(CLIENTS), metavar="CLIENT"),
    ):
        command = option(command)
    return command


@click.group()
def client() -> None:
    """Configs for the programs that connect to Rookery."""


@client.command("print", epilog=_PRINT)
@_common
def print_(**given: Any) -> None:
    """Print what CLIENT needs in its file to reach Rookery.

    No secret is in it: the token is named as a variable, or the bridge is used, which needs none.
    """
    _hand_over([], given)


@client.command(epilog=_INSTALL)
@_common
@click.option("--print", "only_print", is_flag=True, help="Change nothing; show the file and what would go into it.")
def install(only_print: bool, **given: Any) -> None:
    """Write Rookery into the file of CLIENT.

    Comments and everything else in the file stay. Before the first change the file is copied to one beside it.
    """
    _hand_over(["--show-file"] if only_print else ["--write"], given)


def _hand_over(words: list[str], given: dict[str, Any]) -> None:
    valued = {"--workspace": "workspace", "--of": "project", "--transport": "transport", "--mode": "mode"}
    words += [f"--name={given['name']}", f"--scope={given['scope']}"]
    words += [f"{flag}={given[key]}" for flag, key in valued.items() if given[key] is not None]
    words += ["--json"] if given["as_json"] else []
    words += ["--no-start"] if given["no_start"] else []
    hand_over("client", f"--client={given['client']}", *words)
