"""Commands that need more than the command line may import: they hand over to `python -m rookery.daemon`."""

import os
import sys

import click

from rookery.cli.starting import daemon_command


def hand_over(*words: str) -> None:
    """Become the daemon package's command; its output and exit code are this one's."""
    os.getcwd()  # noqa: PTH109 - fails here, where that is told, if the current folder was deleted
    sys.stdout.flush()
    command = daemon_command(*words)
    os.execv(command[0], command)  # noqa: S606 - the same interpreter


DOCTOR_EPILOG = """\b
Examples:
  rookery doctor
  rookery doctor --json | jq '.checks[] | select(.status != "ok")'
"""


@click.command(epilog=DOCTOR_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def doctor(as_json: bool) -> None:
    """Check this machine, one row a check, changing nothing.

    Exits with 1 if a check failed; warnings do not count.
    """
    hand_over("doctor", *(["--json"] if as_json else []))


CONFIG_EPILOG = """\
Settings come from defaults, then ~/.config/rookery/config.toml, then .rookery/config.toml of the project, then
ROOKERY_* variables, then flags; the last one that gives a value wins.

\b
Examples:
  rookery config show
  rookery config get http.port
  rookery config set log.level debug
"""


@click.group(epilog=CONFIG_EPILOG)
def config() -> None:
    """Show and change settings."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def show(as_json: bool) -> None:
    """Every setting with its value and the source that gave it."""
    hand_over("config", "show", *(["--json"] if as_json else []))


@config.command()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def get(key: str, as_json: bool) -> None:
    """The value of one setting."""
    hand_over("config", "get", f"--key={key}", *(["--json"] if as_json else []))


@config.command(name="set")
@click.argument("key")
@click.argument("value")
@click.option("--project", is_flag=True, help="Write .rookery/config.toml of this project instead of the user's file.")
def set_(key: str, value: str, project: bool) -> None:
    """Write one setting; a running daemon takes it over if it can."""
    hand_over("config", "set", f"--key={key}", f"--value={value}", *(["--project"] if project else []))


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def path(as_json: bool) -> None:
    """The files in use, and whether each exists."""
    hand_over("config", "path", *(["--json"] if as_json else []))
