"""`rookery guard scan`."""

import click

from rookery.cli.mcp.common import server_options
from rookery.daemon_client.start import exec_daemon_command

_EPILOG = """\
A file holds a saved result of `tools/list`, or JSON lines such as {"id": "1", "server": "notes", "tool": {...}}.
Instead of a tool, a line may hold a prompt, a resource or the instructions of a server.

\b
Examples:
  rookery guard scan
  rookery guard scan notes github --json
  rookery guard scan --file tools.json
  rookery guard scan --file definitions.jsonl --json | jq '.[] | select(.severity)'
  rookery guard scan --file tools.json --sarif > findings.sarif
"""


@click.command(epilog=_EPILOG)
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="Scan the definitions in a file, and start nothing.",
)
@click.option("--off", multiple=True, metavar="RULE=REASON", help="Switch a rule off; repeat for more.")
@click.option("--sarif", is_flag=True, help="Print SARIF, for builds and code hosts.")
@server_options
def scan(
    servers: tuple[str, ...],
    file: str | None,
    off: tuple[str, ...],
    sarif: bool,
    everywhere: bool,
    as_json: bool,
    no_start: bool,
) -> None:
    """Look for tool poisoning in the definitions of MCP servers.

    The servers of this workspace, or those with these names, are started and listed. No tool of theirs runs, and
    nothing leaves this machine. The exit code is 1 if something severe was found.
    """
    if file is not None and servers:
        raise click.UsageError("name servers or a file, not both")
    flags = [f"--off={rule}" for rule in off]
    flags += ["--json"] if as_json else []
    flags += ["--sarif"] if sarif else []
    flags += ["--global"] if everywhere else []
    flags += ["--no-start"] if no_start else []
    flags += [f"--file={file}"] if file is not None else [f"--server={name}" for name in servers]
    exec_daemon_command("scan", *flags)
