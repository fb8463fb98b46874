"""`rookery config`."""

import click

from rookery.cli.groups import SuggestingGroup
from rookery.cli.launch import exec_daemon_command

CONFIG_EPILOG = """\
Settings come from defaults, then ~/.config/rookery/config.toml, then .rookery/config.toml of the project, then
ROOKERY_* variables, then flags; the last one that gives a value wins.

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
  rookery config set worktrees.setup "make setup" --project
"""


@click.group(cls=SuggestingGroup, epilog=CONFIG_EPILOG)
def config() -> None:
    """Show and change settings."""


@config.command(epilog="\b\nExamples:\n  rookery config show\n  rookery config show --json | jq '.problems'\n")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def show(as_json: bool) -> None:
    """Every setting with its value and the source that gave it."""
    exec_daemon_command("config", "show", *(["--json"] if as_json else []))


@config.command(epilog="\b\nExamples:\n  rookery config get http.port\n")
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def get(key: str, as_json: bool) -> None:
    """The value of one setting."""
    exec_daemon_command("config", "get", f"--key={key}", *(["--json"] if as_json else []))


@config.command(name="set", epilog=SET_EPILOG)
@click.argument("key")
@click.argument("value")
@click.option("--project", is_flag=True, help="Write .rookery/config.toml of this project instead of the user's file.")
def set_(key: str, value: str, project: bool) -> None:
    """Write one setting; a running daemon takes it over if it can."""
    exec_daemon_command("config", "set", f"--key={key}", f"--value={value}", *(["--project"] if project else []))


@config.command(epilog="\b\nExamples:\n  rookery config path\n")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def path(as_json: bool) -> None:
    """The files in use, and whether each exists."""
    exec_daemon_command("config", "path", *(["--json"] if as_json else []))
