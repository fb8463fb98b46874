"""`rookery doctor`."""

import click

from rookery.cli.launch import exec_daemon_command

EPILOG = """\b
Examples:
  rookery doctor
  rookery doctor --json | jq '.checks[] | select(.status != "ok")'
"""


@click.command(epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def doctor(as_json: bool) -> None:
    """Check this machine, one row a check, changing nothing.

    Exits with 1 if a check failed; warnings do not count.
    """
    exec_daemon_command("doctor", *(["--json"] if as_json else []))
