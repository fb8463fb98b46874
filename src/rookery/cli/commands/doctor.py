"""`rookery doctor`."""

import click

from rookery.cli.options import json_option
from rookery.daemon_client.start import exec_daemon_command

EPILOG = """\b
Examples:
  rookery doctor
  rookery doctor --json | jq '.checks[] | select(.status != "ok")'
"""


@click.command(epilog=EPILOG)
@json_option
def doctor(as_json: bool) -> None:
    """Check this machine, without changing anything.

    Exits with 1 if a check failed; warnings do not count.
    """
    exec_daemon_command("doctor", *(["--json"] if as_json else []))
