"""`rookery config`."""

import click

from rookery.cli.groups import SuggestingGroup
from rookery.cli.options import json_option
from rookery.daemon_client.start import exec_daemon_command

CONFIG_EPILOG = """\
Settings come from defaults, then ~/.config/rookery/config.toml, then .rookery/config.toml of the project, then
ROOKERY_* variables, then flags; later ones override earlier ones.

\b
Examples:
  rookery config show
  rookery config get http.port
  rookery config set log.level debug
"""


SET_EPILOG = """\b
Examples:
  rookery config set log.level debug
  rookery config set http.port 8000
  rookery config set workspace.setup "make setup" --project
"""


@click.group(cls=SuggestingGroup, epilog=CONFIG_EPILOG)
def config() -> None:
    """Show and change settings."""


@config.command(epilog="\b\nExamples:\n  rookery config show\n  rookery config show --json | jq '.problems'\n")
@json_option
def show(as_json: bool) -> None:
    """Show every setting with its value and source."""
    exec_daemon_command("config", "show", *(["--json"] if as_json else []))


@config.command(epilog="\b\nExamples:\n  rookery config get http.port\n")
@click.argument("key")
@json_option
def get(key: str, as_json: bool) -> None:
    """Print the value of one setting."""
    exec_daemon_command("config", "get", f"--key={key}", *(["--json"] if as_json else []))


@config.command(name="set", epilog=SET_EPILOG)
@click.argument("key")
@click.argument("value")
@click.option("--project", is_flag=True, help="Write .rookery/config.toml of this project instead of the user's file.")
def set_(key: str, value: str, project: bool) -> None:
    """Write one setting; a running daemon applies it if it can."""
    exec_daemon_command("config", "set", f"--key={key}", f"--value={value}", *(["--project"] if project else []))


@config.command(epilog="\b\nExamples:\n  rookery config path\n")
@json_option
def path(as_json: bool) -> None:
    """Show the files in use, and whether each exists."""
    exec_daemon_command("config", "path", *(["--json"] if as_json else []))
