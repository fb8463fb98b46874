"""`rookery guard scan`."""

import click

from rookery.cli.options import json_option
from rookery.daemon_client.start import exec_daemon_command

_EPILOG = """\
A file holds a saved result of `tools/list`, or JSON lines such as {"id": "1", "server": "notes", "tool": {...}}.
Instead of a tool, a line may hold a prompt, a resource or the instructions of a server.

\b
Examples:
  rookery guard scan --file tools.json
  rookery guard scan --file definitions.jsonl --json | jq '.[] | select(.severity)'
  rookery guard scan --file tools.json --sarif > findings.sarif
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--file",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Scan the definitions in a file.",
)
@click.option("--off", multiple=True, metavar="RULE=REASON", help="Switch a rule off; repeat for more.")
@click.option("--sarif", is_flag=True, help="Print SARIF, for builds and code hosts.")
@json_option
def scan(file: str, off: tuple[str, ...], sarif: bool, as_json: bool) -> None:
    """Look for tool poisoning in the definitions of MCP servers.

    Nothing of a server runs, and nothing leaves this machine. The exit code is 1 if something severe was found.
    """
    flags = [f"--off={rule}" for rule in off]
    flags += ["--json"] if as_json else []
    flags += ["--sarif"] if sarif else []
    exec_daemon_command("scan", f"--file={file}", *flags)
